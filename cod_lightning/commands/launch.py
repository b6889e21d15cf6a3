"""`launch`: one run on many machines, by Slurm; checked before anything is submitted.

What machines do is in `launch_templates/job.sh.j2`, an sbatch file: torchrun for the ranks, `serve` for vLLM.
"""

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
from jinja2 import Environment, PackageLoader, StrictUndefined
from jsonargparse.typing import Path_fr

from cod_lightning.checkpoints.changes import check_changes
from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.checkpoints.folder import newest
from cod_lightning.commands.parser import Options
from cod_lightning.commands.train import TrainCLI, built
from cod_lightning.commands.trainer_settings import num_processes, settle_strategy
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.errors import ConfigError, in_a_line
from cod_lightning.files import held, locked, write_whole
from cod_lightning.ranges import Count, Natural

_File: Any = Path_fr
_OPTIONS: Options = {
    "nodes": (Count, 1, "Machines."),
    "servers": (Natural, 0, "Machines of those that serve rollouts by vLLM; the others train."),
    "gpus": (Natural, 8, "GPUs of each machine; 0 runs on CPUs, with trainer.devices ranks."),
    "gpus_per_server": (Count, 1, "GPUs that a vLLM server is spread over (tensor parallel)."),
    "python": (str, sys.executable, "Python on the machines."),
    "setup": (_File | None, None, "File of shell lines that every machine begins with, such as module load."),
    "sbatch": (list[str], [], "Further options of sbatch, as in '[--partition=gpu, --time=1-0]'."),
    "dry_run": (None, False, "Print what would be submitted; write and submit nothing."),
}


class LaunchCLI(TrainCLI):
    """`TrainCLI` that takes the machines' part of the config from the number of machines."""

    def before_instantiate_classes(self) -> None:
        """The config that the machines get."""
        config, trainer = self.config, self.config.trainer
        if config.servers >= config.nodes:
            expected = f"below --nodes, which is {config.nodes}, since one machine has to train"
            raise ConfigError("--servers", config.servers, expected, "Raise --nodes, or lower it.")
        trainer.num_nodes = config.nodes - config.servers
        trainer.accelerator = "gpu" if config.gpus else "cpu"
        trainer.devices = config.gpus or num_processes(trainer) // trainer.num_nodes
        root = Path(os.path.expanduser(trainer.default_root_dir or f"runs/{self.run_name}")).absolute()
        trainer.default_root_dir = str(root)
        if config.servers:
            engine, asked = config.data.engine, config.data.engine.init_args
            if engine.class_path.rpartition(".")[2] != VLLMServerEngine.__name__:
                expected = "engine=VLLMServerEngine where machines serve"
                raise ConfigError("data.engine", engine.class_path, expected, "Choose it, or leave --servers out.")
            asked.urls = [f"http://server{i}:8000" for i in range(config.servers)]
            asked.api_key_variable = "VLLM_API_KEY"
            asked.wait_s = max(asked.wait_s, asked.local.start_timeout_s)
            asked.return_s = max(asked.return_s, asked.local.start_timeout_s)  # of a server that is started again
            asked.weights_folder = asked.weights_folder or str(root / "launch" / "weights")
        settle_strategy(trainer.clone())
        whole = yaml.safe_load(self.parser.dump(config, skip_none=False))
        self.asked = {key: whole[key] for key in whole if key not in (*_OPTIONS, "config")}
        super().before_instantiate_classes()


def run(argv: Sequence[str]) -> int:
    """Check, render, submit."""
    cli = built("launch", _OPTIONS, argv, LaunchCLI)
    cli.check_fit()
    cli.check_played(elsewhere=True)
    asked, root = cli.config, Path(cli.asked["trainer"]["default_root_dir"])
    content = yaml.safe_dump(cli.asked, sort_keys=False)
    if (path := newest(root / "checkpoints", needed=False)) is not None:  # else the job is refused after it has waited
        check_changes(read_checkpoint(path), content, num_processes(cli.asked_trainer), accepted=asked.accept_changes)
    # named by what it holds: a job that waits trains what it was launched with, whatever is launched next
    config = f"config-{hashlib.sha256(content.encode()).hexdigest()[:8]}.yaml"
    text = rendered(
        root=root,
        config=config,
        cwd=Path.cwd(),
        cache=Path(os.environ.get("COD_LIGHTNING_CACHE") or root.parent / "cache").absolute(),
        python=asked.python,
        num_trainers=asked.nodes - asked.servers,
        num_server_nodes=asked.servers,
        gpus=asked.gpus,
        processes=cli.asked_trainer.devices,
        gpus_per_server=asked.gpus_per_server if asked.gpus else 1,
        setup="" if asked.setup is None else asked.setup.get_content(),
    )
    if asked.dry_run:
        print(text, end="")
        return 0
    if held(root):
        expected = "a folder in which no fit runs"
        raise ConfigError("trainer.default_root_dir", root, expected, "Wait until it has ended, or name another.")
    folder = root / "launch"
    with locked(folder, "trainer.default_root_dir", "launch"):
        path = folder / "job.sh"
        write_whole(folder / config, content)
        write_whole(path, text)
        print(f"wrote {path}")
        _submit(path, asked.sbatch)
    return 0


def rendered(*, root: Path, **values: Any) -> str:
    """The sbatch file. Names are quoted for the shell."""
    environment = Environment(
        loader=PackageLoader("cod_lightning.commands", "launch_templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    values |= {key: shlex.quote(str(values[key])) for key in ("cwd", "cache", "python", "config")}
    values |= {
        "folder": shlex.quote(str(root / "launch")),
        "name": f"cod-{re.sub('[^a-z0-9]', '-', root.name.lower())}"[:40].strip("-"),
        "num_nodes": values["num_trainers"] + values["num_server_nodes"],
        "servers_per_node": max(1, values["gpus"] // values["gpus_per_server"]) if values["num_server_nodes"] else 0,
    }
    return environment.get_template("job.sh.j2").render({"setup": "", **values})


def _submit(path: Path, options: Sequence[str]) -> None:
    """Hand it to sbatch where that is there, else print what to type."""
    line = ["sbatch", "--parsable", *options, path.name]
    if shutil.which("sbatch") is None:
        print(f"No sbatch here; where Slurm is: cd {shlex.quote(str(path.parent))} && {shlex.join(line)}")
        return
    done = subprocess.run(line, cwd=path.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        said = in_a_line(done.stderr) or f"code {done.returncode}"
        raise ConfigError("sbatch", path, f"a job that Slurm takes ({said})", "Change --sbatch.")
    print(f"job {done.stdout.strip().partition(';')[0]}: logs in {path.parent}")
