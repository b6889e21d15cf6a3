"""The Ralph loop."""

from cod_lightning.envs.base import Reference
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.types import Split
from tests.cases import each
from tests.envs.cases import WORLDS
from tests.envs.scripted_life import by_position, live


@each("name", ["levers-compact", "grid-natural", "apps-code"])
def test_a_pack_is_one_task_again_and_again_whose_later_attempts_are_repeats(name):
    inner = WORLDS[name].make()
    env = RalphLoop(inner)
    pack = env.sample_pack(split=Split.TEST, index=2, num_tasks=5)
    first = inner.sample_pack(split=Split.TEST, index=2, num_tasks=1).tasks[0]
    assert [(task.id, task.spec, task.seed, task.repeat) for task in pack.tasks] == [
        (str(n), first.spec, first.seed, n > 0) for n in range(5)
    ]
    assert pack.id.startswith(env.name)
    assert len(live(env, pack, Reference.SCRIPTED)) == 5


def test_later_attempts_go_better():
    first, *_, last = by_position(RalphLoop(WORLDS["levers-compact"].make()), Reference.SCRIPTED, 60)
    assert last == 1 > first + 0.25
