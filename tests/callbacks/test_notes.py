"""A user hears of answers that are cut off and of rewards that never differ, once, and only where it is so."""

import io

import pytest
import torch

from cod_lightning.callbacks import Notes, WeightSync
from tests.small_fit import small_fit
from tests.stubs import WordWorld


class Equal(WordWorld):
    """Every answer earns the same."""

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 0.0, terminated, truncated, info


def noted(folder, world, max_new_tokens, capsys, notes=None, rollouts=3):
    """The notes of a training of so many rollouts."""
    sizes = {"updates_per_rollout": 1, "rollouts_per_epoch": rollouts, "max_new_tokens": max_new_tokens}
    small_fit(folder, WeightSync(self_test=None), notes or Notes(), world=world, lr=1e-4, **sizes)
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]


def test_turns_cut_at_one_token_are_noted_once_with_the_key_and_its_remedy(tmp_path, capsys):
    (cut,) = noted(tmp_path, WordWorld(), 1, capsys)
    assert cut.startswith("note: truncated answers: 100% of late solve episodes end at data.max_new_tokens")
    assert "Raise data.max_new_tokens" in cut


@pytest.mark.slow
def test_rewards_that_are_equal_are_noted_once_from_the_third_rollout_on_also_over_a_resume(tmp_path, capsys):
    assert not noted(tmp_path, Equal(max_turns=1), 16, capsys, rollouts=2)
    seen, again = Notes(), Notes()
    *_, equal = noted(tmp_path, Equal(max_turns=1), 16, capsys, seen)
    assert equal.startswith("note: dead groups: in 100% of the late packs all siblings do equally well")
    torch.save(seen.state_dict(), kept := io.BytesIO())
    kept.seek(0)
    again.load_state_dict(torch.load(kept, weights_only=True))  # as checkpoints are read
    assert not noted(tmp_path, Equal(max_turns=1), 16, capsys, again)
