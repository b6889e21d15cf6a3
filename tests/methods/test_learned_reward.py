"""A reward that is known for some tasks, and what a model of trajectories makes of the others."""

import asyncio
import random

import numpy as np
import pytest

from cod_lightning.errors import ConfigError
from cod_lightning.methods.learned_reward import PartlyKnown, fitted, probability
from cod_lightning.rollout import transcript
from cod_lightning.types import EpisodeStatus, Group, Lifecycle, Pack, Split, Task
from tests import records

COLOURS = ("red", "green", "blue")


def episode(want, got, *, success=None, status=EpisodeStatus.COMPLETED):
    turn = records.turn("try it", (-1.0,), observation=f"want={want}")
    solved = want == got if success is None else success
    own = {"reward": 0.9 * solved, "success": solved, "feedback": f"1={got}"}
    return records.episode(status=status, turns=(turn,), **own)


def drawn(number, seed=0):
    """Tasks whose outcome is a matter of two words together, neither of which says anything alone."""
    rng = random.Random(seed)
    return [
        (Task(id=str(n), seed=rng.getrandbits(40), spec={}), episode(rng.choice(COLOURS), rng.choice(COLOURS)))
        for n in range(number)
    ]


def written(folder, played):
    groups = [
        Group(
            pack=Pack(id=f"p/{n}", split=Split.TRAIN, world_seed=n, tasks=(task,)),
            lifecycles=(Lifecycle(pack_id=f"p/{n}", sibling=0, episodes=(one,)),),
        )
        for n, (task, one) in enumerate(played)
    ]
    transcript.write(folder / "train.jsonl", groups, append=False)
    return str(folder / "train.jsonl")


def scores(part, played):
    return [asyncio.run(part(one, task)) for task, one in played]


def test_half_of_the_tasks_keep_the_environment_s_reward_and_the_others_have_none():
    part, played = PartlyKnown(0.5), drawn(1000)
    known = [part.is_known(task) for task, _ in played]
    assert sum(known) / len(known) == pytest.approx(0.5, abs=0.05)
    for score, is_known, (_, one) in zip(scores(part, played), known, played, strict=True):
        assert score == (one.reward if is_known else 0.0)
    assert part.report() == ""


def test_the_model_learns_from_known_outcomes_alone_what_the_others_are_worth(tmp_path):
    part = PartlyKnown(0.5, written(tmp_path, drawn(300)))
    played = drawn(200, seed=1)
    unknown = [(task, one) for task, one in played if not part.is_known(task)]
    found = scores(part, unknown)
    assert all((score > 0.5) == one.success for score, (_, one) in zip(found, unknown, strict=True))
    assert part.report().startswith(f"learned reward: agreed with the environment on {len(unknown)} of {len(unknown)}")
    inverted = [
        (task, one if part.is_known(task) else episode("red", "red", success=False)) for task, one in drawn(300)
    ]
    same = PartlyKnown(0.5, written(tmp_path, inverted))
    assert scores(same, unknown) == found, "outcomes of tasks that are not known were looked at"


def test_what_does_not_parse_is_worth_nothing_and_twice_the_same_is_fitted(tmp_path):
    path = written(tmp_path, drawn(300))
    one, other = PartlyKnown(0.5, path), PartlyKnown(0.5, path)
    unknown = next(task for task, _ in drawn(50) if not one.is_known(task))
    assert asyncio.run(one(episode("red", "red", status=EpisodeStatus.MALFORMED), unknown)) == 0.0
    assert asyncio.run(one(episode("red", "red"), unknown)) == asyncio.run(other(episode("red", "red"), unknown)) > 0.9


def test_transcripts_that_are_not_there_or_without_both_outcomes_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"transcripts is nowhere\.jsonl"):
        PartlyKnown(transcripts="nowhere.jsonl").check()
    elsewhere = records.episode(position=7)
    path = written(tmp_path, [(task, elsewhere) for task, _ in drawn(1)])
    with pytest.raises(ConfigError, match=r"expected lifecycles/train\.jsonl of a run \(tuple index out of range"):
        PartlyKnown(0.5, path).check()
    path = written(tmp_path, [(task, episode("red", "red")) for task, _ in drawn(20)])
    with pytest.raises(ConfigError, match="known tasks were solved"):
        PartlyKnown(0.5, path).check()


def test_half_of_a_surrogate_pair_in_a_transcript_is_a_letter_as_others_are(tmp_path):
    played = [
        (task, episode("red \ud800", "red" if n % 2 else "blue", success=bool(n % 2)))
        for n, (task, _) in enumerate(drawn(20))
    ]
    PartlyKnown(0.5, written(tmp_path, played)).check()


def test_the_fit_is_the_loop_of_its_definition_over_rows_of_several_lengths():
    """AdaGrad on the logistic loss, each row's features weighted by 1 over the root of their number."""
    rows, outcomes = [[0, 1, 2, 3], [1], [2, 3], [0, 3, 5, 7, 9, 11, 13, 15, 17]], np.array([1.0, 0.0, 1.0, 0.0])
    weights, squares = np.zeros(20), np.full(20, 1e-8)
    for _ in range(300):
        gradient = np.zeros(20)
        for row, outcome in zip(rows, outcomes, strict=True):
            value = 1 / np.sqrt(len(row))
            wrong = 1 / (1 + np.exp(-sum(weights[f] * value for f in row))) - outcome
            for feature in row:
                gradient[feature] += wrong * value / len(rows)
        squares += gradient**2
        weights -= 0.5 * gradient / np.sqrt(squares)
    np.testing.assert_allclose(fitted(rows, outcomes)[:20], weights, atol=1e-9)
    for row in rows:
        total = sum(weights[f] for f in row) / np.sqrt(len(row))
        assert probability(fitted(rows, outcomes), row) == pytest.approx(1 / (1 + np.exp(-total)))
