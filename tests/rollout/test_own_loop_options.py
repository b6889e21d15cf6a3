"""Agent programs beside options of the rollout: a frozen player, and a curriculum that bounds turns."""

from dataclasses import replace

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.dataset import ExactMatch
from cod_lightning.envs.programs import ProgramWorld
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeKind, EpisodeStatus, Split
from tests.agent_programs import TWO_TURNS, program, tasks_file
from tests.cases import each
from tests.real_templates import QWEN3_TOOLS, bpe_tokenizer
from tests.stubs import FunctionEngine


def played(folder, frozen=(), max_turns=None):
    """The lifecycle of a program that asks twice a task, where the trained policy says w0 and a frozen one w7."""
    world = ProgramWorld(program(folder, TWO_TURNS), str(tasks_file(folder)), group="group", scorer=ExactMatch())
    chat = Chat(bpe_tokenizer(QWEN3_TOOLS))

    def says(word):
        return FunctionEngine(lambda request: (*chat.encode(word), chat.stop_id), chat.stop_id)

    trained = Sampler(engine=says("w0"), chat=chat, window=4000, max_new_tokens=200)
    others = {kind: replace(trained, engine=says("w7")) for kind in frozen}
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    pack = replace(pack, tasks=tuple(replace(task, max_turns=max_turns) for task in pack.tasks))
    setting = Setting(env=world, mechanism=HintContext(), sampler=trained, by_kind=others)
    (group,) = run_groups([pack], 1, setting)
    return group.lifecycles[0]


@pytest.mark.slow
@each("frozen", [(), ("solve",), ("update",)])
def test_a_program_asks_the_policy_that_plays_solve_episodes(tmp_path, frozen):
    life = played(tmp_path, tuple(map(EpisodeKind, frozen)))
    for episode in life.episodes:
        assert not episode.error
        assert {turn.response for turn in episode.turns} == {"w7" if episode.kind in frozen else "w0"}


@pytest.mark.slow
@each(("most", "status"), [(1, "truncated"), (2, "completed"), (99, "completed"), (None, "completed")])
def test_a_task_that_is_cut_off_earlier_than_the_environment_ends_it_ends_a_program_too(tmp_path, most, status):
    for solve in played(tmp_path, max_turns=most).solves:
        assert solve.status is EpisodeStatus(status), solve.error
        assert len(solve.turns) == min(2, most or 2)
        assert solve.reward == 0.0 or most != 1
        assert ("All 1 turns are used up." in solve.feedback) == (most == 1)
