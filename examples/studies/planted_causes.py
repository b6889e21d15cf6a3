"""Short trainings, each with one cause planted why it goes nowhere, and healthy ones; `doctor` has to tell them apart."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.objective.terms import LossTerm, TermInputs, TermSums
from cod_lightning.rewards.base import Reward
from cod_lightning.types import Episode, Task
from tests.command_line import cod

HERE, ROOT = "examples.studies.planted_causes", Path(__file__).parents[2]
SMALL = {
    "torch_threads": 1,
    "trainer.max_epochs": 1,
    "data.rollouts_per_epoch": 6,
    "data.packs_per_rollout": 8,
    "data.val_packs": 4,
    "data.suites": "null",
}
SUITE = '[{"name": "held_out", "num_packs": 128, "controls": ["blanked_context"]}]'


class PaysNonsense(Reward):
    """Pays for answers that do not parse."""

    async def __call__(self, episode: Episode, task: Task) -> float:
        return 3.0 if str(episode.status) == "malformed" else 0.0


@dataclass(frozen=True)
class Sharpen(LossTerm):
    """The entropy of each token, which training makes smaller."""

    entropy_gradient: ClassVar[bool] = True
    coefficient: float = 1.0

    def __call__(self, inputs: TermInputs) -> TermSums:
        return TermSums(loss=inputs.entropies.sum())


class FailingLevers(Levers):
    """Levers that break in more than half of the tasks."""

    def step(self, action: str) -> Any:
        if random.random() < 0.6:
            raise RuntimeError("the lever broke")
        return super().step(action)


class ClippedLevers(Levers):
    """Levers whose reward never gets through."""

    def step(self, action: str) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, min(reward, 0.0), *rest


class HopelessLevers(Levers):
    """Levers of which none gives the wanted colour."""

    def _acted(self, action: str) -> str:
        code, self._complaint = self._task.labels.code_of(action)
        self._pulls = (*self._pulls, (code or 1, next(one for one in self._task.colours if one != self._task.goal)))
        return "miss" if code else "malformed"


class EasyLevers(Levers):
    """Levers that all give the wanted colour."""

    def _acted(self, action: str) -> str:
        code, self._complaint = self._task.labels.code_of(action)
        self._pulls = (*self._pulls, (code or 1, self._task.goal))
        return "win" if code else "malformed"


class NeverApplied(TransformersEngine):
    """Takes an adapter and goes on with the base."""

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], policy_version: int) -> None:
        still = ((name, torch.zeros_like(tensor) if "lora_B" in name else tensor) for name, tensor in weights)
        super().update_weights(still, policy_version)


@dataclass(frozen=True)
class Planted:
    """A training: its config, choices and keys, beside those of all."""

    cause: str
    config: str = "smoke"
    keys: "Callable[[Path], dict[str, Any]]" = lambda _: {}
    choices: tuple[str, ...] = ()

    def run(self, folder: Path, work: Path) -> str:
        """Train into that folder; what was said on standard error. `work` holds what several trainings share."""
        keys = SMALL | self.keys(work)
        flags = [text for key, value in keys.items() for text in (f"--{key}", str(value))]
        named = (f"--trainer.default_root_dir={folder}", "--overwrite=true")
        config = ROOT / self.config if self.config.endswith(".yaml") else self.config
        done = cod("fit", "--config", str(config), *self.choices, *flags, *named, cwd=work)
        assert done.returncode in (0, 3), done.stderr[-2000:]
        return done.stderr


def warm(work: Path) -> Path:
    """A folder with the warm start of levers."""
    run = work / "warm"
    if not (run / "policy" / "model.safetensors").exists():
        to = f"--trainer.default_root_dir={run}"
        done = cod("warm_start", "--config", "smoke", "--torch_threads", "1", "--overwrite=true", to, cwd=work)
        assert done.returncode == 0, done.stderr[-2000:]
    return run / "policy"


def _of_other_words(work: Path) -> dict[str, Any]:
    """The warm start's weights for a vocabulary in another order."""
    folder, source = work / "other_words", warm(work)
    folder.mkdir(exist_ok=True)
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(source / "model.safetensors")
    rows = len(weights["model.embed_tokens.weight"])
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in weights:
            weights[name] = weights[name][order].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return {"warm_start": "null", "model.policy.weights": folder}


def _levers(name: str) -> dict[str, Any]:
    """That world, after demonstrations of the levers as they are."""
    shown = '{"class_path": "cod_lightning.envs.levers.Levers", "init_args": {"protocol": "compact"}}'
    return {"data.env": f"{HERE}.{name}", "data.env.protocol": "compact", "warm_start.env": shown}


PLANTED = (
    Planted("dead groups", keys=lambda _: _levers("HopelessLevers")),
    Planted(
        "format collapse",
        keys=lambda _: {
            "data.rewards": f'{{"hack": {{"class_path": "{HERE}.PaysNonsense"}}}}',
            "data.rollouts_per_epoch": 12,
        },
    ),
    Planted(
        "truncated answers",
        keys=lambda work: {"data.max_new_tokens": 2, "warm_start": "null", "model.policy.weights": warm(work)},
    ),
    Planted(
        "entropy gone",
        keys=lambda _: {
            "model.terms": f'[{{"class_path": "{HERE}.Sharpen"}}]',
            "model.lr": 5e-3,
            "data.rollouts_per_epoch": 12,
        },
    ),
    Planted("rate too high", keys=lambda _: {"model.lr": 0.3}),
    Planted("rate too low", keys=lambda _: {"model.lr": 1e-9}),
    Planted("baseline without siblings", keys=lambda _: _levers("FailingLevers") | {"data.max_failed_fraction": 1.0}),
    Planted("wrong tokenizer", keys=_of_other_words),
    Planted(
        "sampler not synced",
        config="experiment/qlora_smoke",
        choices=("model.policy=LoRAPolicy",),
        keys=lambda work: {
            "warm_start": "null",
            "model.policy.path": warm(work),
            "model.optimizer": "adamw",
            "model.lr": 1e-2,
            "data.engine": f"{HERE}.NeverApplied",
            "trainer.callbacks": '[{"class_path": "cod_lightning.callbacks.WeightSync", "init_args": {"self_test": null}}, '
            '{"class_path": "cod_lightning.callbacks.MismatchGuard", "init_args": {"stop_at": 100.0}}]',
        },
    ),
    Planted("reward clipped away", keys=lambda _: _levers("ClippedLevers")),
    Planted(
        "context ignored",
        keys=lambda _: {"data.suites": SUITE, "data.env.teacher.follow": 0.0},
    ),
    Planted(
        "contexts independent",
        keys=lambda _: {"data.env.teacher.note_accuracy": 0.0},
    ),
    Planted("demonstrations leave nothing", keys=lambda _: _levers("EasyLevers")),
)

SUITED = {"data.suites": SUITE, "data.rollouts_per_epoch": 8, "data.packs_per_rollout": 16}
HEALTHY = {
    "smoke": Planted("", keys=lambda _: SUITED),
    "smoke, GRPO": Planted("", choices=("method=grpo",), keys=lambda _: SUITED),
    "smoke, credit by task and window": Planted(
        "",
        choices=("--model.credit.mean=true", "--model.credit.window=2", "--model.credit.discount=1.0"),
        keys=lambda _: SUITED,
    ),
    "smoke, LOOP": Planted("", choices=("method=loop",), keys=lambda _: SUITED),
    "smoke, GSPO": Planted("", choices=("method=grpo", "--model.loss=GSPO"), keys=lambda _: SUITED),
    "smoke, KL to the start": Planted(
        "",
        choices=("--model.terms+=KL", "--model.terms.coefficient=0.04", "--model.terms.estimator=k3"),
        keys=lambda _: SUITED,
    ),
    "quickstart": Planted("", config="quickstart", keys=lambda _: SUITED),
    "notebook on levers": Planted("", config="experiment/notebook_levers", keys=lambda _: SUITED),
    "alchemy": Planted("", config="examples/studies/alchemy.yaml", keys=lambda _: SUITED),
    "forbidden levers": Planted("", config="examples/studies/forbidden_levers.yaml", keys=lambda _: SUITED),
    "an adapter in 4 bits": Planted("", config="experiment/qlora_smoke", keys=lambda _: SUITED),
}
"""Shipped configs, shortened to eight rollouts and changed in nothing else but their suites."""
