"""What a training shows and a user should know before hours pass: notes, and how far engine and training are apart."""

import math
import sys
import warnings
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from cod_lightning.callbacks.runner import RolloutCallback
from cod_lightning.errors import EngineMismatch
from cod_lightning.ranges import Positive
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import Group

_PATIENCE = 3
_SYNCS_IN_A_ROW = 3
"""With too large a divergence, after which a run ends."""


class Notes(RolloutCallback):
    """Prints on standard error, once each, what `doctor` would say of the latest three rollouts: truncated answers and dead groups.

    It looks at the groups that rank 0 plays for training.
    """

    def __init__(self) -> None:
        self.noted: list[str] = []
        self._rollouts: dict[int, list[PlayedGroup]] = {}
        """The latest, by the updates before: what was played in place of other packs belongs to the same one."""

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        if label != "train" or not self._trainer.is_global_zero:
            return
        step = self._trainer.global_step
        self._rollouts.setdefault(step, []).extend(PlayedGroup(step, group) for group in groups)
        for earlier in [*self._rollouts][:-_PATIENCE]:
            del self._rollouts[earlier]
        if len(self._rollouts) < _PATIENCE:
            return
        from cod_lightning.diagnosis.causes import DeadGroups, TruncatedAnswers
        from cod_lightning.diagnosis.evidence import Evidence

        module: Any = self._trainer.lightning_module
        config = {"model": {"critic": module.critic, "scorers": module.scorers}}
        run = Evidence(
            folder=Path(self._trainer.default_root_dir), config=config, groups=[*chain(*self._rollouts.values())]
        )
        for cause in (TruncatedAnswers, DeadGroups):
            if cause.named() not in self.noted and (found := cause()(run)) is not None:
                self.noted.append(found.cause)
                print(f"note: {found.cause}: {found.seen}. {found.remedy}", file=sys.stderr)

    def state_dict(self) -> dict[str, Any]:
        return {"noted": self.noted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.noted = state_dict["noted"]


_KL = "train/mismatch_kl"


class MismatchGuard(Callback):
    """Looks at `train/mismatch_kl` (nats a token) after the first update of each sync; later ones log it again.

    The self-test of `WeightSync` looks at one fixed prompt; this looks at everything that is trained on.

    Args:
        stop_at: The run ends when so much is reached in three syncs in a row. There is a warning, once, from a tenth of it on;
            engines in bfloat16 are usually below 0.01.
    """

    def __init__(self, stop_at: Positive = 0.2) -> None:
        self.stop_at = stop_at
        self.num_in_a_row = 0
        self.warned = False
        self._is_first = False
        """Whether the update is the first of a sync."""
        self._latest = -1.0
        """What was looked at last."""

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Behind a rollout's only update the next sync may come before this callback's turn."""
        self._is_first = pl_module.updates_since_sync == 0

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (logged := trainer.callback_metrics.get(_KL)) is None or not self._is_first:
            return
        divergence = float(logged)
        if divergence == self._latest:  # an update without tokens logs the one before again
            return
        self._latest = divergence
        far = math.isnan(divergence) or divergence >= self.stop_at
        self.num_in_a_row = self.num_in_a_row + 1 if far else 0
        if self.num_in_a_row >= _SYNCS_IN_A_ROW:
            raise EngineMismatch(
                f"{_KL} is {divergence:.3g} nats a token, and was {self.stop_at:g} or more after {_SYNCS_IN_A_ROW} syncs in a row: "
                "what the engine samples from is not the policy that is trained. Let both compute in one precision "
                "(data.engine.dtype, trainer.precision), look at engine/self_test_gap, or add --model.mismatch TokenMask; "
                "to go on all the same, raise stop_at of callbacks.MismatchGuard."
            )
        if divergence >= (warn_at := self.stop_at / 10) and not self.warned:
            self.warned = True
            warnings.warn(
                f"{_KL} is {divergence:.3g} nats a token, {warn_at:g} or more: engine and training drift apart; the run "
                f"ends at {self.stop_at:g}. --model.mismatch TokenTruncate corrects for it.",
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        return {"num_in_a_row": self.num_in_a_row, "warned": self.warned}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_in_a_row, self.warned = state_dict["num_in_a_row"], state_dict["warned"]
