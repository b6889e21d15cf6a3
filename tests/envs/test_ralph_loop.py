"""The Ralph loop."""

from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.types import Split
from tests.envs.cases import WORLDS, every_world
from tests.envs.scripted_life import live


@every_world
def test_a_pack_is_one_task_again_and_again(name):
    inner = WORLDS[name].make()
    env = RalphLoop(inner)
    pack = env.sample_pack(split=Split.TEST, index=2, num_tasks=5)
    first = inner.sample_pack(split=Split.TEST, index=2, num_tasks=1).tasks[0]
    assert [task.spec for task in pack.tasks] == [first.spec] * 5
    assert {task.seed for task in pack.tasks} == {first.seed}
    assert [task.id for task in pack.tasks] == ["0", "1", "2", "3", "4"]
    assert pack.id.startswith(env.name)
    lives = live(env, pack, beside(env, Players).reference(Reference.SCRIPTED, pack), WORLDS[name].protocol)
    assert len(lives) == 5


def test_later_attempts_go_better():
    env = RalphLoop(WORLDS["levers-compact"].make())
    firsts, lasts = [], []
    for index in range(60):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        lives = live(env, pack, beside(env, Players).reference(Reference.SCRIPTED, pack), "compact", seed=index)
        firsts.append(lives[0].success)
        lasts.append(lives[-1].success)
    assert sum(lasts) == 60 > sum(firsts) + 15


def test_later_attempts_count_as_repeats():
    pack = RalphLoop(WORLDS["levers-compact"].make()).sample_pack(split=Split.TEST, index=2, num_tasks=3)
    assert [task.repeat for task in pack.tasks] == [False, True, True]
