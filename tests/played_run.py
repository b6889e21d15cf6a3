"""A run of Lightning whose lifecycles are made up: what callbacks see of a training, without a model or a world."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from cod_lightning.evaluation.metrics import PositionMetrics
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.types import Group
from tests.records import group
from tests.small_fit import quiet_trainer
from tests.stubs import FunctionEngine

NUM_TASKS = 3


@dataclass(frozen=True)
class Items:
    """A loader with a length."""

    items: Callable[[], Iterator[Any]]
    length: int

    def __iter__(self) -> Iterator[Any]:
        return self.items()

    def __len__(self) -> int:
        return self.length


class PlayedData(L.LightningDataModule):
    """Two updates of every rollout, two rollouts of every epoch; success is sure from position 1 on."""

    def __init__(self, context: str = "left is up", raise_in: str = "") -> None:
        super().__init__()
        self.runner = RolloutRunner(FunctionEngine(lambda _: (2,)))
        self.context, self.raise_in = context, raise_in

    def roll(self, label: str, num_packs: int, num_siblings: int) -> list[Group]:
        rng, monitor = random.Random(num_packs), self.runner

        def play() -> list[Group]:
            monitor.begin(label, num_packs * num_siblings, NUM_TASKS)
            groups = []
            for index in range(num_packs):
                rows = [[rng.random() < 0.5, True, True] for _ in range(num_siblings)]
                groups.append(group(f"{label}/{index}", rows, context=self.context))
                for lifecycle in groups[-1].lifecycles:
                    for episode in lifecycle.episodes:
                        monitor.episode(episode)
                    monitor.lifecycle(lifecycle)
                if label == self.raise_in:
                    raise RuntimeError("the rollout is broken")
            return groups

        return list(self.runner.run(label, play).groups)

    def _train(self) -> Iterator[torch.Tensor]:
        for _ in range(2):
            self.roll("train", 6, 2)
            yield torch.zeros(1)
            yield torch.zeros(1)

    def _once(self, label: str) -> Iterator[list[Group]]:
        yield self.roll(label, 8, 1)

    def train_dataloader(self) -> Items:
        return Items(self._train, 4)

    def val_dataloader(self) -> Items:
        return Items(lambda: self._once("validation"), 1)

    def test_dataloader(self) -> list[Items]:
        return [Items(lambda n=n: self._once(f"test_heldout_{n}"), 1) for n in ("trained", "blanked_context")]

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return batch


@dataclass(frozen=True)
class Update:
    num_tokens: int


class PlayedModule(L.LightningModule):
    """Logs what the policy's module would."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.val_positions = PositionMetrics()
        self.last_update: Update | None = None
        self.progress: Callable[[], float] = lambda: 0.0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        optimizer = self.optimizers()
        self.manual_backward(self.weight.sum())
        optimizer.step()  # pyright: ignore
        self.last_update = Update(num_tokens=50)
        values = {"train/reward/position_0": 0.25, "train/logprob_gap": 2e-6, "train/entropy": 0.4}
        self.log_dict(values, on_step=True, on_epoch=False, batch_size=1)

    def validation_step(self, groups: list[Group], batch_idx: int) -> None:
        self.val_positions.update([lifecycle for one in groups for lifecycle in one.lifecycles])

    def on_validation_epoch_end(self) -> None:
        found = self.val_positions.compute()
        self.val_positions.reset()
        self.log_dict({f"val/{name}": value for name, value in found.items()})

    def test_step(self, groups: list[Group], batch_idx: int, dataloader_idx: int = 0) -> None:
        pass


def trainer(folder: Path, callbacks: list[Callback], *, logger: Any = False, max_epochs: int = 2) -> L.Trainer:
    shown = None if any("Progress" in type(c).__name__ for c in callbacks) else False
    more = {"logger": logger, "log_every_n_steps": 1, "num_sanity_val_steps": 2, "enable_progress_bar": shown}
    return quiet_trainer(folder, *callbacks, max_epochs=max_epochs, **more)
