"""Keeps the engine on the policy's weights: before anything is sampled, and after the last update of every rollout."""

import time
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from cod_lightning.callbacks.runner import runner_of
from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.sync_proof import Arrival, Probes
from cod_lightning.ranks import gathered, inside


class WeightSync(Callback):
    """Copies the trained weights into the engine of every rank; every sync is a new policy version.

    Sharded weights are put together tensor by tensor: an engine has to take every tensor, since all ranks take part.

    An engine that was asked to (`data.engine.sleep`) sleeps while training goes on; a sync wakes it, weights first.

    The rollout that follows carries the version on every token. With `data.updates_per_rollout` or
    `data.passes_per_rollout` above 1 the later updates of a rollout train on tokens of the version before; the next sync
    comes when the rollout is used up, with a `PriorityBuffer` when `rollouts_per_sync` of them are. One that is played ahead
    (`data.max_staleness`) is waited for first.

    Three things are proven after each sync, or the run stops: every tensor that an engine in this process holds is the one that was
    sent (`Arrival`), engine and training forward agree on log-probs (`SelfTest`), and the engine is not nearer to the weights of an
    earlier sync (`Probes`). The last two do not run while all servers of a rank are gone.

    Logs `time/sync_s` and, where those ran, `engine/self_test_gap`, the largest difference (nats) between the engine's log-probs of
    a fixed prompt's continuation and the training forward's, on any rank, and `engine/policy_moved`, how far the sync moved the
    training forward's log-probs of a fixed prompt (mean nats). All repeat until the next sync.

    Args:
        self_test: How closely engine and training have to agree; null proves nothing of all this.
    """

    def __init__(self, self_test: SelfTest | None = SelfTest()) -> None:  # noqa: B008  (frozen; the CLI's default)
        self.self_test = self_test
        self.policy_version = 0
        self._synced_at = -1
        """Updates behind that version."""
        self._restored = False
        """Whether the module may have got other weights since the last sync: a checkpoint was read, or a call of the Trainer began.
        The engine may have as new a version of another run."""
        self.last_gap: float | None = None
        self.last_moved: float | None = None
        self._arrival, self._probes = Arrival(), Probes()
        self.last_sync_s = 0.0

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """A checkpoint of weights alone has nothing for callbacks, and weights may be set by hand."""
        self._restored = self.policy_version > 0

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Whatever has been trained since; at the sanity check, the initial weights.

        Within a rollout updates go on to count from the weights that sampled it. A validation that was given up and is done again
        is of the same version.
        """
        since = pl_module.updates_since_sync
        new = not self.policy_version or (bool(since) and self._synced_at != trainer.global_step)
        if new or self._is_stale(trainer):
            self._sync(trainer, pl_module, new=new)
            pl_module.updates_since_sync = since

    def _is_stale(self, trainer: L.Trainer) -> bool:
        """Whether the engine may have other weights than those of `policy_version`."""
        return self._restored or runner_of(trainer).engine.policy_version != self.policy_version

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._sync(trainer, pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The initial weights, or those of a checkpoint: the version that they had, so that the noise goes on as it would have.

        Between two updates of a rollout the engine gets newer weights than it had, but samples nothing until the next sync.
        """
        if self._is_stale(trainer) or not self.policy_version:
            restored, logged = self.policy_version > 0, (self.last_gap, self.last_moved, self.last_sync_s)
            self._sync(trainer, pl_module, new=not restored)
            if restored:
                self.last_gap, self.last_moved, self.last_sync_s = logged

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The rollout is there; the engine may sleep until the next sync."""
        runner_of(trainer).engine.sleep()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A rollout is used up: the next one comes from the new weights, unless a buffer has more of the old ones."""
        if not batch.updates_left and not batch.rollouts_left:
            self._sync(trainer, pl_module)
        pl_module.log("time/sync_s", self.last_sync_s, on_step=True, on_epoch=False, batch_size=1)
        for name, value in {"self_test_gap": self.last_gap, "policy_moved": self.last_moved}.items():
            if value is not None:
                pl_module.log(f"engine/{name}", value, on_step=True, on_epoch=False, batch_size=1)

    def _sync(self, trainer: L.Trainer, pl_module: Any, *, new: bool = True) -> None:
        runner = runner_of(trainer)
        engine = runner.engine
        with runner.engine_at_rest("a weight sync"):
            if engine.policy_version < 0:
                engine.bind(pl_module.plain_model(), pl_module.stop_ids, pl_module.policy.window)
            self.policy_version, self._restored = self.policy_version + new, False
            begun = time.perf_counter()
            if engine.sleeps and torch.cuda.is_available():
                torch.cuda.empty_cache()  # what activations had, torch keeps; the engine takes its memory outside of torch's cache
            engine.wake("weights")
            weights = partial(pl_module.synced_weights, adapter=engine.takes_adapters)
            test = self.self_test if engine.has_weights else None
            sent = weights() if test is None else self._arrival.sending(weights(), engine)
            engine.update_weights(sent, self.policy_version)
            engine.wake("kv_cache")
            self.last_sync_s = time.perf_counter() - begun
            if new:
                pl_module.updates_since_sync, self._synced_at = 0, trainer.global_step
            self.last_gap = self.last_moved = None
            if test is None:
                return
            self._arrival.check(engine, pl_module.model, weights)
            if all(gathered(bool(engine.replicas()))):
                model, context = pl_module.model, trainer.precision_plugin.forward_context
                how: dict[str, Any] = {"window": pl_module.policy.window, "context": context, "inside": inside}
                self.last_moved = self._probes(engine, model, new=new, **how)
                self.last_gap = test(engine, model, **how).size

    def state_dict(self) -> dict[str, Any]:
        logged = {"last_gap": self.last_gap, "last_moved": self.last_moved, "last_sync_s": self.last_sync_s}
        version = {"policy_version": self.policy_version, "synced_at": self._synced_at}
        return version | {"probed": self._probes.last} | logged

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.policy_version, self._restored = state_dict["policy_version"], True
        self._synced_at = state_dict.get("synced_at", -1)  # not in checkpoints of earlier versions
        self.last_gap, self.last_sync_s = state_dict["last_gap"], state_dict["last_sync_s"]
        self.last_moved = state_dict.get("last_moved")
        self._probes.last = state_dict.get("probed")  # none in checkpoints of earlier versions
