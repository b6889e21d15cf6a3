"""Demonstrations are played through the rollout code and carry no hidden connection between tasks."""

from types import SimpleNamespace

import pytest
import torch

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import TextState, Words
from cod_lightning.datamodules import DemonstrationDataModule
from cod_lightning.envs.base import Demonstrator, Vocabulary, beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS
from cod_lightning.envs.levers.world import LeverPlayers, LeverProposals
from cod_lightning.errors import ConfigError, NonFiniteLoss
from cod_lightning.lifecycles import Ask, Program, outline
from cod_lightning.methods.planner import PlanAndSolve
from cod_lightning.methods.propose import ProposeAndSolve
from cod_lightning.models import TinyPolicy
from cod_lightning.modules import WarmStartModule
from cod_lightning.types import EpisodeKind
from tests.cases import each
from tests.small_fit import Updates, quiet_trainer
from tests.stubs import PlainContext, counted

SMALL = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 64}


def lake():
    return FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact")


def fit(world, num_updates, seed=0, lr=3e-3):
    torch.manual_seed(seed)
    data = DemonstrationDataModule(
        world, HintContext(protocol="compact"), num_updates=num_updates, packs_per_update=2, num_packs=20, seed=seed
    )
    updates = Updates("warm_start/loss")
    quiet_trainer(None, updates).fit(WarmStartModule(TinyPolicy(**SMALL), lr=lr, warmup_updates=5), data)
    return updates, data


def set_up(data, **policy):
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL | policy)))
    data.setup("fit")


@pytest.mark.parametrize("world", [pytest.param(lake, marks=pytest.mark.slow), lambda: Levers(protocol="compact")])
def test_the_loss_falls_and_no_word_is_unknown(world):
    updates, data = fit(world(), 60)
    losses = [update["warm_start/loss"] for update in updates.values]
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
    unknown = data.chat.tokenizer.unk_token_id
    assert all((batch.token_ids != unknown).all() for batch in updates.batches)


def test_the_rate_of_a_warm_start_rises_for_its_warm_up_and_falls_to_0_with_its_last_update():
    class Rates(Updates):
        def on_train_batch_end(self, trainer, *more):
            self.values.append(trainer.optimizers[0].param_groups[0]["lr"])  # of the update to come

    data = DemonstrationDataModule(lake(), HintContext(protocol="compact"), num_updates=8, num_packs=3)
    rates = Rates()
    quiet_trainer(None, rates).fit(WarmStartModule(TinyPolicy(**SMALL), lr=1.0, warmup_updates=4), data)
    assert rates.values == pytest.approx([min((n + 1) / 4, 1 - n / 8) for n in range(1, 9)])


def test_a_warm_start_that_comes_to_no_number_ends_before_it_is_kept_for_later_runs():
    with pytest.raises(NonFiniteLoss, match=r"(nan|inf) at optimizer update \d+; .* Lower model\.lr"):
        fit(lake(), 20, lr=1e30)


def test_an_update_has_every_episode_of_its_packs_as_one_row_each():
    for batch in fit(lake(), 3)[0].batches:
        assert len(batch) == 2 * 7


def test_the_same_seed_demonstrates_the_same():
    first, second, other = (fit(lake(), 2, seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first.batches[1].token_ids, second.batches[1].token_ids)
    assert first.batches[1].token_ids.tolist() != other.batches[1].token_ids.tolist()


def test_demonstrated_contexts_do_not_come_from_the_task_before():
    _, data = fit(lake(), 1)
    groups = [data._demonstrate(i) for i in range(20)]
    pairs = [
        (x.updates[j].context_after, x.solves[j + 1].context_before)
        for group in groups
        for x in group.lifecycles
        for j in range(3)
    ]
    assert sum(after == before for after, before in pairs) < 0.1 * len(pairs)
    begun = [group.lifecycles[0].solves[0].context_before for group in groups]
    assert len(set(begun)) > 10, "packs are drawn apart"


def test_proposals_are_demonstrated_before_the_tasks_of_a_round_and_any_task_is_as_likely():
    world, program = Levers(protocol="compact"), ProposeAndSolve(solves=2)
    data = DemonstrationDataModule(
        world, HintContext(protocol="compact"), program, num_updates=40, packs_per_update=1, num_packs=40
    )
    set_up(data)
    said = []
    for index in range(40):
        life = data._demonstrate(index).lifecycles[0]
        assert [one.kind for one in life.episodes] == [step.kind for step in outline(program, 4)]
        said += [one.turns[0].response for one in life.episodes if one.kind is EpisodeKind.WRITE]
        assert all(one.success for one in life.episodes if one.kind is EpisodeKind.WRITE)
    assert {text: said.count(text) for text in said}.keys() == {f"want={colour}" for colour in COLOURS}
    assert min(said.count(text) for text in said) > 10


def test_solve_episodes_of_a_proposal_are_demonstrated_as_if_no_other_had_come_before():
    class Marking(HintContext):
        def feedback(self, state, episode):
            return TextState(f"{state.text} want={COLOURS[0]}".strip())

    world, program = Levers(protocol="compact"), ProposeAndSolve(solves=2)
    data = DemonstrationDataModule(world, Marking(protocol="compact"), program, num_updates=1, num_packs=3)
    set_up(data)
    solves = [one for index in range(3) for one in data._demonstrate(index).lifecycles[0].solves]
    assert not any("want=" in one.context_before for one in solves)


def test_of_a_planner_the_tasks_and_rewrites_are_demonstrated_and_its_words_are_in_the_vocabulary():
    program = PlanAndSolve(request=" first: plan")
    data = DemonstrationDataModule(lake(), HintContext(protocol="compact"), program, num_updates=1, num_packs=3)
    set_up(data)
    (life,) = data._demonstrate(0).lifecycles
    assert [one.kind for one in life.episodes] == ([EpisodeKind.SOLVE, EpisodeKind.UPDATE] * 4)[:-1]
    assert data.words == (
        *beside(lake(), Vocabulary).words(),
        *beside(HintContext(protocol="compact"), Words).words(),
        "first:",
        "plan",
        *("##", "Your", "plan", "for", "this", "task"),
    )


class Named(Program):
    """Says what its rewrites are compared with."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            await agent.rewrite(await agent.solve(task), compared_with="rewrite")


class Twice(Program):
    """Each task two times."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            await agent.solve(task)
            await agent.rewrite(await agent.solve(task))


def test_a_program_that_solves_more_than_the_tasks_of_a_pack_is_demonstrated_in_what_it_chooses():
    data = DemonstrationDataModule(LEVERS, HINT, Twice(), pack_size=2, num_updates=1, num_packs=3)
    set_up(data)
    life = data._demonstrate(0).lifecycles[0]
    assert [one.position for one in life.solves] == [0, 1, 2, 3]
    assert [one.position for one in life.updates] == [1, 3]
    assert not life.failed


def test_rewrites_that_a_program_gives_a_name_are_demonstrated():
    data = DemonstrationDataModule(lake(), HintContext(protocol="compact"), Named(), num_updates=1, num_packs=3)
    set_up(data)
    assert len(data._demonstrate(0).lifecycles[0].updates) == 4


def test_every_environment_that_a_warm_start_begins_is_closed():
    world, begun, closed = counted(Levers)
    data = DemonstrationDataModule(world(protocol="compact"), HINT, num_updates=1, num_packs=3)
    set_up(data)
    data._demonstrate(0)
    assert list(map(id, closed)) == list(map(id, begun))


def offering(offer):
    """Levers that offer this."""
    proposals = type("OddProposals", (LeverProposals,), {"offer": offer})
    return type("Odd", (Levers,), {"companions": (proposals, *Levers.companions)})(protocol="compact")


class ShyProposals(LeverProposals):
    def proposed(self, response, task):
        return None


class Mute(Demonstrator):
    def act(self, messages, rng):
        raise ValueError("no idea")

    note = act

    def context(self, rng):
        return ""


class MutePlayers(LeverPlayers):
    def demonstrator(self, pack):
        return Mute()


class Stage(Levers):
    """Its demonstrator raises."""

    companions = (MutePlayers, *Levers.companions)


class Shy(Levers):
    """Its players propose nothing."""

    companions = (ShyProposals, *Levers.companions)


def levers(max_new_tokens, **more):
    """Demonstrations of the levers, set up for a tiny policy; the longest response has six tokens."""
    data = DemonstrationDataModule(
        Levers(protocol="compact"), HintContext(protocol="compact"), max_new_tokens=max_new_tokens, num_packs=3, **more
    )
    set_up(data)
    return data


def test_a_response_as_long_as_the_run_allows_is_shown_with_its_end_of_turn():
    found = [
        turn.action_ids
        for life in levers(6)._demonstrate(0).lifecycles
        for episode in life.episodes
        for turn in episode.turns
    ]
    assert max(map(len, found)) == 7
    data = levers(16)
    again = [turn.action_ids for life in data._demonstrate(0).lifecycles for e in life.episodes for turn in e.turns]
    assert again == found, "a larger bound changes nothing"
    assert {ids[-1] for ids in found} == {data.chat.stop_id}


def test_another_environment_is_demonstrated_in_the_words_of_the_run():
    own = levers(16)
    words = own.words_for(own.learner.policy)
    more = levers(16, words=["lake", *words])
    assert len(more.chat.tokenizer) == len(own.chat.tokenizer) + 1
    texts = [
        [
            data.chat.decode(turn.action_ids)
            for life in data._demonstrate(0).lifecycles
            for e in life.episodes
            for turn in e.turns
        ]
        for data in (own, more)
    ]
    assert texts[0] == texts[1]
    with pytest.raises(ConfigError, match=r"says the word .want=.*to words\(\) of Levers.s companion Vocabulary"):
        levers(16, words=["lake"])


class Unwritten(PlainContext):
    companions = ()


class Asking(Program):
    """Asks for a text after a long request, and for another after a short one."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            for request in (" levers" * 300, " levers"):
                await agent.ask(task, Ask(request))
            await agent.solve(task)


PROPOSE = {"program": ProposeAndSolve(solves=2)}
LEVERS, HINT = Levers(protocol="compact"), HintContext(protocol="compact")


@each(
    ("env", "context", "options", "window", "said"),
    [
        (lake(), HINT, PROPOSE, 96, r"data\.program is ProposeAndSolve"),
        (Shy(protocol="compact"), HINT, PROPOSE, 96, r"data\.env is Shy"),
        (offering("levers " * 500), HINT, PROPOSE, 300, "window is 300"),
        *((offering(one), HINT, PROPOSE, 96, r"data\.env is Odd") for one in (None, 3, lambda world: "levers")),
        (Stage(protocol="compact"), HINT, {}, 96, r"data\.env is Stage; .* plays its packs .*no idea"),
        (LEVERS, HINT, {"program": Asking()}, 300, "window is 300"),
        (LEVERS, HINT, {}, 20, r"model\.policy\.window is 20"),
        (LEVERS, HINT, {"max_new_tokens": 2}, 96, r"data\.max_new_tokens is 2; .* Set it to 6"),
        (lake(), Unwritten(), {}, 96, r"data\.context is Unwritten; .* a Scripted among its .*--warm_start null"),
    ],
)
def test_what_cannot_be_demonstrated_is_refused_before_the_first_update(env, context, options, window, said):
    data = DemonstrationDataModule(env, context, **options)
    with pytest.raises(ConfigError, match=said):
        set_up(data, window=window)
