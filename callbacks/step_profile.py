"""Looks closely at three steps of a training: how long each part took, and on what."""

import cProfile
import pstats
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch.profiler import ProfilerActivity, profile

from cod_lightning.callbacks.runner import runner_of
from cod_lightning.reports.step_profile import Function, Phases, Spent, summary
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.types import Group
from cod_lightning.whole_file import without_link, write_whole


class StepProfile(Callback, RolloutObserver):
    """Writes `profile/summary.md` and `profile/trace.json.gz`, then leaves the run alone.

    A step is a rollout with its updates, its weight sync and all that is logged of it. After `warm_up` steps one is timed as it
    is, the next is recorded by torch's profiler, the one after it by Python's: profilers slow down what they look at, so parts of
    the step come from the first alone. Steps that end with a validation are left out where there are others. Of several
    ranks, rank 0 looks at itself. What goes on in other threads (`data.max_staleness`) or processes (vLLM) shows as waiting.

    Args:
        warm_up: Steps before.
    """

    def __init__(self, warm_up: int = 2) -> None:
        self.warm_up = warm_up
        self._seen = 0
        self._stage = 0
        """1 timed, 2 torch's profiler, 3 Python's."""
        self._begun = 0.0
        self._training_s = 0.0
        self._trained_tokens = self._sampled_tokens = self._lifecycles = 0
        self._torch: profile | None = None
        self._python: cProfile.Profile | None = None
        self._phases: Phases | None = None
        self._seconds: list[float] = []
        self.done = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._trainer = trainer
        if trainer.is_global_zero:
            runner_of(trainer).follow(self)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._stage == 1:
            self._training_s += float(trainer.callback_metrics["time/train_s"])
            self._trained_tokens += int(pl_module.last_update.num_tokens)  # pyright: ignore

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The last step has no next one to end it."""
        if trainer.is_global_zero and not self.done:
            self._end_stage(trainer)
            if not self.done:
                warnings.warn(
                    f"--profile: the run was over after {self._seen} steps; it takes {self.warm_up + 3}, none of them before a "
                    "validation. Nothing was written: let it train longer.",
                    stacklevel=2,
                )

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        if self._stage == 1 and label == "train":
            lives = [life for group in groups for life in group.lifecycles]
            self._lifecycles += len(lives)
            self._sampled_tokens += sum(one.num_action_tokens for life in lives for one in life.all_episodes)

    def update_begins(self, *, new_rollout: bool, ends_epoch: bool) -> None:
        """The first update of a rollout begins a step, and ends the one before."""
        if self.done or not new_rollout:
            return
        self._end_stage(self._trainer)
        self._seen += 1
        if self._seen > self.warm_up and not self.done and not ends_epoch:
            self._stage = len(self._seconds) + 1
            if self._stage == 2:
                activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA][: torch.cuda.is_available()]]
                self._torch = profile(activities=activities)
                self._torch.start()
            self._begun = time.perf_counter()
            if self._stage == 3:
                self._python = cProfile.Profile()
                self._python.enable()

    def _end_stage(self, trainer: L.Trainer) -> None:
        if not self._stage:
            return
        if self._python is not None:
            self._python.disable()
        self._seconds.append(time.perf_counter() - self._begun)
        if self._stage == 1:
            self._phases = self._timed(trainer)
        if self._torch is not None and self._stage == 2:
            self._torch.stop()
        if self._stage == 3:
            self._write(Path(trainer.default_root_dir) / "profile")
            self.done = True
        self._stage = 0

    def _timed(self, trainer: L.Trainer) -> Phases:
        logged = trainer.callback_metrics
        return Phases(
            total_s=self._seconds[0],
            rollout_s=float(logged["time/wait_s" if "time/wait_s" in logged else "time/rollout_s"]),
            training_s=self._training_s,
            sync_s=float(logged["time/sync_s"]),
            sampled_tokens=self._sampled_tokens,
            trained_tokens=self._trained_tokens,
            lifecycles=self._lifecycles,
        )

    def _write(self, folder: Path) -> None:
        assert self._phases is not None
        assert self._torch is not None
        assert self._python is not None
        folder.mkdir(parents=True, exist_ok=True)
        self._torch.export_chrome_trace(str(without_link(folder / "trace.json.gz")))
        events = [
            Spent(event.key, (event.self_cpu_time_total + event.self_device_time_total) / 1e6, event.count)
            for event in self._torch.key_averages()
        ]
        stats: Any = pstats.Stats(self._python)
        functions = [
            Function(file=file, line=line, name=name, seconds=own, calls=calls)
            for (file, line, name), (_, calls, own, _, _) in stats.stats.items()
        ]
        operators = sorted(events, key=lambda one: -one.seconds)
        page = summary(self._phases, operators, functions, (self._seconds[1], self._seconds[2]))
        write_whole(folder / "summary.md", page)
        self._torch = self._python = None
        print(f"Profile of a step: {folder / 'summary.md'}, {folder / 'trace.json.gz'}")
