"""Keeps what was played: lifecycles as JSON lines, to be read, or replayed into the same advantages.

Beside those of training stands what the training forward gave their tokens.
"""

import logging
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor

from cod_lightning.callbacks.runner import RolloutCallback, lifecycles_file
from cod_lightning.engines.base import digest
from cod_lightning.errors import FAULT_LOG
from cod_lightning.files import without_link
from cod_lightning.markdown import visible
from cod_lightning.objective.batch import Batch
from cod_lightning.ranges import Natural
from cod_lightning.ranks import gathered
from cod_lightning.rollout import policy_logprobs, transcript
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Group

_MOST_TRACEBACKS, _LONGEST_TRACEBACK = 100, 20_000
_DIGITS = 7
"""Of a log-prob behind the point; float32 holds no more of one below -1."""
_TEST_PACKS = 64
"""Groups kept of each condition of each suite, the first ones."""


class Transcripts(RolloutCallback):
    """Writes `lifecycles/LABEL.jsonl` under the run's folder: train, validation, test_SUITE_CONDITION.

    Whole groups, since siblings are each other's baseline. A new run begins each file anew; a resumed one goes on with
    those of training and validation, so that steps after its checkpoint occur twice. Of training every rank above 0
    writes what it played to `train.rankR.jsonl`; the other files hold what all ranks played. Beside `train.jsonl`, which
    holds the sampler's log-probs, `train_logprobs.jsonl` gets the policy's, from the update that trains on them.

    Args:
        train_per_rollout: Groups kept of each training rollout and rank, drawn at random.
    """

    def __init__(self, train_per_rollout: Natural = 4) -> None:
        self.train_per_rollout = train_per_rollout
        self._begun: set[str] = set()
        """Labels whose file this object has written to."""
        self._logprobs: LogprobWriter | None = None
        """Of the latest training of a module that has row listeners."""
        self._loaded = 0
        """Updates of the checkpoint that is played; Lightning restores the trainer's own count in `fit` alone."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._faults = FaultFile(lifecycles_file(trainer, "faults", "log"))
        FAULT_LOG.addHandler(self._faults)
        if stage == "fit" and not trainer.global_step:  # a new run, though this object may have seen another
            self._begun, self._loaded = set(), 0
        if stage == "fit" and self.train_per_rollout and hasattr(pl_module, "row_listeners"):
            self._logprobs = LogprobWriter(trainer)
            pl_module.row_listeners.append(self._logprobs)  # pyright: ignore

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._logprobs is not None:
            self._logprobs.begin()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._logprobs is not None:
            self._logprobs.update = batch

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._loaded = checkpoint["global_step"]

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().teardown(trainer, pl_module, stage)
        FAULT_LOG.removeHandler(self._faults)
        if self._faults.num_faults:
            print(f"{self._faults.num_faults:,} faults; tracebacks: {self._faults.path}", file=sys.stderr)
        if stage == "fit" and self._logprobs is not None:
            pl_module.row_listeners.remove(self._logprobs)  # pyright: ignore
        if stage == "test":  # the next pass replaces its own files
            self._begun = {label for label in self._begun if not label.startswith("test")}

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        step = max(self._trainer.global_step, self._loaded)
        kept = self._kept(label, step, groups)
        if self._trainer.sanity_checking or not kept:
            return
        resumed = self._trainer.ckpt_path is not None and not label.startswith("test")
        path = lifecycles_file(self._trainer, label, "jsonl")
        transcript.write(path, kept, step=step, append=resumed or label in self._begun)
        self._begun.add(label)
        if label == "train" and self._logprobs is not None:
            self._logprobs.follow(step, [group.pack.id for group in kept])

    def state_dict(self) -> dict[str, Any]:
        """What is followed on any rank: a checkpoint keeps the state of the first one."""
        own = {} if self._logprobs is None else self._logprobs.followed
        return {"followed": {pack: step for followed in gathered(own) for pack, step in followed.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._logprobs is not None:
            self._logprobs.followed = dict(state_dict["followed"])

    def _kept(self, label: str, step: int, groups: Sequence[Group]) -> Sequence[Group]:
        if label == "train":
            rng = random.Random(derive_seed("transcripts", step))
            chosen = rng.sample(range(len(groups)), min(self.train_per_rollout, len(groups)))
            return [groups[index] for index in sorted(chosen)]
        return groups[:_TEST_PACKS] if label.startswith("test") else groups


class FaultFile(logging.Handler):
    """The first tracebacks of what cost lifecycles, in one file of bounded size.

    Args:
        path: The file; there is none until something fails. What it holds already stays.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.num_faults = path, 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, without control characters."""
        self.num_faults += 1
        if self.num_faults > _MOST_TRACEBACKS:
            return
        text = visible(logging.Formatter("%(message)s").format(record)[:_LONGEST_TRACEBACK])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with without_link(self.path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n\n")


class LogprobWriter:
    """Writes a line for each episode of the followed packs, as soon as an update trains on it.

    It listens to the module's own forward passes and copies the rows of followed packs only: no pass is added, and nothing is
    kept. Episodes whose rows an update leaves out, those of zero advantage, have no line, nor have attempts beside a
    lifecycle or replayed episodes.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self.followed: dict[str, int] = {}
        """Pack -> step of its rollout, the latest one."""
        self.update: Batch | None = None
        """All rows of the update that is under way."""

    def begin(self) -> None:
        """When a training starts: leave no line of an earlier run. Of an update that is done again, the later line counts."""
        if self._trainer.ckpt_path is None:
            self._path.unlink(missing_ok=True)
        elif self._path.exists():
            self._append([""])  # ends a line that was torn

    def follow(self, step: int, packs: Iterable[str]) -> None:
        """Write down what becomes of these packs, played at this step; earlier rollouts have been trained on by now."""
        earlier = {pack: at for pack, at in self.followed.items() if at == step}
        self.followed = earlier | dict.fromkeys(packs, step)
        self._append([])

    def __call__(self, rows: Batch, logprobs: Tensor) -> None:
        """The rows of a micro-batch. Rows of one episode come together, in the order of their turns."""
        own = (~rows.is_attempt & ~rows.is_replayed).nonzero().flatten().tolist() if self.followed else []
        packs = rows.place[:, 0].tolist()
        if places := [place for place in own if rows.pack_ids.get(packs[place]) in self.followed]:
            self._append(map(policy_logprobs.dump, self._records(rows, logprobs, places)))

    def _records(self, rows: Batch, logprobs: Tensor, places: list[int]) -> Iterator[PolicyLogprobs]:
        assert self.update is not None, "rows of no update"
        num_tokens = self.update.action_mask.sum(dim=1)
        for (number, g, k, e), (ids, values, advantages) in _episodes(rows, logprobs, places).items():
            # else the update needs some of its rows only
            if len(ids) == int(num_tokens[self.update.episode == number].sum()):
                step = self.followed[rows.pack_ids[g]]
                yield PolicyLogprobs(
                    step=step,
                    pack=rows.pack_ids[g],
                    sibling=k,
                    episode=e,
                    updates=self._trainer.global_step - step,
                    digest=digest(ids),
                    advantage=round(sum(advantages) / len(advantages), 6),
                    logprobs=[round(value, _DIGITS) for value in values],
                )

    def _append(self, lines: Iterable[str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with without_link(self._path).open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))

    @property
    def _path(self) -> Path:
        return lifecycles_file(self._trainer, policy_logprobs.NAME, "jsonl")


def _episodes(
    rows: Batch, logprobs: Tensor, places: list[int]
) -> dict[tuple[int, int, int, int], tuple[list[int], list[float], list[float]]]:
    """Action ids, their log-probs and advantages by number and (g, k, e) of the episode."""
    mask, found = rows.action_mask[places], {}
    counts = mask.sum(dim=1).tolist()
    known = (rows.token_ids, logprobs, rows.token_advantages)
    kinds = (of[places][mask].cpu().split(counts) for of in known)
    index = torch.column_stack([rows.episode, rows.place])[places].tolist()
    for key, *its in zip(index, *kinds, strict=True):
        for own, more in zip(found.setdefault(tuple(key), ([], [], [])), its, strict=True):
            own.extend(more.tolist())
    return found
