"""Lifecycles with contexts from outside."""

from cod_lightning.contexts.base import Scripted, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.types import EntryEventKind, EpisodeKind, EpisodeStatus, Split
from tests.asked import shown
from tests.evaluation.echoes import MECHANISM, Echo
from tests.word_play import first_packs, scripted

WORLD = Levers()
PACKS = first_packs(WORLD, 2, 3, Split.TEST)


def given(contexts, policy=None):
    states = [[None if c is None else beside(MECHANISM, Scripted).adopt(c) for c in row] for row in contexts]
    program = Controlled(contexts={pack.id: row for pack, row in zip(PACKS, states, strict=True)})
    return scripted(WORLD, MECHANISM, policy or Echo(), num_packs=2, split=Split.TEST, program=program)


def test_each_position_shows_its_own_context_and_no_update_is_asked_for() -> None:
    groups = given([["", "a b", "c d"], ["e f", "", "g h"]])
    for group, contexts in zip(groups, [["", "a b", "c d"], ["e f", "", "g h"]], strict=True):
        (life,) = group.lifecycles
        assert [s.turns[0].response for s in life.solves] == [shown(MECHANISM, WORLD.rules, c) for c in contexts]
        assert [s.context_before for s in life.solves] == contexts
        held = [[e.text for e in s.entries if e.kind is EntryEventKind.HELD] for s in life.solves]
        assert held == [[context] if context else [] for context in contexts]
        assert [(e.kind, e.position) for e in life.episodes] == [
            (EpisodeKind.SOLVE, 0), (EpisodeKind.UPDATE, 0), (EpisodeKind.SOLVE, 1), (EpisodeKind.UPDATE, 1),
            (EpisodeKind.SOLVE, 2),
        ]  # fmt: skip
        assert all(u.status is EpisodeStatus.SKIPPED and not u.turns for u in life.updates)


def test_a_task_without_a_known_context_is_missing_and_the_next_goes_on() -> None:
    (life,) = given([["", None, "c d"], ["", "", ""]])[0].lifecycles
    assert [s.reward is None for s in life.solves] == [False, True, False]
    assert life.solves[1].status is EpisodeStatus.SKIPPED


def test_the_noise_is_that_of_the_same_episode_in_an_ordinary_lifecycle() -> None:
    class Noisy(Echo):
        def act(self, messages, rng):
            return f"{rng.random()}"

    ordinary = scripted(WORLD, MECHANISM, Noisy(), num_packs=2, split=Split.TEST)
    replayed = given([[s.context_before for s in g.lifecycles[0].solves] for g in ordinary], policy=Noisy())
    for one, other in zip(ordinary, replayed, strict=True):
        assert [s.turns for s in one.lifecycles[0].solves] == [s.turns for s in other.lifecycles[0].solves]
