"""LightningCLI with the keys and folders of this project; `fit` and its siblings and the warm start build on it."""

import gc
import logging
import os
import sys
import warnings
from argparse import SUPPRESS
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
import yaml
from jsonargparse import Namespace, set_parsing_settings
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.plugins.io import TorchCheckpointIO
from transformers.utils import logging as transformers_logging

from cod_lightning.callbacks import Progress
from cod_lightning.callbacks.checkpoints import RunCheckpoint, RunConfig
from cod_lightning.callbacks.loggers import Events, MetricsFile
from cod_lightning.callbacks.stop_signals import StopSignals, handlers_kept
from cod_lightning.checkpoints.checkpoint import ShardReader, read_checkpoint
from cod_lightning.checkpoints.folder import AUTO, NEWEST, CheckpointFolder, named, newest
from cod_lightning.commands.parser import OneLine, Options, add_options, own_refusals, program
from cod_lightning.commands.shipped import CLASS_KEYS, config_names, groups
from cod_lightning.commands.trainer_settings import (
    check_shards,
    check_trainer,
    ending_together,
    on_loopback,
    settle_strategy,
)
from cod_lightning.errors import ConfigError, answering, did_you_mean
from cod_lightning.files import check_folder, locked
from cod_lightning.ranges import Count, Seed
from cod_lightning.rollout.deadlines import STALLED, Liveness, Watchdog
from cod_lightning.trusted import check_harmless

_NOISE = (
    ".*isinstance\\(treespec, LeafSpec\\).*",
    ".*in eval mode at the start of training.*",
    ".*LightningCLI's args parameter is intended to run from within Python.*",
    '.*add the following callbacks: \\["RunCheckpoint.*',  # `fit` alone has it
    ".*Experiment logs directory .* exists and is not empty.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*sync_dist=True.*",  # what is logged is the same on all ranks
    ".*Detected an existing checkpoint in .*",
    ".*The `srun` command is available on your system but is not used.*",  # torchrun starts the ranks
    ".*assuming the intent is to load in a single process.*",
)
"""Warnings of libraries that are not about this run."""
_DEFAULTS = {"log_every_n_steps": 1, "num_sanity_val_steps": 0, "devices": 1, "enable_model_summary": False}


class OneLineParser(OneLine, LightningArgumentParser):
    """Lightning's parser with errors of one line and help that fits a screen."""

    about = ""
    """What `--help` is about: a group of keys or a key; empty for the command."""

    def format_help(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The command's own keys and its groups of keys, or every key of what is asked `about`, or of a class."""
        listed = ((a.option_strings[-1], a) for a in self._actions if a.option_strings and a.help != SUPPRESS)
        keys = {name.removeprefix("--").removesuffix("+"): one for name, one in listed if " " not in name}
        of = list(dict.fromkeys(name.partition(".")[0] for name in keys if "." in name and not name.endswith(".help")))
        chosen = {name: one for name, one in keys.items() if f"{name}.".startswith(f"{self.about}.")}
        head = "Keys of a class: --KEY.help CLASS_PATH, where a --KEY.help is listed."
        if getattr(self, "_inner_parser", False):
            chosen, head = keys, self.description
        elif not self.about:
            chosen = {name: one for name, one in keys.items() if "." not in name and name not in of}
            others = groups() - CLASS_KEYS.keys() - {"experiment", "recipe", "suite"}
            choices = ", ".join([*CLASS_KEYS, *sorted(others)])
            head = f"usage: {self.prog} [--config NAME_OR_FILE] [GROUP=CHOICE ...] [KEY=VALUE ...]\n\n"
            head += f"GROUP: {choices},\n       as in method=grpo, credit=TaskCredit, env=my.World\n"
            head += "".join(f"\n--{group}.*: {self.prog} --help {group}" for group in of)
        elif not chosen:
            meant = did_you_mean(CLASS_KEYS.get(self.about, self.about), [*keys, *of])
            expected = "a group of keys or a key of this command"
            raise ConfigError("--help", self.about, expected, f"{meant}{self.prog} --help lists them.")
        formatter = self._get_formatter()
        formatter.add_arguments(chosen.values())
        return f"{head}\n\n{formatter.format_help()}".replace(" \b", "")  # of jsonargparse's --print_config


class CodCLI(LightningCLI):
    """LightningCLI with the keys and folders of this project."""

    asked: dict[str, Any]
    """The config as it was asked for, in plain containers."""
    options: ClassVar[Options] = {
        "torch_threads": (Count | None, None, "Threads of torch on the CPU; null leaves torch's choice."),
        "overwrite": (bool, False, "Let `fit` write into a folder that already holds a run."),
        "checkpoint_every": (Count | None, None, "Updates between checkpoints of `fit`; null: one a validation."),
        "keep_checkpoints": (Count | None, 2, "Newest checkpoints that `fit` keeps; null: all."),
        "accept_changes": (bool, False, "Go on with another config than the checkpoint's, or policy than the agent's."),
    }
    """Keys of every command beside those of `model`, `data` and `trainer`."""

    def __init__(
        self,
        *args: Any,
        command: str,
        options: Options | None = None,
        action: str | None = None,
        name: str = "run",
        **more: Any,
    ) -> None:
        """Build module and data for a command with these keys of its own, and for an `action` a Trainer, which does it.

        A run's folder is `runs/NAME` where none is configured.
        """
        self.command, self.own_options, self.action, self.run_name = command, options or {}, action, name
        with ExitStack() as self._held:
            super().__init__(*args, run=False, **more)
            if action is not None:
                self.act(action)

    def act(self, action: str) -> None:
        """Have the Trainer do it."""
        getattr(self.trainer, action)(self.model, datamodule=self.datamodule, ckpt_path=self.config.get("ckpt_path"))

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The seed, of which Lightning's own has no range."""
        text = "Seed of weights, packs and noise; true draws one."
        parser.add_argument("--seed_everything", type=bool | Seed, default=self.seed_everything_default, help=text)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Keys beside `model`, `data` and `trainer`; the parser goes by the name that the person typed."""
        parser.prog = f"{program()} {self.command}"
        text = f"A file, or a shipped config by its name. Names: {', '.join(config_names())}."
        parser._option_string_actions["--config"].help = text
        add_options(parser, self.options | self.own_options)
        parser.link_arguments("seed_everything", "data.seed")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Keep the config as it was asked for; look at a named checkpoint before anything is built."""
        super().parse_arguments(parser, args)
        config: Any = self.config
        for group in ("trainer", "model", "data", "data.deadlines"):  # the parser looks at values of their keys alone
            if (value := config.get(group)) is not None and not isinstance(value, Namespace | dict):
                raise ConfigError(group, value, "keys with values", f"`fit --help {group}` lists them.")
        path = config.get("ckpt_path")
        if path is not None and path != NEWEST and not (path == AUTO and self.action == "fit"):
            named(path)
        self.asked = yaml.safe_load(self.parser.dump(config, skip_none=False))

    def before_instantiate_classes(self) -> None:
        """Refuse what this project does elsewhere, settle the run's folder, set threads."""
        config: Any = self.config
        check_harmless(self.asked)
        self.again = config.get("ckpt_path") == AUTO
        self.resuming = bool(config.get("ckpt_path"))  # `auto` becomes null where there is no checkpoint yet
        check_trainer(config.trainer, self.action)
        settle_strategy(config.trainer)
        if config.torch_threads is not None:
            torch.set_num_threads(config.torch_threads)
        self.root = _run_folder(config, self.run_name, fitting=self.action == "fit")
        if self.action is not None:  # else nothing is written there, and the run may be another user's
            self._held.enter_context(on_loopback(config.trainer))
            check_folder(self.root, "trainer.default_root_dir")
            _check_links(self.root)
        config.trainer.default_root_dir = str(self.root)
        if (wanted := config.get("ckpt_path")) in (NEWEST, AUTO):
            found = newest(self.root / "checkpoints", needed=wanted == NEWEST)
            config.ckpt_path = found and str(found)

    def instantiate_classes(self) -> None:
        """As ever; a class that refuses its values does so in its own words, and one that never comes back is given up."""
        stall_s = self.config.get("data.deadlines.stall_s")
        label = "building environment, data and policy"
        with own_refusals(), Watchdog(Liveness(), stall_s, self.root / STALLED, label):
            super().instantiate_classes()
        if (runner := getattr(self.datamodule, "runner", None)) is not None:
            runner.start(self.root)

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        """With the loggers, checkpoints and callbacks that every run has; none where there is nothing for it to do."""
        if self.action is None:
            return None
        config, asked, fitting = self.config, self.config_init["trainer"], self.action == "fit"
        path = config.get("ckpt_path")
        callbacks: list[Any] = with_house(asked.callbacks or (), self.house_callbacks())
        self.began_at = read_checkpoint(path).global_step if fitting and path else None
        """The update that `fit` goes on from."""
        logger: Any = False
        resolved = ""
        if fitting:
            self._held.enter_context(locked(self.root, "trainer.default_root_dir", "fit"))
            if not self.resuming:  # another `fit` may have ended there meanwhile
                _run_folder(config, self.run_name, fitting=True)
            kept = config.clone()  # but for what is of this command alone
            for key, value in {"accept_changes": False, "overwrite": False, "ckpt_path": None}.items():
                if key in kept:
                    kept[key] = value
            resolved = self.parser.dump(kept, skip_none=False)
            kept_as = (config.checkpoint_every, config.keep_checkpoints)
            callbacks += [RunConfig(resolved, self.root), RunCheckpoint(self.root, *kept_as)]
        saves = callbacks[-1] if fitting and "ckpt_path" in config else None
        callbacks.append(StopSignals(saves, self.again))
        if fitting and asked.logger is not False:
            more = [] if asked.logger in (None, True) else asked.logger
            logger = [
                Events(self.root, self.began_at),
                MetricsFile(self.root, self.began_at if path and _within(self.root, path) else None),
                *(more if isinstance(more, list | tuple) else [more]),
            ]

        def refused(expected: str) -> ConfigError:
            usual = self.parser.get_defaults().trainer
            given = {key: value for key, value in vars(config.trainer).items() if value != usual.get(key)}
            return ConfigError("trainer", given, expected, "See fit --help trainer.")

        with answering(refused, "keys that Lightning's Trainer takes"):
            trainer: Any = super().instantiate_trainer(logger=logger, callbacks=callbacks, **kwargs)
        self._held.enter_context(ending_together(trainer))
        if not fitting and type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = ShardReader()
        if fitting and path:
            from cod_lightning.checkpoints.changes import check_changes

            count = trainer.num_devices * trainer.num_nodes
            check_changes(read_checkpoint(path), resolved, count, accepted=config.accept_changes)
            check_shards(path, trainer.strategy)
        return trainer

    def house_callbacks(self) -> list[Callback]:
        """Callbacks of every run; one in the config replaces its own kind."""
        return [Progress()]


def with_house(asked: Iterable[Callback], house: Iterable[Callback]) -> list[Callback]:
    """Both, those of the house last and in their order, which decides what is measured; one that is asked takes the place of what
    it is, or derives from."""
    theirs = list(asked)
    ours = [next((one for one in theirs if isinstance(one, type(usual))), usual) for usual in house]
    return [*(one for one in theirs if one not in ours), *ours]


def start(cli: type[CodCLI], module: type[Any], data: type[Any], argv: Sequence[str], command: str, **how: Any) -> Any:
    """Instantiate a CLI with this project's defaults; `how` are its other arguments."""
    quieten()
    asked = [behind.removeprefix("--") for arg, behind in pairwise([*argv, ""]) if arg in ("-h", "--help")]
    OneLineParser.about = asked[0] if asked else ""  # as in `fit --help model`
    helps = "-h" in argv or any(arg.startswith("--") and "help" in arg for arg in argv)
    set_parsing_settings(docstring_parse_attribute_docstrings=helps)  # which takes a quarter of a second
    if not gc.get_freeze_count():
        gc.freeze()  # half a million objects of libraries, which every full collection would look through again
    with handlers_kept():
        return cli(
            module,
            data,
            save_config_callback=None,
            parser_class=OneLineParser,
            seed_everything_default=1,
            trainer_defaults=_DEFAULTS,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            args=list(argv),
            command=command,
            **how,
        )


def quieten() -> None:
    """Lightning's hints about hardware and other products are not about this run."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    logging.getLogger("lightning.pytorch.profilers").setLevel(logging.INFO)  # what was asked for
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")


def run_folder(ckpt_path: str | Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to; None where it lies by itself."""
    folder = Path(ckpt_path).resolve().parent
    return folder.parent if folder.name == "checkpoints" and (folder.parent / "config.yaml").is_file() else None


def _run_folder(config: Any, name: str, *, fitting: bool) -> Path:
    """Where the run writes: as configured, else where its checkpoint lies, else runs/NAME, numbered on if taken.

    A folder in which a run was refused, or stopped before its first checkpoint, is free. One that goes on from a checkpoint of
    elsewhere begins its folder anew.
    """
    folder, asked = config.trainer.default_root_dir, config.get("ckpt_path")
    folder = folder and os.path.expanduser(folder)  # as Lightning reads it
    here = asked and (asked in (NEWEST, AUTO) or (folder and _within(Path(folder), asked)))
    anew = fitting and not (config.overwrite or here)
    if folder:
        if anew and _holds_a_run(Path(folder)):
            remedy = "Name another one, go on with --ckpt_path auto, or add --overwrite true."
            raise ConfigError("trainer.default_root_dir", folder, "a folder without a run", remedy)
        return Path(folder)
    if asked and (own := run_folder(asked)) is not None:
        return own
    root = Path("runs") / name
    if anew:
        return _free(root)
    if asked in (NEWEST, AUTO):
        _check_only(root, asked)
    return root


def _free(root: Path) -> Path:
    """The folder, or where it is taken the next of its name that is not."""
    numbered = (root.with_name(f"{root.name}-{i}") for i in count(2))
    free = next(one for one in chain([root], numbered) if not _holds_a_run(one))
    if free != root:
        rank_zero_only(print)(f"note: {root} holds a run; this one is written to {free}", file=sys.stderr)
    return free


def _check_only(root: Path, asked: str) -> None:
    """Raise `ConfigError` where the folder is not the only one of its name with checkpoints."""
    others = (one for one in root.parent.glob("*") if one.name.removeprefix(f"{root.name}-").isdecimal())
    others = sorted(others, key=lambda one: int(one.name.rpartition("-")[2]))
    found = [one for one in (root, *others) if any((one / "checkpoints").glob("*"))]
    if len(found) > 1:
        expected = f"a checkpoint of one run; {', '.join(map(str, found))} have some"
        raise ConfigError("ckpt_path", asked, expected, f"Add --trainer.default_root_dir {found[-1]}, or another.")


def _check_links(folder: Path) -> None:
    """Raise `ConfigError` where a link in a run's folder, which may be foreign, leads into another run, whose files have the names
    of this one's."""
    for link in filter(Path.is_symlink, folder.glob("*")):
        there = link.resolve()
        if there.is_dir() and there.parent != folder.resolve() and (there.parent / "config.yaml").exists():
            raise ConfigError(str(link), f"a link to {there}", "a folder of this run alone", "Remove it.")


def _within(folder: Path, checkpoint: str) -> bool:
    return CheckpointFolder(folder / "checkpoints").has(checkpoint)


def _holds_a_run(folder: Path) -> bool:
    return (folder / "evaluation.json").exists() or any((folder / "checkpoints").glob("*"))
