"""References of the grid: their order, their optimum, their notes."""

import random

import numpy as np
import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Reference
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.grid.rook import best_route
from cod_lightning.types import Message, Role, Split
from tests.asked import shown
from tests.cases import each
from tests.envs.cases import WORLDS
from tests.envs.grid.cases import COMPACT
from tests.envs.scripted_life import live, player


def rewards(make, kind: Reference, num_packs: int) -> np.ndarray:
    """Of every task, shape [packs 4]; each life with a world of its own."""
    table = []
    for index in range(num_packs):
        env = make()
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        lives = live(env, pack, kind, index)
        assert all(lived.success for lived in lives), "references always end on the target"
        table.append([lived.reward for lived in lives])
    return np.array(table)


def optima(make, num_packs: int) -> np.ndarray:
    """Known-map optimum of the same tasks."""
    env = make()
    packs = [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4) for index in range(num_packs)]
    specs = [[task.spec for task in pack.tasks] for pack in packs]
    routes = [[best_route(np.array(s.costs, dtype=np.int64), s.start, s.goal, s.rounds) for s in row] for row in specs]
    return np.array([[1 - route.total / route.count / 100 for route in row] for row in routes])


@pytest.mark.parametrize(
    "name",
    [
        "grid-compact",
        *(pytest.param(f"grid-{one}", marks=pytest.mark.slow) for one in ("natural", "hard", "compact-near")),
    ],
)
def test_the_oracle_reaches_the_optimum_and_nobody_exceeds_it(name):
    make = WORLDS[name].make
    best = optima(make, 12)
    assert rewards(make, Reference.ORACLE, 12) == pytest.approx(best)
    for kind in (Reference.RANDOM, Reference.SCRIPTED):
        assert (rewards(make, kind, 12) <= best + 1e-9).all()


def _dialogue(env: GridNavigation, context: str) -> list[Message]:
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    observation, _ = env.reset(options={"task": pack.tasks[0]})
    mechanism = HintContext(env.parameters.protocol)
    return [Message(Role.SYSTEM, shown(mechanism, env.rules, context)), Message(Role.USER, observation)]


def test_a_context_that_what_is_seen_contradicts_is_dropped_as_a_whole():
    env = GridNavigation(**COMPACT)
    policy = player(env, env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1), Reference.SCRIPTED)
    asked = [
        Message(Role.SYSTEM, "update row0=0 row1=50 row2=? row3=?"),
        Message(Role.USER, "goal loss=1 row1=50 row2=99"),
    ]
    assert policy.note(asked, random.Random(0)) == "row0=0 row1=50 row2=99 row3=?"
    asked[1] = Message(Role.USER, "goal loss=1 row1=99 row2=99")
    assert policy.note(asked, random.Random(0)) == "row0=? row1=99 row2=99 row3=?"


@each("junk", ["", "Known costs:\n  0 1\n0 ? 7\n1 3 ?", "Known costs:\nnone", "row9=50 (7,7)=5"])
@each("name", ["grid-natural", "grid-compact"])
def test_a_context_of_another_world_does_no_harm(name, junk):
    env = WORLDS[name].make()
    policy = player(env, env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1), Reference.SCRIPTED)
    assert not env.step(policy.act(_dialogue(env, junk), random.Random(0)))[2]


def test_random_routes_and_optima_are_near_the_references_figures():
    """0.70 and 0.935 on 27B training maps, in the reference's own sample of 120 tasks."""
    assert rewards(GridNavigation, Reference.RANDOM, 30).mean() == pytest.approx(0.715, abs=0.045)
    assert optima(GridNavigation, 30).mean() == pytest.approx(0.93, abs=0.025)
