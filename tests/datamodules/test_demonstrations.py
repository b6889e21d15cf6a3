"""Demonstrations are played through the rollout code and carry no hidden connection between tasks."""

from types import SimpleNamespace

import lightning as L
import pytest
import torch

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.datamodules import DemonstrationDataModule
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS
from cod_lightning.envs.levers.world import LeverProposals
from cod_lightning.errors import ConfigError, NonFiniteLoss
from cod_lightning.lifecycles import outline
from cod_lightning.methods.planner import PlanAndSolve
from cod_lightning.methods.propose import ProposeAndSolve
from cod_lightning.models import TinyPolicy
from cod_lightning.modules import WarmStartModule
from cod_lightning.types import EpisodeKind
from tests.cases import each
from tests.stubs import PlainContext

SMALL = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 64}


def lake():
    return FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact")


class Losses(L.Callback):
    def __init__(self):
        self.batches, self.values = [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.batches.append(batch)
        self.values.append(float(trainer.callback_metrics["warm_start/loss"]))


def fit(world, num_updates, seed=0, lr=3e-3):
    torch.manual_seed(seed)
    data = DemonstrationDataModule(
        world, HintContext(protocol="compact"), num_updates=num_updates, packs_per_update=2, num_packs=20, seed=seed
    )
    losses = Losses()
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[losses],
    )
    module = WarmStartModule(TinyPolicy(**SMALL), lr=lr, warmup_updates=5)
    trainer.fit(module, data)
    return losses, data, module


@pytest.mark.parametrize("world", [pytest.param(lake, marks=pytest.mark.slow), lambda: Levers(protocol="compact")])
def test_the_loss_falls_and_no_word_is_unknown(world):
    losses, data, _ = fit(world(), 60)
    assert sum(losses.values[-10:]) < 0.7 * sum(losses.values[:10])
    unknown = data.chat.tokenizer.unk_token_id
    assert all((batch.token_ids != unknown).all() for batch in losses.batches)


def test_a_warm_start_that_comes_to_no_number_ends_before_it_is_kept_for_later_runs():
    with pytest.raises(
        NonFiniteLoss, match=r"gradient's norm is (nan|inf) at optimizer update \d+; .* Lower model\.lr"
    ):
        fit(lake(), 20, lr=1e30)


def test_an_update_has_every_episode_of_its_packs_as_one_row_each():
    losses, *_ = fit(lake(), 3)
    for batch in losses.batches:
        assert len(batch) == 2 * 7


def test_the_same_seed_demonstrates_the_same():
    (first, *_), (second, *_), (other, *_) = (fit(lake(), 2, seed) for seed in (1, 1, 2))
    assert torch.equal(first.batches[1].token_ids, second.batches[1].token_ids)
    assert first.batches[1].token_ids.tolist() != other.batches[1].token_ids.tolist()


def test_demonstrated_contexts_do_not_come_from_the_task_before():
    _, data, _ = fit(lake(), 1)
    groups = [data._demonstrate(i) for i in range(20)]
    pairs = [
        (x.updates[j].context_after, x.solves[j + 1].context_before)
        for group in groups
        for x in group.lifecycles
        for j in range(3)
    ]
    assert sum(after == before for after, before in pairs) < 0.1 * len(pairs)


def test_proposals_are_demonstrated_before_the_tasks_of_a_round_and_any_task_is_as_likely():
    world, program = Levers(protocol="compact"), ProposeAndSolve(solves=2)
    data = DemonstrationDataModule(
        world, HintContext(protocol="compact"), program, num_updates=40, packs_per_update=1, num_packs=40
    )
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL)))
    data.setup("fit")
    said = []
    for index in range(40):
        life = data._demonstrate(index).lifecycles[0]
        assert [one.kind for one in life.episodes] == [step.kind for step in outline(program, 4)]
        said += [one.turns[0].response for one in life.episodes if one.kind is EpisodeKind.WRITE]
        assert all(one.success for one in life.episodes if one.kind is EpisodeKind.WRITE)
    assert {text: said.count(text) for text in said}.keys() == {f"want={colour}" for colour in COLOURS}
    assert min(said.count(text) for text in said) > 10


def test_of_a_planner_the_tasks_and_rewrites_are_demonstrated_and_its_words_are_in_the_vocabulary():
    program = PlanAndSolve(request=" first: plan", heading=" plan: ")
    data = DemonstrationDataModule(lake(), HintContext(protocol="compact"), program, num_updates=1, num_packs=3)
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL)))
    data.setup("fit")
    (life,) = data._demonstrate(0).lifecycles
    assert [one.kind for one in life.episodes] == ([EpisodeKind.SOLVE, EpisodeKind.UPDATE] * 4)[:-1]
    assert data.words == (
        *beside(lake(), Vocabulary).words(),
        *beside(HintContext(protocol="compact"), Words).words(),
        "first:",
        "plan",
        "plan:",
    )


def test_a_plan_with_proposals_is_refused_where_the_environment_makes_no_tasks_of_them():
    data = DemonstrationDataModule(lake(), HintContext(protocol="compact"), ProposeAndSolve(solves=2))
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL)))
    with pytest.raises(
        ConfigError, match=r"data\.program is ProposeAndSolve; expected .* FrozenLakeObscure makes no tasks"
    ):
        data.setup("fit")


def offering(offer):
    """Levers that offer this."""
    proposals = type("OddProposals", (LeverProposals,), {"offer": offer})
    return type("Odd", (Levers,), {"companions": (proposals, *Levers.companions)})(protocol="compact")


def test_an_offer_that_is_too_long_for_the_window_is_refused_with_what_it_needs():
    world = offering("levers " * 500)
    data = DemonstrationDataModule(world, HintContext(protocol="compact"), ProposeAndSolve(solves=2))
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL, window=300)))
    with pytest.raises(
        ConfigError, match=r"model\.policy\.window is 300; expected at least 5\d\d: the prompt for TaskOffer"
    ):
        data.setup("fit")


class ShyProposals(LeverProposals):
    def proposed(self, response, task):
        return None


class Shy(Levers):
    """Its players propose nothing."""

    companions = (ShyProposals, *Levers.companions)


def test_a_demonstrator_whose_proposals_are_no_tasks_is_refused_before_the_first_update():
    data = DemonstrationDataModule(Shy(protocol="compact"), HintContext(protocol="compact"), ProposeAndSolve(solves=2))
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL)))
    with pytest.raises(ConfigError, match=r"data\.env is Shy; expected a demonstrator that writes what"):
        data.setup("fit")


@each("offer", [None, 3, lambda world: "levers"])
def test_an_offer_that_is_no_text_is_refused_in_one_line(offer):
    world = offering(offer)
    data = DemonstrationDataModule(world, HintContext(protocol="compact"), ProposeAndSolve(solves=2))
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL)))
    with pytest.raises(ConfigError, match=r"data\.env is Odd; expected .*TaskOffer gave a"):
        data.setup("fit")


def test_a_bound_that_cuts_off_what_is_demonstrated_is_refused_before_the_first_update():
    data = DemonstrationDataModule(Levers(protocol="compact"), HintContext(protocol="compact"), max_new_tokens=2)
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL)))
    with pytest.raises(
        ConfigError, match=r"data\.max_new_tokens is 2; expected at least 6, the tokens of .*<hints>.* Set it to 6"
    ):
        data.setup("fit")


def levers(max_new_tokens, **more):
    """Demonstrations of the levers, set up for a tiny policy; the longest response has six tokens."""
    data = DemonstrationDataModule(
        Levers(protocol="compact"), HintContext(protocol="compact"), max_new_tokens=max_new_tokens, num_packs=3, **more
    )
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL)))
    data.setup("fit")
    return data


class Unwritten(PlainContext):
    companions = ()


def test_a_mechanism_in_which_no_demonstrator_can_write_is_refused_by_its_own_key():
    data = DemonstrationDataModule(lake(), Unwritten())
    with pytest.raises(
        ConfigError, match=r"data.context is Unwritten; .* a Scripted among its companions.*--warm_start null"
    ):
        data.check_with(TinyPolicy(**SMALL))


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
    with pytest.raises(ConfigError, match=r"says the word .want=.*Add it to Levers\.words"):
        levers(16, words=["lake"])


def test_a_window_below_the_first_prompt_is_refused_before_the_first_update():
    data = DemonstrationDataModule(Levers(protocol="compact"), HintContext(protocol="compact"))
    data.trainer = SimpleNamespace(lightning_module=WarmStartModule(TinyPolicy(**SMALL, window=20)))
    with pytest.raises(ConfigError, match=r"model\.policy\.window is 20; expected at least \d+: a first prompt of"):
        data.setup("fit")
