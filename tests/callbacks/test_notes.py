"""A user hears of answers that are cut off and of rewards that never differ, once, and only where it is so."""

import io
from types import SimpleNamespace

import torch

from cod_lightning.callbacks import Notes, WeightSync
from cod_lightning.callbacks.notes import _differ
from cod_lightning.types import EpisodeKind, StopReason
from tests.cases import each
from tests.records import group
from tests.small_fit import small_fit
from tests.stubs import WordWorld


class Equal(WordWorld):
    """Every answer earns the same."""

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 0.0, terminated, truncated, info


def fit(folder, world, max_new_tokens, **sizes):
    sizes |= {"updates_per_rollout": 1, "rollouts_per_epoch": 4, "max_new_tokens": max_new_tokens}
    small_fit(folder, WeightSync(self_test=None), Notes(), world=world, lr=1e-4, **sizes)


def notes(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]


def test_turns_cut_at_one_token_are_noted_once_with_the_key_and_its_value(tmp_path, capsys):
    fit(tmp_path, WordWorld(), 1)
    (cut,) = notes(capsys)
    assert "turns of solve episodes end at data.max_new_tokens=1, in the middle of an answer. Raise it" in cut


def test_rewards_that_are_equal_in_three_rollouts_are_noted_once(tmp_path, capsys):
    fit(tmp_path, Equal(), 16, packs_per_rollout=1, group_size=2)
    (equal,) = [note for note in notes(capsys) if "max_new_tokens" not in note]
    assert equal.startswith("note: in 3 rollouts in a row siblings had equal rewards in every task")


def played(notes, num_cut, num_read, num_ended):
    """Show them a rollout with so many updates that were cut off, that were cut off and read, and that ended."""
    turn = SimpleNamespace(stop=StopReason.LENGTH, action_ids=(1,) * 8)
    kinds = [(turn, False)] * num_cut + [(turn, True)] * num_read
    kinds += [(SimpleNamespace(stop=StopReason.STOP), True)] * num_ended
    updates = [SimpleNamespace(kind=EpisodeKind.UPDATE, turns=[one], success=success) for one, success in kinds]
    life = SimpleNamespace(episodes=updates, solves=(), attempts=(), failed=False)
    notes._trainer = SimpleNamespace(is_global_zero=True, lightning_module=SimpleNamespace(scorers={}))
    notes.rollout_played("train", [SimpleNamespace(lifecycles=[life])])


def test_updates_are_counted_on_their_own_and_not_those_whose_context_was_read(capsys):
    seen = Notes()
    played(seen, 1, 9, 1)
    assert not notes(capsys)
    played(seen, 0, 0, 0)
    played(Notes(), 5, 1, 4)
    (cut,) = notes(capsys)
    assert (
        "50% of 10 turns of update episodes end at data.max_new_tokens=8, in the middle of an answer. Raise it" in cut
    )


def test_what_was_noted_before_a_resume_is_not_noted_again(capsys):
    seen, again = Notes(), Notes()
    played(seen, 10, 0, 0)
    torch.save(seen.state_dict(), kept := io.BytesIO())
    kept.seek(0)
    again.load_state_dict(torch.load(kept, weights_only=True))  # as checkpoints are read
    played(again, 10, 0, 0)
    assert len(notes(capsys)) == 1


@each(
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
