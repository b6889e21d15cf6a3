"""A user hears of answers that are cut off and of rewards that never differ, once, and only where it is so."""

import pytest

from callbacks import Notes, WeightSync
from callbacks.notes import _differ
from tests.records import group
from tests.small_fit import small_fit
from tests.stubs import WordWorld


class Equal(WordWorld):
    """Every answer earns the same."""

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 0.0, terminated, truncated, info


def fit(folder, world, max_new_tokens):
    sizes = {"updates_per_rollout": 1, "rollouts_per_epoch": 4, "max_new_tokens": max_new_tokens}
    small_fit(folder, WeightSync(self_test=None), Notes(), world=world, lr=1e-4, **sizes)


def notes(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]


def test_turns_cut_at_one_token_are_noted_once_with_the_key_and_its_value(tmp_path, capsys):
    fit(tmp_path, WordWorld(), 1)
    (cut,) = notes(capsys)
    assert "turns end at data.max_new_tokens=1, in the middle of an answer" in cut


def test_rewards_that_are_equal_in_three_rollouts_are_noted_once(tmp_path, capsys):
    fit(tmp_path, Equal(), 16)
    (equal,) = [note for note in notes(capsys) if "max_new_tokens" not in note]
    assert equal.startswith("note: in 3 rollouts in a row siblings had equal rewards in every task")


@pytest.mark.parametrize(
    ("siblings", "differ"),
    [
        ([[True, False], [True, False]], False),
        ([[True, False], [True, True]], True),
        ([[True, False], [None, False], [True, False]], False),  # a lost lifecycle is compared with none
        ([[True, False], [None, False]], True),
        ([[True, False]], True),
    ],
)
def test_siblings_differ_where_two_complete_ones_do(siblings, differ):
    assert _differ(group("p", siblings)) is differ
