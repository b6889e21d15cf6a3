"""`launch`: one run on many machines, by Slurm or SkyPilot; checked before anything is submitted."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch.cli import LightningArgumentParser

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.commands.changes import check_changes
from cod_lightning.commands.config_files import expand
from cod_lightning.commands.launch_plan import FILES, LaunchPlan, Platform
from cod_lightning.commands.lightning_cli import start
from cod_lightning.commands.memory import plan_of as memory_plan_of
from cod_lightning.commands.plan import PlanCLI
from cod_lightning.commands.resume import newest
from cod_lightning.commands.trainer_settings import num_processes, settle_strategy
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.datamodules.checks import check_trainable
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.process import check_spread
from cod_lightning.errors import ConfigError, check_at_least
from cod_lightning.folder_lock import held, locked
from cod_lightning.modules import GRPOModule
from cod_lightning.modules.checks import check_combination
from cod_lightning.ranks import check_shares
from cod_lightning.whole_file import write_whole

_OWN = {
    "nodes": (int, 1, "Machines."),
    "servers": (int, 0, "Machines of those that serve rollouts by vLLM; the others train."),
    "gpus": (
        int,
        8,
        "GPUs of each machine, all of which are used; 0 runs on CPUs, with trainer.devices ranks on each.",
    ),
    "gpus_per_server": (int, 1, "GPUs that a vLLM server is spread over (tensor parallel)."),
    "to": (Platform, "slurm", "What starts the machines' work."),
    "dry_run": (bool, False, "Print what would be submitted; write and submit nothing."),
    "python": (str | None, None, "Python on the machines; null: this one for slurm, else `python`."),
    "setup": (str | None, None, "File of shell lines that every machine begins with, such as module load."),
    "sbatch": (str, "", "Further options of sbatch, as in '--partition=gpu --time=1-0'."),
    "sky": (str | None, None, "YAML file with further keys for SkyPilot: resources, file_mounts, setup."),
}
"""Options that are not a run's: type, default, help."""
_NOT_THE_RUN_S = (*_OWN, "config", "gpu_gb", "pace")
_SBATCH = re.compile(r"--?[A-Za-z][A-Za-z-]*(=[\w.,:/@%+\[\]*-]+)?")


class LaunchCLI(PlanCLI):
    """`PlanCLI` that takes the machines' part of the config from the number of machines."""

    command = "launch"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        super().add_arguments_to_parser(parser)
        for name, (kind, default, text) in _OWN.items():
            flags = (f"--{name}", "--dry-run") if name == "dry_run" else (f"--{name}",)
            more: Any = {"action": "store_true"} if kind is bool else {"type": kind, "default": default}
            parser.add_argument(*flags, **more, help=text)

    def before_instantiate_classes(self) -> None:
        """The config that the machines get, and the checks of `fit` that are about them."""
        config = self.config
        check_machines(config)
        trainer, training = config.trainer, config.nodes - config.servers
        trainer.num_nodes, trainer.accelerator = training, "gpu" if config.gpus else "cpu"
        if config.gpus:
            trainer.devices = config.gpus
        elif num_processes(trainer) is None:
            trainer.devices = 1
        root = Path(trainer.default_root_dir or Path("runs") / self.run_name).absolute()
        trainer.default_root_dir = str(root)
        if config.servers:
            self._serve_from_elsewhere(root)
        kept = trainer.clone()
        settle_strategy(kept)
        whole = yaml.safe_load(self.parser.dump(config, skip_none=False))
        self.asked = {key: value for key, value in whole.items() if key not in _NOT_THE_RUN_S}
        self.processes = num_processes(trainer) or training
        super().before_instantiate_classes()

    def _serve_from_elsewhere(self, root: Path) -> None:
        engine = self.config.data.engine
        if engine.class_path.rpartition(".")[2] != VLLMServerEngine.__name__:
            expected = "engine=vllm_server where machines serve"
            raise ConfigError("data.engine", engine.class_path, expected, "Choose it, or leave --servers out.")
        asked = engine.init_args
        if asked.urls:
            expected = "null, since the servers of --servers get addresses when the job begins"
            raise ConfigError("data.engine.urls", asked.urls, expected, "Leave one of them out.")
        if self.config.gpus:
            check_spread(self.config.gpus_per_server, asked.local)
        asked.urls = [f"http://server{i}:8000" for i in range(self.config.servers)]
        asked.api_key_variable = "VLLM_API_KEY"
        asked.wait_s = max(asked.wait_s, asked.local.start_timeout_s)
        asked.return_s = max(asked.return_s, asked.local.start_timeout_s)  # of a server that is started again
        asked.weights_folder = asked.weights_folder or str(root / "launch" / "weights")

    def check(self) -> None:
        """What `fit` checks before its warm start, but for what only the machines can answer."""
        module, data, config = self.model, self.datamodule, self.config
        check_combination(module, data)
        check_trainable(data.engine)
        check_shares(data.packs_per_rollout, data.updates_per_rollout, self.processes)
        strategy = self.asked_trainer.strategy
        module.check_strategy(getattr(strategy, "class_path", str(strategy)).rpartition(".")[2])
        if not module.policy.waits_for_warm_start:
            data.check_with(module.policy, elsewhere=True)
            module.check_scorers(data)
            data.check_suites()
        if config.gpu_gb is not None:
            memory = memory_plan_of(module, data, self.asked_trainer, config.gpu_gb)
            if not memory.fits:
                expected = f"a training that fits; it takes {memory.total / 2**30:.1f} GiB"
                raise ConfigError("--gpu_gb", config.gpu_gb, expected, " ".join(memory.advice()))
        if (path := newest(self.root / "checkpoints", needed=False)) is not None:
            text = yaml.safe_dump(self.asked, sort_keys=False)
            check_changes(read_checkpoint(path), text, self.processes, accepted=config.accept_changes)


def run(argv: Sequence[str]) -> int:
    """Check, render, submit."""
    expanded = expand(argv)
    LaunchCLI.run_name = expanded.names[0] if expanded.names else "run"
    cli = start(LaunchCLI, GRPOModule, RolloutDataModule, expanded.argv, execute=False)
    cli.check()
    content = yaml.safe_dump(cli.asked, sort_keys=False)
    plan, platform = plan_of(cli, f"config-{hashlib.sha256(content.encode()).hexdigest()[:8]}.yaml"), cli.config.to
    text = plan.rendered(platform)
    if cli.config.dry_run:
        print(text, end="")
        return 0
    if held(plan.root):
        expected = "a folder in which no fit runs"
        raise ConfigError("trainer.default_root_dir", plan.root, expected, "Wait until it has ended, or name another.")
    with locked(plan.folder, "trainer.default_root_dir", "launch"):
        path = plan.folder / FILES[platform]
        write_whole(plan.folder / plan.config, content)
        write_whole(path, text)
        print(f"wrote {path}")
        return _submit(plan, platform, path)


def plan_of(cli: LaunchCLI, config: str) -> LaunchPlan:
    """The plan that the options of `launch` ask for."""
    asked, root = cli.config, Path(cli.asked["trainer"]["default_root_dir"])
    return LaunchPlan(
        root=root,
        config=config,
        cwd=Path.cwd(),
        cache=Path(os.environ.get("COD_LIGHTNING_CACHE") or root.parent / "cache").absolute(),
        python=asked.python or (sys.executable if asked.to == "slurm" else "python"),
        num_trainers=asked.nodes - asked.servers,
        num_server_nodes=asked.servers,
        gpus=asked.gpus,
        processes=cli.processes // (asked.nodes - asked.servers),
        gpus_per_server=asked.gpus_per_server if asked.gpus else 1,
        setup=_read("--setup", asked.setup),
        sbatch=tuple(shlex.split(asked.sbatch)),
        sky=sky_keys(asked.sky),
    )


def check_machines(asked: Any) -> None:
    """Raise `ConfigError` for machines that make no sense, and for options that the platform lacks or has no use for."""
    check_at_least("--nodes", asked.nodes, 1, "1 is the default.")
    if not 0 <= asked.servers < asked.nodes:
        expected = f"from 0 to {asked.nodes - 1}, since one of --nodes {asked.nodes} has to train"
        raise ConfigError("--servers", asked.servers, expected, "Raise --nodes, or lower it.")
    check_at_least("--gpus", asked.gpus, 0, "8 is the default; 0 runs on CPUs.")
    if asked.gpus_per_server < 1 or (asked.gpus and asked.gpus % asked.gpus_per_server):
        expected = f"a divisor of --gpus, which is {asked.gpus}"
        raise ConfigError("--gpus_per_server", asked.gpus_per_server, expected, "1 is the default.")
    only = {"sbatch": "slurm", "sky": "sky"}
    for option, platform in only.items():
        if asked[option] and asked.to != platform:
            raise ConfigError(f"--{option}", asked[option], f"--to {platform} beside it", "Leave one of them out.")
    try:
        options = shlex.split(asked.sbatch)
    except ValueError as error:
        raise ConfigError("--sbatch", asked.sbatch, f"options of sbatch ({error})", "Close the quote.") from None
    for option in options:
        if not _SBATCH.fullmatch(option):
            expected = "options of sbatch, each as --KEY or --KEY=VALUE"
            raise ConfigError("--sbatch", option, expected, "Write '--partition=gpu --time=1-0', for example.")


def sky_keys(file: str | None) -> dict[str, Any]:
    """What a file adds to SkyPilot's YAML. Raises `ConfigError` for keys that are `launch`'s own."""
    try:
        content = yaml.safe_load(_read("--sky", file)) or {}
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError("--sky", file, "a YAML file", f"Correct it: {reason}.") from None
    if not isinstance(content, dict) or {"name", "num_nodes", "run", "secrets"} & content.keys():
        expected = "a YAML file with keys of SkyPilot but name, num_nodes, run and secrets"
        raise ConfigError("--sky", file, expected, "It may hold resources, file_mounts, setup and envs.")
    return content


def _read(option: str, file: str | None) -> str:
    if file is None:
        return ""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(option, file, f"a text file ({error})", "Check the path.") from None


def _submit(plan: LaunchPlan, platform: Platform, path: Path) -> int:
    """Hand it to sbatch where that is there, else print what to type."""
    if platform == "sky":
        secret = ' --secret VLLM_API_KEY="$(openssl rand -hex 32)"' if plan.num_server_nodes else ""
        print(f"Start it: sky jobs launch {shlex.quote(str(path))}{secret}")
        return 0
    line = ["sbatch", "--parsable", path.name]
    if shutil.which("sbatch") is None:
        print(f"No sbatch here; where Slurm is: cd {shlex.quote(str(plan.folder))} && {shlex.join(line)}")
        return 0
    done = subprocess.run(line, cwd=plan.folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"code {done.returncode}"
        raise ConfigError("sbatch", path, f"a job that Slurm takes ({said})", "Change --sbatch.")
    print(f"job {done.stdout.strip().partition(';')[0]}: logs in {plan.folder}")
    return 0
