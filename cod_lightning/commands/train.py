"""fit, validate, test, predict: LightningCLI over composed configs, and everything a run keeps in its folder."""

import gc
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from jsonargparse import set_parsing_settings
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from transformers.utils import logging as transformers_logging

from callbacks import (
    Evaluation,
    LifecycleTable,
    MismatchGuard,
    PositionCurve,
    Progress,
    Sample,
    Staleness,
    StepProfile,
    Throughput,
    TokenBudget,
    Transcripts,
    WeightSync,
)
from callbacks.checkpoints import RunCheckpoint
from callbacks.metrics_file import MetricsFile
from callbacks.run_config import RunConfig
from callbacks.stop_signals import StopSignals, handlers_kept
from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.checkpoints.io import ShardReader
from cod_lightning.commands.changes import check_changes
from cod_lightning.commands.config_files import expand, find_config
from cod_lightning.commands.parser import OneLine, program, refuse_absurd
from cod_lightning.commands.refusals import check_shards, checkpoints_of, refuse_trainer_flags, refuse_weights
from cod_lightning.commands.resume import AUTO, LAST, named, newest
from cod_lightning.commands.strategies import check_devices, num_processes, on_loopback, settle_strategy
from cod_lightning.commands.suite_files import chosen, suite_names
from cod_lightning.errors import ConfigError
from cod_lightning.folder_lock import locked
from cod_lightning.training.shares import check_shares
from datamodules import RolloutDataModule
from modules import GRPOModule
from modules.combinations import check_combination


class OneLineParser(OneLine, LightningArgumentParser):
    """Lightning's parser with errors of one line."""


class CodCLI(LightningCLI):
    """LightningCLI with the keys and folders of this project."""

    run_name: str = "run"
    command: str | None = None
    """What the person types where Lightning would say `fit`; None where they type Lightning's own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with ExitStack() as self._held:
            super().__init__(*args, **kwargs)

    def setup_parser(self, *args: Any, **kwargs: Any) -> None:
        """Parsers go by the names that the person typed."""
        super().setup_parser(*args, **kwargs)
        self.parser.prog = f"{program()} {self.command or ''}".strip()
        for name, parser in getattr(self, "_subcommand_parsers", {}).items():
            parser.prog = f"{program()} {self.command or name}"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Keys beside `model`, `data` and `trainer`."""
        parser.add_argument(
            "--torch_threads",
            type=int | None,
            default=None,
            help="Threads of torch on the CPU; null leaves torch's choice.",
        )
        parser.add_argument(
            "--overwrite", type=bool, default=False, help="Let `fit` write into a folder that already holds a run."
        )
        parser.add_argument(
            "--checkpoint_every",
            type=int | None,
            default=None,
            help="Optimizer updates between two checkpoints of `fit`; null: one after every validation. `--ckpt_path last` "
            "goes on from the newest, `auto` begins where there is none.",
        )
        parser.add_argument(
            "--keep_checkpoints",
            type=int | None,
            default=2,
            help="Newest checkpoints that `fit` keeps; 2, so that there is one before. null: all.",
        )
        parser.add_argument(
            "--accept_changes",
            type=bool,
            default=False,
            help="Let `fit --ckpt_path` go on with another config than the checkpoint's; it says what changed.",
        )
        parser.link_arguments("seed_everything", "data.seed")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Look at a named checkpoint before anybody loads it."""
        super().parse_arguments(parser, args)
        self.subcommand = self.config.get("subcommand")
        refuse_absurd(self._own())
        path = self._own().get("ckpt_path")
        if path is not None and path != LAST and not (path == AUTO and self.subcommand == "fit"):
            named(path)

    def before_instantiate_classes(self) -> None:
        """Refuse what this project does elsewhere, settle the run's folder, set threads."""
        config = self._own()
        refuse_trainer_flags(config.trainer)
        check_devices(config.trainer)
        settle_strategy(config.trainer)
        self._held.enter_context(on_loopback(config.trainer))
        if (every := config.checkpoint_every) is not None and every < 1:
            raise ConfigError("checkpoint_every", every, "at least 1", "Null writes one after every validation.")
        if (keep := config.keep_checkpoints) is not None and keep < 1:
            raise ConfigError("keep_checkpoints", keep, "at least 1", "2 keeps one before the newest; null keeps all.")
        if (threads := config.torch_threads) is not None:
            torch.set_num_threads(threads)
        self.root = _run_folder(config, self.run_name, fitting=self.subcommand == "fit")
        config.trainer.default_root_dir = str(self.root)
        if (wanted := config.get("ckpt_path")) in (LAST, AUTO):
            found = newest(self.root / "checkpoints", needed=wanted == LAST)
            config.ckpt_path = found and str(found)

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        """Loggers, checkpoints and callbacks that every run has."""
        fitting = self.subcommand == "fit"
        own: list[Any] = list(self._get(self.config_init, "trainer").callbacks or [])
        extra: list[Any] = [c for c in self.house_callbacks() if type(c) not in map(type, own)]
        logger: Any = False
        if fitting:
            self._held.enter_context(locked(self.root, "trainer.default_root_dir", "fit"))
            _run_folder(self._own(), self.run_name, fitting=True)  # another `fit` may have ended there meanwhile
        if fitting and self._get(self.config_init, "trainer").logger is not False:
            path = self._own().ckpt_path
            resumed_at = read_checkpoint(path).global_step if path else None
            logger = [
                TensorBoardLogger(save_dir=self.root, name="tensorboard", version="", purge_step=resumed_at),
                MetricsFile(self.root, resumed_at),
            ]
        if not fitting:
            tester: Any = super().instantiate_trainer(logger=logger, callbacks=[*own, *extra, StopSignals()], **kwargs)
            if type(tester.strategy.checkpoint_io) is TorchCheckpointIO:
                tester.strategy.checkpoint_io = ShardReader()
            return tester
        resolved = self._resolved()
        checkpoint = RunCheckpoint(self.root, self._own().checkpoint_every, self._own().keep_checkpoints)
        extra += [RunConfig(resolved, self.root), checkpoint, StopSignals(checkpoint)]
        trainer: Any = super().instantiate_trainer(logger=logger, callbacks=own + extra, **kwargs)
        if path := self._own().ckpt_path:
            count = trainer.num_devices * trainer.num_nodes
            check_changes(read_checkpoint(path), resolved, count, accepted=self._own().accept_changes)
            check_shards(path, trainer.strategy)
        return trainer

    def _resolved(self) -> str:
        """The config to be kept; that changes were accepted once is not a part of it."""
        config = self._own().clone()
        config.accept_changes = False
        return self._parser(self.subcommand).dump(config, skip_none=False)

    def house_callbacks(self) -> list[Callback]:
        """Callbacks of every run; one given in the config replaces its own kind."""
        return [Progress()]

    def _own(self) -> Any:
        return self.config[self.subcommand] if self.subcommand else self.config


class TrainCLI(CodCLI):
    """`CodCLI` for CoD-Train, with its optional warm start and its evaluation at the end."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The warm start."""
        super().add_arguments_to_parser(parser)
        parser.add_argument(
            "--warm_start",
            type=str | None,
            default=None,
            help="Config of a warm start that is run before `fit` where its result is not cached; null starts from model.policy.",
        )
        parser.add_argument(
            "--profile",
            action="store_true",
            help="Write profile/summary.md, where the time of a step of `fit` went, and profile/trace.json.gz.",
        )
        parser.add_argument(
            "--sampled_token_budget",
            type=int | None,
            default=None,
            help="End `fit` with the rollout in which training has sampled so many tokens; null leaves it to the Trainer.",
        )

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        """What only `test` takes."""
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        if subcommand == "test":
            parser.add_argument(
                "--suites",
                type=list[str] | None,
                default=None,
                help=f"Play these in place of data.suites: {', '.join(suite_names())}, or YAML files.",
            )
            parser.add_argument(
                "--ckpt_paths",
                type=list[str] | None,
                default=None,
                help="Test several checkpoints on the same packs, in place of ckpt_path; evaluation.json keeps them apart.",
            )
        return parser

    def before_instantiate_classes(self) -> None:
        """Several checkpoints are looked at before anybody loads one."""
        config = self._own()
        self.checkpoints = checkpoints_of(config)
        if self.checkpoints:
            config.ckpt_path = self.checkpoints[0]
        super().before_instantiate_classes()

    def before_test(self) -> None:
        """Results of several checkpoints are kept apart from the first on."""
        if self.checkpoints:
            callbacks: list[Any] = self.trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
            next(c for c in callbacks if isinstance(c, Evaluation)).by_checkpoint = True

    def after_instantiate_classes(self) -> None:
        """Start from the warm start's weights."""
        from cod_lightning.commands.warm_start import ensure_warm_start

        config = self._own()
        self.warm_start_folder: Path | None = None
        refuse_weights(self.model.policy, config)
        if self.subcommand in ("fit", None):
            check_combination(self.model, self.datamodule)
        if self.subcommand == "fit":
            self.datamodule.check_trainable()
            check_shares(
                self.datamodule.packs_per_rollout,
                self.datamodule.updates_per_rollout,
                num_processes(config.trainer) or self.trainer.world_size,
            )
        self.memory_plan = None
        if self.subcommand == "fit":
            from cod_lightning.commands.plan import announce

            self.memory_plan = announce(self.model, self.datamodule, config.trainer)
        if config.warm_start:
            find_config(config.warm_start, key="warm_start")
            if not self.model.policy.waits_for_warm_start:
                self.datamodule.check_with(self.model.policy)
                self.model.check_scorers(self.datamodule.chat.tokenizer.get_vocab())
                self.datamodule.check_suites()
            self.warm_start_folder = ensure_warm_start(config.warm_start, config.seed_everything, config.torch_threads)
            self.model.policy.weights = str(self.warm_start_folder)

    def house_callbacks(self) -> list[Callback]:
        """What serves and watches CoD-Train."""
        budget = TokenBudget(self._own().sampled_token_budget)
        watching: list[Callback] = [MismatchGuard(), Staleness(), Progress(), PositionCurve(), Sample(), budget]
        timed: list[Callback] = [Throughput(), WeightSync()]  # an update's time ends before the sync begins
        looking: list[Callback] = [StepProfile()] if self._own().profile and self.subcommand == "fit" else []
        return [*timed, *watching, Transcripts(), LifecycleTable(), Evaluation(), *looking]

    def after_fit(self) -> None:
        """Evaluate what came out, beside what it started from; then the page that shows the run."""
        if self.memory_plan is not None:
            from cod_lightning.commands.plan import measured_peak

            print(f"Memory: at most {measured_peak()}; planned {self.memory_plan.total / 2**30:.2f} GiB")
        self._evaluate(trained_done=False)
        if self.trainer.is_global_zero:
            from cod_lightning.commands.report import run as run_report

            run_report([str(self.root), "--trust"])

    def after_test(self) -> None:
        """The trained policy has been played; the warm start is still to be."""
        self._evaluate(trained_done=True)

    def after_predict(self) -> None:
        """Say where the lifecycles are."""
        if self.trainer.is_global_zero:
            print(f"Written to {self.root / 'lifecycles'}: predict.jsonl, predict.parquet")

    def _evaluate(self, *, trained_done: bool) -> None:
        from cod_lightning.commands.evaluate import evaluate

        folder, more = self.warm_start_folder, self.checkpoints[1:]
        evaluate(self.trainer, self.model, self.datamodule, folder, trained_done=trained_done, checkpoints=more)


def run(argv: Sequence[str]) -> int:
    """Parse, build, run."""
    quieten()
    expanded = expand(chosen(argv))
    TrainCLI.run_name = expanded.names[0] if expanded.names else "run"
    start(TrainCLI, GRPOModule, RolloutDataModule, expanded.argv)
    return 0


def start(cli: type[CodCLI], module: type[Any], data: type[Any], argv: Sequence[str], *, execute: bool = True) -> Any:
    """Instantiate a CLI with this project's defaults."""
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    if not gc.get_freeze_count():
        gc.freeze()  # half a million objects of libraries, which every full collection would look through again
    with handlers_kept():
        return _started(cli, module, data, argv, execute)


def _started(cli: type[CodCLI], module: type[Any], data: type[Any], argv: Sequence[str], execute: bool) -> Any:
    return cli(
        module,
        data,
        save_config_callback=None,
        parser_class=OneLineParser,
        seed_everything_default=1,
        trainer_defaults={
            "log_every_n_steps": 1,
            "num_sanity_val_steps": 0,
            "accelerator": "auto",
            "devices": 1,
            "enable_model_summary": False,
        },
        auto_configure_optimizers=False,
        load_from_checkpoint_support=False,
        args=list(argv),
        run=execute,
    )


def quieten() -> None:
    """Lightning's hints about hardware and other products are not about this run."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*isinstance\\(treespec, LeafSpec\\).*")
    warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")
    warnings.filterwarnings("ignore", message=".*LightningCLI's args parameter is intended to run from within Python.*")
    warnings.filterwarnings(
        "ignore", message='.*add the following callbacks: \\["RunCheckpoint.*'
    )  # `fit` alone has it
    warnings.filterwarnings("ignore", message=".*Experiment logs directory .* exists and is not empty.*")
    warnings.filterwarnings("ignore", message=".*Checkpoint directory .* exists and is not empty.*")
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")  # what is logged is the same on all ranks
    warnings.filterwarnings("ignore", message=".*Detected an existing checkpoint in .*")
    warnings.filterwarnings("ignore", message=".*assuming the intent is to load in a single process.*")
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")


def _run_folder(config: Any, name: str, *, fitting: bool) -> Path:
    """Where the run writes: as configured, else where its checkpoint lies, else runs/NAME, numbered on if taken."""
    given = config.trainer.default_root_dir
    resuming = bool(config.get("ckpt_path"))
    if given is not None:
        root = Path(given)
        if fitting and (root / "config.yaml").exists() and not (config.overwrite or resuming):
            raise ConfigError(
                "trainer.default_root_dir",
                given,
                "a folder without a run",
                "Name another one, or add --overwrite true.",
            )
        return root
    folder = Path(config.get("ckpt_path") or "").parent
    if folder.name == "checkpoints" and (folder.parent / "config.yaml").is_file():
        return folder.parent
    root = Path("runs") / name
    if not fitting or config.overwrite or resuming:
        return root
    numbered = (Path("runs") / f"{name}-{i}" for i in range(2, sys.maxsize))
    return (
        root if not (root / "config.yaml").exists() else next(f for f in numbered if not (f / "config.yaml").exists())
    )
