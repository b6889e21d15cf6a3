"""A teacher that sees more scores the sampled tokens after other prompts."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from msgspec import structs

from cod_lightning.contexts import HintContext
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.datamodules.combinations import check_sees
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.apps import Apps
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.controls import oracle_contexts
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.lifecycles import ConnectTheDots, Program
from cod_lightning.lifecycles.best_of_n import BestOfN
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.methods.attempts import Anchored
from cod_lightning.methods.planner import PlanAndSolve
from cod_lightning.methods.privileged import OraclePrompts, PrivilegedScorer, after
from cod_lightning.methods.propose import ProposeAndSolve
from cod_lightning.models import TinyPolicy
from cod_lightning.objective.batch import collate
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.segments import segments_of
from cod_lightning.rollout.setting import Setting
from cod_lightning.training.scorers import CheckpointScorer, Played
from cod_lightning.types import EpisodeKind, EpisodeStatus, Split
from tests.cases import each
from tests.credit_tables import credit_table
from tests.evaluation.echoes import Echo
from tests.real_templates import CHATML, QWEN3, QWEN3_TOOLS, bpe_tokenizer
from tests.scored import LENGTHS, TINY, by_definition, forward, rows
from tests.stubs import FunctionEngine, WordWorld


def test_a_teacher_that_sees_more_scores_the_same_responses_after_other_prompts(tmp_path):
    policy = TinyPolicy(**TINY)
    torch.manual_seed(0)
    model = policy.model(policy.tokenizer(WordWorld().words())).eval()
    batch, others = rows(), {0: [7, 8, 9], 1: [5], 2: None, 3: [4, 4, 4, 4, 4, 4]}
    model.save_pretrained(tmp_path)
    for teacher in (PrivilegedScorer(), PrivilegedScorer(CheckpointScorer(str(tmp_path)))):
        seen, known = after(batch, lambda g, *_: others[g])
        assert known.tolist() == [True, True, False, True]
        found = teacher.score(seen, lambda own, part: forward(model if own is None else own, part))
        for row, begin in others.items():
            ids, at = batch.token_ids[row, : LENGTHS[row]].tolist(), int(batch.action_mask[row].int().argmax())
            begin = ids[:at] if begin is None else begin
            expected = by_definition(model, begin + ids[at:])[len(begin) - 1 :]
            assert found[row][seen.action_mask[row]].tolist() == pytest.approx(expected, abs=1e-5)
            assert batch.action_mask[row].sum() == seen.action_mask[row].sum()


def test_a_rank_without_rows_asks_a_teacher_that_sees_more_about_none():
    none = rows().rows(torch.zeros(0, dtype=torch.long))
    seen, known = PrivilegedScorer().rows(none, Played({}, setting=None))
    assert (len(seen), len(known), seen.lengths.dtype) == (0, 0, torch.long)


def test_behind_the_oracle_s_prompt_stays_what_a_template_makes_of_earlier_turns():
    """Qwen3's drops their thoughts, and begins with the first prompt all the same."""
    world, mechanism, chat = Levers(protocol="natural"), HintContext(), Chat(bpe_tokenizer(QWEN3), True)
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    thought = (*chat.encode("<think>\nThe map is dark.\n</think>\n\n<answer>Lever 1</answer>"), chat.stop_id)
    engine = FunctionEngine(lambda _: thought, chat.stop_id)
    sampler, program = Sampler(engine=engine, chat=chat, window=10**6, max_new_tokens=100), ConnectTheDots(every=None)
    setting = Setting(env=world, mechanism=mechanism, sampler=sampler, program=program)
    provided = Controlled(program=program, contexts={pack.id: oracle_contexts(world, [pack], mechanism)[0]})
    (group,), (shown,) = (run_groups([pack], 1, replace(setting, program=of)) for of in (program, provided))
    batch = collate(segments_of([group]), credit_table([group]), {pack.id: 0}, pad_id=chat.pad_id)
    seen, known = PrivilegedScorer().rows(batch, Played({0: group}, setting))
    assert known.all()
    assert len(batch) > len(batch.episode.unique()), "a row for each turn"
    rows = [row[:length] for row, length in zip(seen.token_ids.tolist(), seen.lengths.tolist(), strict=True)]
    assert rows == [list(row.token_ids) for row in segments_of([shown])]


def played(pack, mechanism, world, provided=None):
    """A pack as the echo plays it, the setting, and what each row of it begins with."""
    setting = Setting(env=world, mechanism=mechanism, sampler=scripted_sampler(Echo(), mechanism))
    program = Controlled(contexts={pack.id: provided}) if provided else setting.program
    (group,) = run_groups([pack], 1, replace(setting, program=program))
    return group, setting


@each(
    ("program", "refused"),
    [
        (PlanAndSolve(), True),
        (BestOfN(), True),
        (Anchored(program=PlanAndSolve()), True),
        (Anchored(), False),
        (ProposeAndSolve(solves=2), False),
    ],
)
def test_a_program_that_shows_the_policy_what_the_teacher_would_not_see_is_refused(program, refused):
    data = RolloutDataModule(Levers(), HintContext(), TransformersEngine(), program)
    expected = r"model\.scorers\.teacher is PrivilegedScorer; expected none with data\.program"
    with pytest.raises(ConfigError, match=expected) if refused else nullcontext():
        check_sees(data, "model.scorers.teacher", "PrivilegedScorer")


@each("protocol", ["compact", "natural"])
def test_a_prompt_with_the_oracle_s_context_is_that_of_an_episode_that_begins_with_it(protocol) -> None:
    world, mechanism = Levers(protocol=protocol), HintContext(protocol)
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    group, setting = played(pack, mechanism, world)
    (contexts,) = oracle_contexts(world, [pack], mechanism)
    given, _ = played(pack, mechanism, world, provided=contexts)
    prompt = OraclePrompts(Played({5: group}, setting))
    life, shown = group.lifecycles[0], {one.position: one for one in given.lifecycles[0].solves}
    for e, episode in enumerate(life.episodes):
        begin, num_after = episode.turns[0].new_ids, len(episode.turns[0].action_ids)
        found = prompt(5, 0, e, begin, num_after)
        assert found is not None
        if episode.kind is EpisodeKind.SOLVE:
            assert found == shown[episode.position].turns[0].new_ids
        else:
            text = setting.sampler.chat.decode(found)
            assert contexts[0].text in text
            assert life.solves[episode.position].feedback in text
        assert prompt(5, 0, e, begin[1:], num_after) is None, "this row begins elsewhere"
        lost = structs.replace(episode, turns=(), status=EpisodeStatus.FAILED, reward=None)
        own = (*life.episodes[:e], lost, *life.episodes[e + 1 :])
        failed = structs.replace(life, episodes=(*own, structs.replace(episode, parent=e)))
        of_attempt = OraclePrompts(Played({5: structs.replace(group, lifecycles=(failed,))}, setting))
        assert of_attempt(5, 0, len(own), begin, num_after) == found, (
            "an attempt's, beside an episode that failed before its first turn"
        )
        room = len(found) + num_after
        for window, fits in ((room, True), (room - 1, False)):
            tight = replace(setting, sampler=replace(setting.sampler, window=window))
            assert (OraclePrompts(Played({5: group}, tight))(5, 0, e, begin, num_after) is not None) == fits


class Twice(Program):
    """Each task two times."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            await agent.rewrite(await agent.solve(task))
            await agent.rewrite(await agent.solve(task))


def test_episodes_beyond_the_tasks_of_the_pack_have_no_prompt_since_the_oracle_writes_one_context_a_task():
    world, mechanism = Levers(protocol="compact"), HintContext("compact")
    setting = Setting(env=world, mechanism=mechanism, sampler=scripted_sampler(Echo(), mechanism), program=Twice())
    group = run_groups([world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)], 1, setting)[0]
    prompt = OraclePrompts(Played({0: group}, setting))
    for e, one in enumerate(group.lifecycles[0].episodes):
        assert (prompt(0, 0, e, one.turns[0].new_ids, 1) is None) == (one.position >= 2)


@each("template", [QWEN3_TOOLS, CHATML])
def test_in_an_environment_with_tools_the_prompt_lists_them_as_the_episode_s_own_does(template) -> None:
    world, mechanism, chat = Apps(actions="tools", quirks=0), HintContext(), Chat(bpe_tokenizer(template))
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    engine = FunctionEngine(lambda _: (chat.stop_id,), chat.stop_id)
    setting = Setting(
        env=world,
        mechanism=mechanism,
        sampler=Sampler(engine=engine, chat=chat, window=10**6, max_new_tokens=100),
        program=ConnectTheDots(every=None),
    )
    (contexts,) = oracle_contexts(world, [pack], mechanism)
    (group,) = run_groups([pack], 1, setting)
    provided = Controlled(program=setting.program, contexts={pack.id: contexts})
    (given,) = run_groups([pack], 1, replace(setting, program=provided))
    prompt = OraclePrompts(Played({0: group}, setting))
    for e, episode in enumerate(group.lifecycles[0].episodes):
        found = prompt(0, 0, e, episode.turns[0].new_ids, 1)
        assert found == given.lifecycles[0].episodes[e].turns[0].new_ids
        assert "user.docs" in chat.text(found)
        assert contexts[0].text in chat.text(found)
