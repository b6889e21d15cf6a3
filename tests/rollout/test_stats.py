"""What a rollout cost, as it is logged."""

from types import SimpleNamespace
from typing import Any

import pytest

from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.rollout.stats import RolloutStats
from tests.records import group

ROLLOUT = [group("p", [[True, None], [True, True]]), group("q", [[False, True], [True, True]])]


def engine(**counts: Any) -> Any:
    none = {"num_prompt_tokens": 0, "num_cached_tokens": 0, "num_interrupted_turns": 0, "in_flight": False}
    return SimpleNamespace(**none | counts)


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
    assert not {"rollout/cached_share", "rollout/num_interrupted_turns"} & set(figures)


def test_replacements_add_to_the_rollout_that_they_are_of():
    first, second = (RolloutStats.of(ROLLOUT[:1], 1.0, 0), RolloutStats.of(ROLLOUT[1:], 3.0, 2, replacing=True))
    figures = (first + second).figures(in_flight=True)
    assert (figures["time/rollout_s"], figures["rollout/token_drift"]) == (4.0, 2)
    assert figures["train/resampled_packs"] == 1.0
    assert figures["rollout/num_interrupted_turns"] == 0


def test_an_engine_that_counts_what_it_had_of_prompts_is_logged_with_the_share_of_that_rollout():
    own = engine(num_prompt_tokens=1000, num_cached_tokens=10)
    runner = RolloutRunner(own)

    def play():
        own.num_prompt_tokens += 200
        own.num_cached_tokens += 150
        return ROLLOUT

    assert runner.timed("train", play).stats.figures(in_flight=False)["rollout/cached_share"] == 0.75


def test_pass_at_k_is_the_share_of_tasks_that_any_sibling_solved_and_needs_them_all():
    figures = RolloutStats.of(ROLLOUT, 1.0, 0).figures(in_flight=False)
    assert figures["train/pass_at/1"] == pytest.approx(6 / 7), "p: 3 of 3 known, q: 3 of 4"
    assert figures["train/pass_at/2"] == pytest.approx(3 / 3), "the second task of p is missing in one"
    alone = RolloutStats.of([group("r", [[True, False]])], 1.0, 0).figures(in_flight=False)
    assert {name for name in alone if "pass_at" in name} == {"train/pass_at/1"}
    halves = [RolloutStats.of([group("s", [[False], [s]])], 1.0, 0) for s in (True, False)]
    assert (halves[0] + halves[1]).figures(in_flight=False)["train/pass_at/2"] == 0.5
