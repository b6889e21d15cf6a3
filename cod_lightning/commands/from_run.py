"""What commands share that train nothing here: module and data of a run's config, the model of its policy, its weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from transformers import PreTrainedModel

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.commands.config_files import expand, keys_of, read_keys
from cod_lightning.commands.lightning_cli import Options
from cod_lightning.commands.train import TrainCLI, made
from cod_lightning.datamodules.checks import check_pair
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import NonNegative
from cod_lightning.trusted import OWN, STRATEGIES, only_from

OF_A_RUN: Options = {
    "ckpt_path": (str | None, None, "Checkpoint; null: model.policy as it is."),
    "trust": (None, False, "Let the run's config name classes of other packages, other machines and programs."),
}
SAMPLED: Options = OF_A_RUN | {"sampling_temperature": (NonNegative, 1.0, "0 is greedy.")}


class PlainCLI(TrainCLI):
    """`TrainCLI` with the plainest Trainer on the CPU, whatever machine the run is for."""

    trusted = True
    """Whether the config may name classes of others, other machines and programs."""

    def before_instantiate_classes(self) -> None:
        """The Trainer's part of the config is kept aside."""
        self.asked_trainer = self.config.trainer.clone()
        none = dict.fromkeys(("precision", "plugins"))
        self.config.trainer.update(Namespace(accelerator="cpu", strategy="auto", devices=1, num_nodes=1, **none))
        super().before_instantiate_classes()

    def after_instantiate_classes(self) -> None:
        """The warm start waits for `model_of`."""
        self.check_checkpoints(self.read_checkpoints())
        check_pair(self.datamodule.engine, self.model.policy)


def built(command: str, options: Options, argv: Sequence[str], cli: type[PlainCLI] = PlainCLI) -> Any:
    """The CLI of a command with module and data. Where it takes a checkpoint and no config is typed, it is the run's own config, of
    which only our classes are trusted."""
    typed = dict(keys_of(argv))
    own = None
    if "ckpt_path" in options and "--ckpt_path" in typed and not {"--config", "-c"} & typed.keys():
        own = config_of_run(typed["--ckpt_path"] or "")
    trust = "--trust" in typed or own is None
    with only_from((*OWN, *STRATEGIES), trust=trust):
        found = made(expand(argv, own), command, options, cli)
    found.trusted = trust
    return found


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
    return read_keys(folder / "config.yaml", "--config", folder / "config.yaml")


def model_of(cli: Any, ckpt_path: str | None) -> PreTrainedModel:
    """The policy's model on the CPU, with the checkpoint's weights if one is named; its tokenizer is `data.chat.tokenizer`.

    The warm start serves where there is no checkpoint, or one of an adapter on it.
    """
    policy, data = cli.model.policy, cli.datamodule
    if cli.config.ckpt_path is None or policy.waits_for_warm_start:
        with only_from((*OWN, *STRATEGIES), trust=cli.trusted):
            cli.make_warm_start(cli.read_checkpoints())
    data.check_with(policy)
    tokenizer: Any = data.chat.tokenizer
    model = policy.model(tokenizer)
    if ckpt_path is not None:
        read_checkpoint(ckpt_path).load_into(model, policy.base)
    return model
