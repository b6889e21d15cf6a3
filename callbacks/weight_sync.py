"""Keeps the engine on the policy's weights: before anything is sampled, and after the last update of every rollout."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from cod_lightning.engines.base import Engine


class WeightSync(Callback):
    """Copies the trained weights into the engine; every sync is a new policy version.

    The rollout that follows carries the version on every token. With `data.updates_per_rollout` above 1 the later updates
    of a rollout train on tokens of the version before; the next sync comes when the rollout is used up.
    """

    def __init__(self) -> None:
        self.policy_version = 0

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Whatever has been trained since; at the sanity check, the initial weights."""
        if pl_module.updates_since_sync or self._engine(trainer).policy_version != self.policy_version:
            self._sync(trainer, pl_module, new=bool(pl_module.updates_since_sync) or not self.policy_version)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The weights under test."""
        self._sync(trainer, pl_module)

    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The weights that predict."""
        self._sync(trainer, pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The initial weights, or those of a checkpoint: the version that they had, so that the noise goes on as it would have.

        Between two updates of a rollout the engine gets newer weights than it had, but samples nothing until the next sync.
        """
        if self._engine(trainer).policy_version != self.policy_version or not self.policy_version:
            unseen = pl_module.updates_since_sync
            self._sync(trainer, pl_module, new=not self.policy_version)
            pl_module.updates_since_sync = unseen

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A rollout is used up: the next one comes from the new weights."""
        if (batch_idx + 1) % trainer.datamodule.updates_per_rollout == 0:  # pyright: ignore
            self._sync(trainer, pl_module)

    def _sync(self, trainer: L.Trainer, pl_module: Any, *, new: bool = True) -> None:
        engine = self._engine(trainer)
        if engine.policy_version < 0:
            engine.bind(pl_module.model, trainer.datamodule.chat.stop_ids)  # pyright: ignore
        self.policy_version += new
        engine.update_weights(pl_module.model.state_dict().items(), self.policy_version)
        pl_module.updates_since_sync = 0

    @staticmethod
    def _engine(trainer: L.Trainer) -> Engine:
        return trainer.datamodule.engine  # pyright: ignore

    def state_dict(self) -> dict[str, Any]:
        """The policy version."""
        return {"policy_version": self.policy_version}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        self.policy_version = state_dict["policy_version"]
