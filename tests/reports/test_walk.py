"""The way across a lake, reconstructed from responses."""

from cod_lightning.contexts.hint import HintContext
from cod_lightning.envs.base import Reference
from cod_lightning.envs.frozen_lake.world import FrozenLakeObscure
from cod_lightning.evaluation.references import play_reference
from cod_lightning.reports.records import lake_of, path_of
from cod_lightning.rollout import transcript
from cod_lightning.types import Group, Split
from tests.cases import each

SPEC = {"rows": ["SFF", "HFF", "FFG"], "mapping": ["right", "down", "left", "up"]}


def _go(*codes: int) -> list[str]:
    return [f"so <answer>Direction {code}</answer>" for code in codes]


def test_a_path_follows_the_mapping_stays_at_the_edge_and_ends_in_a_hole_or_on_the_goal():
    assert path_of(lake_of(SPEC) or {}, _go(4, 1, 2)) == [(0, 0), (0, 0), (0, 1), (1, 1)]
    assert path_of(lake_of(SPEC) or {}, _go(2, 1, 1)) == [(0, 0), (1, 0)]
    assert path_of(lake_of(SPEC) or {}, _go(1, 1, 2, 2, 3))[-1] == (2, 2)
    assert path_of(lake_of(SPEC) or {}, ["?", *_go(1)]) == [(0, 0), (0, 1)]


@each(
    "spec",
    [
        None, [], {"goal": "red"}, {"rows": ["SG"], "mapping": ["up"]}, SPEC | {"rows": ["SFF", "HF", "FFG"]},
        SPEC | {"mapping": ["up", "up", "up", "north"]}, SPEC | {"rows": ["FFF", "HFF", "FFG"]}, SPEC | {"rows": [1, 2, 3]},
    ],
)  # fmt: skip
def test_what_is_no_lake_is_told_from_one(spec):
    assert lake_of(spec) is None


@each("protocol", ["compact", "natural"])
def test_played_lakes_end_where_the_world_says_they_did(protocol):
    world = FrozenLakeObscure(protocol=protocol)
    packs = [world.sample_pack(split=Split.TEST, index=index, num_tasks=2) for index in range(6)]
    mechanism = HintContext(protocol, response_limit=None)
    lives = play_reference(world, packs, Reference.RANDOM, mechanism)
    for pack, life in zip(packs, lives, strict=True):
        (read,) = transcript.load(transcript.dump(Group(pack=pack, lifecycles=(life,))))
        for task, solve in zip(read.pack.tasks, life.solves, strict=True):
            lake = lake_of(task.spec)
            assert lake is not None
            row, column = path_of(lake, [turn.response for turn in solve.turns])[-1]
            assert (lake["rows"][row][column] == "G") == solve.success
