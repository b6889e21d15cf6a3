"""What a training shows and a user should know before hours pass: notes, and how far engine and training are apart."""

import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from cod_lightning.callbacks.runner import RolloutCallback
from cod_lightning.errors import EngineMismatch
from cod_lightning.ranges import Count, Positive
from cod_lightning.types import EpisodeKind, Group, StopReason

_CUT = 0.5
_PATIENCE = 3


class Notes(RolloutCallback):
    """Prints a note on standard error, once for each finding, from the groups of rank 0.

    - Half of the turns or more in episodes of one kind end at `data.max_new_tokens`, so that what is trained on are beginnings of
      answers. Updates whose context was read all the same do not count.
    - In three rollouts in a row no two siblings differ in the reward of any task, and no other model teaches.
    """

    def __init__(self) -> None:
        self.num_equal = 0
        self.noted: list[str] = []

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        if label != "train" or not self._trainer.is_global_zero:
            return
        lives = [life for group in groups for life in group.lifecycles]
        for kind in EpisodeKind:
            episodes = [one for life in lives for one in life.episodes if one.kind is kind]
            stops = [turn.stop for one in episodes for turn in one.turns]
            if not stops:
                continue
            unread = [one for one in episodes if kind is not EpisodeKind.UPDATE or not one.success]
            lengths = [len(turn.action_ids) for one in unread for turn in one.turns if turn.stop is StopReason.LENGTH]
            share = len(lengths) / len(stops)
            if share >= _CUT:
                cut = (
                    f"{share:.0%} of {len(stops):,} turns of {kind} episodes end at data.max_new_tokens={max(lengths)}"
                )
                remedy = "Raise it, or, if they did not at first, lower model.lr; lifecycles/train.jsonl has what the policy says."
                self._note("cut", f"{cut}, in the middle of an answer. {remedy}")
        self.num_equal = 0 if any(map(_differ, groups)) else self.num_equal + 1
        if self.num_equal >= _PATIENCE and not self._trainer.lightning_module.scorers:
            self._note(
                "equal",
                f"in {self.num_equal} rollouts in a row siblings had equal rewards in every task, so that nothing is "
                "learnt from them: tasks are too hard or too easy for the policy. Look at lifecycles/train.jsonl; easier settings, "
                "a warm start or a larger data.group_size make them differ.",
            )

    def _note(self, finding: str, text: str) -> None:
        if finding not in self.noted:
            self.noted.append(finding)
            print(f"note: {text}", file=sys.stderr)

    def state_dict(self) -> dict[str, Any]:
        return {"num_equal": self.num_equal, "noted": self.noted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_equal, self.noted = state_dict["num_equal"], state_dict["noted"]


def _differ(group: Group) -> bool:
    """Whether any two complete siblings, or any two attempts, differ in reward; so they do where there is nothing to compare."""
    whole = [life for life in group.lifecycles if not life.failed]
    curves = {tuple(solve.reward for solve in life.solves) for life in whole}
    attempts = {attempt.episode.reward for life in whole for attempt in life.attempts}
    return len(whole) < 2 or len(curves) > 1 or len(attempts) > 1


_KL = "train/mismatch_kl"


class MismatchGuard(Callback):
    """Looks at `train/mismatch_kl` (nats a token) after each update.

    The self-test of `WeightSync` looks at one fixed prompt; this looks at everything that is trained on.

    Args:
        warn_at: A warning, once, from here on. Engines in bfloat16 are usually below 0.01.
        stop_at: The run ends when so much is reached in `patience` updates in a row.
        patience: How many.
    """

    def __init__(self, warn_at: Positive = 0.02, stop_at: Positive = 0.2, patience: Count = 3) -> None:
        self.warn_at, self.stop_at, self.patience = warn_at, stop_at, patience
        self.num_in_a_row = 0
        self.warned = False

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (logged := trainer.callback_metrics.get(_KL)) is None:
            return
        divergence = float(logged)
        far = math.isnan(divergence) or divergence >= self.stop_at
        self.num_in_a_row = self.num_in_a_row + 1 if far else 0
        if self.num_in_a_row >= self.patience:
            raise EngineMismatch(
                f"{_KL} is {divergence:.3g} nats a token, and was {self.stop_at:g} or more in {self.patience} updates in a row: "
                "what the engine samples from is not the policy that is trained. Let both compute in one precision "
                "(data.engine.dtype, trainer.precision), look at engine/self_test_gap, or add --model.mismatch TokenMask; "
                "to go on all the same, raise stop_at of callbacks.MismatchGuard."
            )
        if divergence >= self.warn_at and not self.warned:
            self.warned = True
            warnings.warn(
                f"{_KL} is {divergence:.3g} nats a token, {self.warn_at:g} or more: engine and training drift apart; the run "
                f"ends at {self.stop_at:g}. --model.mismatch TokenTruncate corrects for it.",
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        return {"num_in_a_row": self.num_in_a_row, "warned": self.warned}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_in_a_row, self.warned = state_dict["num_in_a_row"], state_dict["warned"]
