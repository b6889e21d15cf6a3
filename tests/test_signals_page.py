"""The page on further signals: made of its numbers alone, and what it says of judges."""

import json

import pytest

from examples.studies.signals import ARMS, RESULTS, agreement, page
from tests.cases import each

KEPT = json.loads((RESULTS / "signals.json").read_text())
RUNS, PROPOSALS = KEPT["runs"], KEPT.get("proposals", {})


def test_the_page_is_what_its_numbers_make_in_whatever_order_they_come():
    text = (RESULTS / "signals.md").read_text()
    assert page(RUNS, PROPOSALS) == text
    assert page(dict(reversed(RUNS.items())), PROPOSALS) == text


def test_a_learned_reward_is_compared_with_the_half_that_it_completes():
    less = [RUNS["half learned"][seed]["final"] - RUNS["reward on half of the tasks"][seed]["final"] for seed in "123"]
    assert f"final {sum(less) / 3:+.3f} [" in page(RUNS, PROPOSALS)


SOLVED, SCORES = (True, True, False, None), (0.5, 0.2, 0.4, 0.9)
"""Of four siblings at one task."""


@each(
    ("arm", "expected"),
    [("judge, 10 % wrong", 2 / 3), ("pairwise judge, 10 % wrong", 1 / 2)],  # the first and the third; one of two pairs
)
def test_agreement_is_counted_in_tasks_for_a_judge_and_in_pairs_with_one_solved_for_one_that_compares(
    arm, expected, tmp_path
):
    assert arm in ARMS
    folder = tmp_path / arm.replace(" ", "_")
    (folder / "lifecycles").mkdir(parents=True)

    def lines(scores):
        for k, (success, score) in enumerate(zip(SOLVED, scores, strict=True)):
            parts = {"judge": score} if score is not None else {}
            solve = {"kind": "solve", "position": 0, "success": success, "parts": parts}
            update = {"kind": "update", "position": 0, "success": True}
            life = {"step": 0, "pack": {"id": "p"}, "sibling": k, "episodes": [solve, update]}
            yield json.dumps(life) + "\n"

    transcript = folder / "lifecycles" / "train.jsonl"
    transcript.write_text("".join([*lines((0.0,) * 4), *lines(SCORES)]))  # played twice: the second time counts
    assert agreement(folder) == {"agreement": pytest.approx(expected)}
    transcript.write_text("".join(lines((None,) * 4)))
    assert agreement(folder) == {}
