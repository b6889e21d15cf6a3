"""What a rollout cost, as it is logged."""

import pytest

from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.rollout.stats import RolloutStats
from tests.records import group
from tests.stubs import FunctionEngine

ROLLOUT = [group("p", [[True, None], [True, True]]), group("q", [[False, True], [True, True]])]


def test_tokens_seconds_and_failures_of_a_rollout_are_its_own():
    figures = RolloutStats.of(ROLLOUT, 2.0, 0).figures(in_flight=False)
    tokens = 2 * sum(len(episode.turns) for g in ROLLOUT for life in g.lifecycles for episode in life.episodes)
    assert figures["time/rollout_s"] == 2.0
    assert figures["throughput/generated_tokens_s"] == pytest.approx(tokens / 2.0)
    assert (figures["rollout/token_drift"], figures["rollout/num_failed"], figures["rollout/num_lost_groups"]) == (
        0,
        1,
        1,
    )
    assert "rollout/num_interrupted_turns" not in figures


def test_replacements_add_to_the_rollout_that_they_are_of():
    first, second = (RolloutStats.of(ROLLOUT[:1], 1.0, 0), RolloutStats.of(ROLLOUT[1:], 3.0, 2, replacing=True))
    figures = (first + second).figures(in_flight=True)
    assert (figures["time/rollout_s"], figures["rollout/token_drift"]) == (4.0, 2)
    assert figures["train/resampled_packs"] == 1.0
    assert figures["rollout/num_interrupted_turns"] == 0


def test_turns_in_which_weights_changed_are_counted_by_rollout():
    engine = FunctionEngine(lambda _: ())
    engine.num_interrupted_turns = 10

    def play():
        engine.num_interrupted_turns += 3
        return ROLLOUT

    stats = RolloutRunner(engine).run("train", play).stats
    assert stats.figures(in_flight=True)["rollout/num_interrupted_turns"] == 3


def test_pass_at_k_is_the_share_of_tasks_that_any_sibling_solved_and_needs_them_all():
    figures = RolloutStats.of(ROLLOUT, 1.0, 0).figures(in_flight=False)
    assert figures["train/pass_at/1"] == pytest.approx(6 / 7), "p: 3 of 3 known, q: 3 of 4"
    assert figures["train/pass_at/2"] == pytest.approx(3 / 3), "the second task of p is missing in one"
    alone = RolloutStats.of([group("r", [[True, False]])], 1.0, 0).figures(in_flight=False)
    assert {name for name in alone if "pass_at" in name} == {"train/pass_at/1"}
    lost = RolloutStats.of([group("t", [[True], [False], [None]])], 1.0, 0).figures(in_flight=False)
    assert {name for name in lost if "pass_at" in name} == {"train/pass_at/1"}, "one of three is missing"
    halves = [RolloutStats.of([group("s", [[False], [s]])], 1.0, 0) for s in (True, False)]
    assert (halves[0] + halves[1]).figures(in_flight=False)["train/pass_at/2"] == 0.5
