"""A user hears of answers that are cut off and of rewards that never differ, once, and only where it is so."""

import io
from types import SimpleNamespace

import pytest
import torch

from cod_lightning.callbacks import Notes, WeightSync
from tests.records import group
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


def test_what_was_played_in_place_of_other_packs_is_no_rollout_of_its_own(capsys):
    notes, module = Notes(), SimpleNamespace(critic=None, scorers={})
    trainer = SimpleNamespace(global_step=0, is_global_zero=True, default_root_dir=".", lightning_module=module)
    notes._trainer = trainer
    said = []
    for step in (0, 0, 0, 2, 4):
        trainer.global_step = step
        notes.rollout_played("train", [group(f"p{n}", [[True, True]] * 4) for n in range(4)])
        said.append(capsys.readouterr().err.startswith("note: dead groups"))
    assert said == [False, False, False, False, True]


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
