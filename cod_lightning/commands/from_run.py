"""What the commands share that work with a run's policy outside of training: its config, its model, its weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml
from transformers import PreTrainedModel

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.commands.config_files import expand, keys_of
from cod_lightning.commands.lightning_cli import Options
from cod_lightning.commands.train import TrainCLI, made
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import NonNegative
from cod_lightning.trusted import OWN, STRATEGIES, check_harmless, only_from, read_config


class FromRunCLI(TrainCLI):
    """`TrainCLI` without a training: builds what a run was configured with, whatever machine it was trained on."""

    options: ClassVar[Options] = {
        "ckpt_path": (str | None, None, "Checkpoint; null: model.policy as it is."),
        "trust": (None, False, "Let the run's config name classes of other packages, other machines and programs."),
    }

    def before_instantiate_classes(self) -> None:
        """The plainest Trainer, since this command does not train."""
        check_harmless(self.asked)
        self.plain_trainer()
        super().before_instantiate_classes()

    def after_instantiate_classes(self) -> None:
        """The warm start serves where there is no checkpoint, or one of an adapter on it."""
        self.check_checkpoints(self.read_checkpoints())
        policy = self.model.policy
        if self.config.ckpt_path is None or not policy.has_weights or policy.waits_for_warm_start:
            super().after_instantiate_classes()


class SamplingCLI(FromRunCLI):
    """`FromRunCLI` for commands that sample from the policy."""

    options: ClassVar[Options] = {"sampling_temperature": (NonNegative, 1.0, "0 is greedy.")}


def built(cli: type[FromRunCLI], argv: Sequence[str]) -> Any:
    """The CLI with module and data of a run. Without a --config it is the run's own, of which only our classes are trusted."""
    typed = dict(keys_of(argv))
    own = (
        None
        if {"--config", "-c"} & typed.keys() or "--ckpt_path" not in typed
        else config_of_run(typed["--ckpt_path"] or "")
    )
    with only_from((*OWN, *STRATEGIES), trust="--trust" in typed or own is None):
        return made(cli, expand(argv, own))


def run_folder(ckpt_path: str | Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to; None where it lies by itself."""
    folder = Path(ckpt_path).resolve().parent.parent
    return folder if (folder / "config.yaml").is_file() else None


def config_of_run(path: str) -> dict[str, Any]:
    """The config of the run which the checkpoint belongs to."""
    folder = run_folder(path) if path and Path(path).exists() else None
    if folder is None:
        read_checkpoint(path, "--ckpt_path")
        expected = f"the config of the run, since {path} lies in no run's folder"
        raise ConfigError("--config", "missing", expected, "Add --config FILE.")
    try:
        kept = read_config(folder / "config.yaml")
        if not isinstance(kept, dict):
            raise ValueError("it has no keys")
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        expected = f"a run whose config.yaml can be read ({' '.join(str(error).split())[:200]})"
        raise ConfigError("--ckpt_path", path, expected, "Add --config FILE.") from error
    return kept


def model_of(cli: Any, ckpt_path: str | None) -> PreTrainedModel:
    """The policy's model on the CPU, with the checkpoint's weights if one is named; its tokenizer is `data.chat.tokenizer`."""
    policy, data = cli.model.policy, cli.datamodule
    data.check_with(policy)
    tokenizer: Any = data.chat.tokenizer
    model = policy.model(tokenizer)
    if ckpt_path is not None:
        read_checkpoint(ckpt_path).load_into(model, policy.base)
    return model
