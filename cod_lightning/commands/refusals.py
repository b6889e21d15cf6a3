"""What `fit` and its siblings refuse before anything is built: checkpoints, Trainer flags and policies that do not go together."""

from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

from cod_lightning.commands.resume import named
from cod_lightning.errors import ConfigError
from cod_lightning.models.base import Policy


def check_shards(path: str, strategy: Any) -> None:
    """Training goes on from shards with the strategy that shares them out; everything else reads them as well."""
    if Path(path).is_dir() and not isinstance(strategy, FSDPStrategy | ModelParallelStrategy):
        expected = "a checkpoint in one file, or a strategy that shards, since this one holds shards of the optimizer"
        raise ConfigError("ckpt_path", path, expected, "Choose strategy=fsdp2.")


def refuse_trainer_flags(trainer: Any) -> None:
    """What the Trainer offers and the module does itself."""
    for key in ("gradient_clip_val", "gradient_clip_algorithm"):
        if (value := getattr(trainer, key)) is not None:
            expected = "null, since the module clips itself"
            raise ConfigError(f"trainer.{key}", value, expected, "Set model.gradient_clip_val.")
    if trainer.accumulate_grad_batches != 1:
        raise ConfigError(
            "trainer.accumulate_grad_batches",
            trainer.accumulate_grad_batches,
            "1, since a batch is an optimizer update and the module splits it",
            "Set model.token_budget for memory, data.packs_per_rollout and data.updates_per_rollout for batch size.",
        )


def refuse_weights(policy: Policy, config: Any) -> None:
    """A policy without weights has nothing to load them into."""
    for key in ("warm_start", "ckpt_path"):
        if not policy.has_weights and (value := config.get(key)):
            expected = f"null, since {type(policy).__name__} has no weights here"
            raise ConfigError(key, value, expected, "Leave it out, or choose a policy with weights.")


def checkpoints_of(config: Any) -> list[str]:
    """The checkpoints that `--ckpt_paths` names; none where it is not given."""
    paths: list[str] = list(config.get("ckpt_paths") or ())
    if paths and config.get("ckpt_path"):
        raise ConfigError("ckpt_paths", paths, "null beside a ckpt_path", "Put all checkpoints into ckpt_paths.")
    if len(set(paths)) != len(paths) or "last" in paths:
        raise ConfigError(
            "ckpt_paths", paths, "different files, each named in full", "Name each once, `last` by its path."
        )
    for path in paths:
        named(path)
    return paths
