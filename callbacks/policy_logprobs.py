"""Beside the transcripts of training: what the training forward gave their tokens."""

import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import lightning as L
from torch import Tensor

from callbacks.runner import lifecycles_file
from cod_lightning.engines.base import digest
from cod_lightning.errors import DataError
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout import policy_logprobs
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs

Key = tuple[int, int, int]
"""(g, k, e) of an episode in the credit table."""


class LogprobWriter:
    """Writes a line for each episode of the followed packs, as soon as an update trains on it.

    It listens to the module's own forward passes and copies the rows of followed packs only: no pass is added, and nothing is
    kept. Episodes whose rows an update leaves out, those of zero advantage, have no line, nor have attempts beside a
    lifecycle.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self.followed: dict[str, int] = {}
        """Pack -> step of its rollout, the latest one."""

    def begin(self) -> None:
        """When a training starts: leave no line of an earlier run, nor of updates that a resumed run will do again."""
        path, done = self._path, self._trainer.global_step
        kept = list(_lines_before(path, done)) if self._trainer.ckpt_path is not None and path.exists() else []
        if not kept:
            path.unlink(missing_ok=True)
            return
        draft = path.with_suffix(".draft")
        draft.write_bytes(b"".join(kept))
        os.replace(draft, path)

    def follow(self, step: int, packs: Iterable[str]) -> None:
        """Write down what becomes of these packs, played at this step; earlier rollouts have been trained on by now."""
        earlier = {pack: at for pack, at in self.followed.items() if at == step}
        self.followed = earlier | dict.fromkeys(packs, step)
        self._append([])

    def __call__(self, rows: Batch, logprobs: Tensor) -> None:
        """The rows of a micro-batch. Rows of one episode come together, in the order of their turns."""
        own = rows.attempt.lt(0).nonzero().flatten().tolist() if self.followed else []
        packs = rows.episode_index[:, 0].tolist()
        if places := [place for place in own if rows.pack_ids.get(packs[place]) in self.followed]:
            self._append(map(policy_logprobs.dump, self._records(rows, logprobs, places)))

    def _records(self, rows: Batch, logprobs: Tensor, places: list[int]) -> Iterator[PolicyLogprobs]:
        for (g, k, e), (ids, values) in _episodes(rows, logprobs, places).items():
            if len(ids) == int(rows.credit.action_counts[g, k, e]):  # else the update needed some of its rows only
                step = self.followed[rows.pack_ids[g]]
                yield PolicyLogprobs(
                    step=step,
                    pack=rows.pack_ids[g],
                    sibling=k,
                    episode=e,
                    updates=self._trainer.global_step - step,
                    digest=digest(ids),
                    logprobs=array("f", values),
                )

    def _append(self, lines: Iterable[str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))

    @property
    def _path(self) -> Path:
        return lifecycles_file(self._trainer, policy_logprobs.NAME, "jsonl")


def _episodes(rows: Batch, logprobs: Tensor, places: list[int]) -> dict[Key, tuple[list[int], list[float]]]:
    """Action ids and their log-probs by episode."""
    mask, found = rows.action_mask[places], {}
    counts = mask.sum(dim=1).tolist()
    ids, values = (of[places][mask].cpu().split(counts) for of in (rows.token_ids, logprobs))
    for key, its_ids, its_values in zip(rows.episode_index[places].tolist(), ids, values, strict=True):
        own = found.setdefault(tuple(key), ([], []))
        own[0].extend(its_ids.tolist())
        own[1].extend(its_values.tolist())
    return found


def _lines_before(path: Path, num_updates: int) -> Iterator[bytes]:
    """The whole lines of updates before that one."""
    with path.open("rb") as file:
        for line in file:
            try:
                record = policy_logprobs.load(line)
            except DataError:
                continue
            if record.step + record.updates < num_updates and line.endswith(b"\n"):
                yield line
