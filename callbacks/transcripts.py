"""Keeps what was played: lifecycles as JSON lines, to be read, or replayed into the same advantages."""

import random
from collections.abc import Sequence
from typing import Any

import lightning as L

from callbacks.policy_logprobs import LogprobWriter
from callbacks.runner import RolloutCallback, lifecycles_file
from cod_lightning.errors import ConfigError
from cod_lightning.rollout import transcript
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Group

_REPLACED = ("test", "predict")
"""Rollouts whose files the next pass replaces, even with a checkpoint."""


class Transcripts(RolloutCallback):
    """Writes `lifecycles/LABEL.jsonl` under the run's folder: train, validation, predict, test_SUITE_CONDITION.

    Whole groups, since siblings are each other's baseline. A new run begins each file anew; a resumed one goes on with
    those of training and validation, so that steps after its checkpoint occur twice. Of training every rank above 0
    writes what it played to `train.rankR.jsonl`; the other files hold what all ranks played. Beside `train.jsonl`, which
    holds the sampler's log-probs, `train_logprobs.jsonl` gets the policy's, from the update that trains on them.

    Args:
        train_per_rollout: Groups kept of each training rollout and rank, drawn at random.
        test_packs: Groups kept of each condition of each suite, the first ones.
    """

    def __init__(self, train_per_rollout: int = 4, test_packs: int = 64) -> None:
        for key, value in {"train_per_rollout": train_per_rollout, "test_packs": test_packs}.items():
            if value < 0:
                raise ConfigError(f"Transcripts.{key}", value, "at least 0", "0 keeps none.")
        self.train_per_rollout, self.test_packs = train_per_rollout, test_packs
        self._begun: set[str] = set()
        """Labels whose file this object has written to."""
        self._logprobs: LogprobWriter | None = None
        """Of the latest training of a module that tells of its rows."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit" and self.train_per_rollout and hasattr(pl_module, "row_listeners"):
            self._logprobs = LogprobWriter(trainer)
            pl_module.row_listeners.append(self._logprobs)  # pyright: ignore

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._logprobs is not None:
            self._logprobs.begin()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().teardown(trainer, pl_module, stage)
        listeners: list[Any] = getattr(pl_module, "row_listeners", [])
        if self._logprobs in listeners:
            listeners.remove(self._logprobs)
        if stage in _REPLACED:  # the next pass replaces its own files
            self._begun = {label for label in self._begun if not label.startswith(stage)}

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        step = self._trainer.global_step
        kept = self._kept(label, step, groups)
        if self._trainer.sanity_checking or not kept:
            return
        resumed = self._trainer.ckpt_path is not None and not label.startswith(_REPLACED)
        path = lifecycles_file(self._trainer, label, "jsonl")
        transcript.write(path, kept, step=step, append=resumed or label in self._begun)
        self._begun.add(label)
        if label == "train" and self._logprobs is not None:
            self._logprobs.follow(step, [group.pack.id for group in kept])

    def state_dict(self) -> dict[str, Any]:
        return {"followed": {} if self._logprobs is None else dict(self._logprobs.followed)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._logprobs is not None:
            self._logprobs.followed = dict(state_dict["followed"])

    def _kept(self, label: str, step: int, groups: Sequence[Group]) -> Sequence[Group]:
        if label == "train":
            rng = random.Random(derive_seed("transcripts", step))
            chosen = rng.sample(range(len(groups)), min(self.train_per_rollout, len(groups)))
            return [groups[index] for index in sorted(chosen)]
        return groups[: self.test_packs] if label.startswith("test") else groups
