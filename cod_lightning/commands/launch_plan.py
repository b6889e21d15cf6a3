"""What `launch` would have the machines do, and how Slurm, SkyPilot and Docker Compose are asked for it."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

Platform = Literal["slurm", "sky", "compose"]
FILES: dict[Platform, str] = {"slurm": "job.sh", "sky": "sky.yaml", "compose": "compose.yaml"}
"""What each one is given, in the run's `launch/`."""
_SERVER_PORT, _MASTER_PORT = 8000, 29500


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """Machines that train, machines that serve, and the config of the run in a folder that all of them see."""

    root: Path
    """Folder of the run."""
    config: str
    """File in `folder`, named by what it holds: a job that waits trains what it was launched with, whatever is launched next."""
    cwd: Path
    """Where the commands run; paths in the config may be relative to it."""
    cache: Path
    python: str
    num_trainers: int
    num_server_nodes: int
    gpus: int
    """Of each machine; 0 is for a run on CPUs."""
    processes: int
    """Ranks on each machine that trains."""
    gpus_per_server: int
    setup: str = ""
    """Lines of shell that every machine begins with."""
    sbatch: tuple[str, ...] = ()
    """Further options of sbatch."""
    sky: Mapping[str, Any] | None = None
    """Further keys of SkyPilot's YAML: resources, file_mounts and so on."""
    image: str = ""
    """What containers are made from."""
    addresses: tuple[str, ...] = ()
    """Of the machines that Docker Compose runs on, those that train first."""

    @property
    def folder(self) -> Path:
        """Where the rendered file, the config and the logs are."""
        return self.root / "launch"

    @property
    def name(self) -> str:
        """Of the job; Slurm, SkyPilot and Compose take small letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", f"cod-{self.root.name.lower()}").strip("-")[:40].strip("-")

    @property
    def servers_per_node(self) -> int:
        return max(1, self.gpus // self.gpus_per_server) if self.num_server_nodes else 0

    def rendered(self, platform: Platform) -> str:
        """The file for it."""
        return {"slurm": self._slurm, "sky": self._sky, "compose": self._compose}[platform]()

    def _slurm(self) -> str:
        return self._template("slurm.sh.j2", node=self._node())

    def _sky(self) -> str:
        own: dict[str, Any] = {"name": self.name, "num_nodes": self.num_trainers + self.num_server_nodes}
        if self.num_server_nodes:
            own["secrets"] = {"VLLM_API_KEY": None}
        script = _joined(self.setup, self._template("sky.sh.j2", node=self._node()))
        return _as_yaml({**own, **(self.sky or {}), "run": script})

    def _compose(self) -> str:
        """One file for all machines, each of which starts its own profile."""
        hosts = self.addresses
        urls = [
            f"http://{host}:{_SERVER_PORT + i}"
            for host in hosts[self.num_trainers :]
            for i in range(self.servers_per_node)
        ]
        shared = {
            "MASTER_PORT": str(_MASTER_PORT),
            "SERVER_PORT": str(_SERVER_PORT),
            "FIRST": hosts[0],
            "URLS": f"[{','.join(urls)}]",
        }
        services: dict[str, Any] = {}
        for index in range(len(hosts)):
            trains = index < self.num_trainers
            rank = {"NODE_RANK": str(index)} if trains else {"SERVER_RANK": str(index - self.num_trainers)}
            script = _joined(self.setup, "set -uo pipefail", self._node(), "train" if trains else "serve")
            key = {"VLLM_API_KEY": "${VLLM_API_KEY:?export the same one on all machines}"} if urls else {}
            service: dict[str, Any] = {
                "image": _undollared(self.image),
                "profiles": [f"machine{index}"],
                "network_mode": "host",
                "ipc": "host",
                "restart": "on-failure:3",
                "stop_grace_period": "5m",
                "environment": {name: _undollared(value) for name, value in (shared | rank).items()} | key,
                "volumes": [
                    {"type": "bind", "source": _undollared(str(path)), "target": _undollared(str(path))}
                    for path in dict.fromkeys((self.root, self.cache, self.cwd))
                ],
                "entrypoint": ["bash", "-c"],
                "command": [_undollared(script)],
            }
            if self.gpus:
                device = {"driver": "nvidia", "count": self.gpus, "capabilities": ["gpu"]}
                service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
            services[f"{'train' if trains else 'serve'}{index if trains else index - self.num_trainers}"] = service
        return _as_yaml({"name": self.name, "services": services})

    def _node(self) -> str:
        """Shell functions for one machine."""
        return self._template("node.sh.j2")

    def _template(self, name: str, **more: str) -> str:
        """The template with this plan's values; whatever is free text is quoted for the shell."""
        environment = Environment(
            loader=PackageLoader("cod_lightning.commands", "launch_templates"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        quoted = {
            "cwd": self.cwd,
            "cache": self.cache,
            "python": self.python,
            "folder": self.folder,
            "config": self.config,
        }
        numbers = {
            "num_nodes": self.num_trainers + self.num_server_nodes,
            "num_trainers": self.num_trainers,
            "num_server_nodes": self.num_server_nodes,
            "servers_per_node": self.servers_per_node,
            "gpus": self.gpus,
            "gpus_per_server": self.gpus_per_server,
            "processes": self.processes,
        }
        return environment.get_template(name).render(
            **{key: shlex.quote(str(value)) for key, value in quoted.items()},
            **numbers,
            name=self.name,
            sbatch=self.sbatch,
            setup=self.setup,
            **more,
        )


class _Block(str):
    """Text that YAML writes line by line."""


class _Dumper(yaml.SafeDumper):
    """With scripts as blocks of lines, and no shorthand for what occurs twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(_Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))


def _as_yaml(content: Any) -> str:
    return yaml.dump(_blocks(content), Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)


def _blocks(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _blocks(value) for key, value in content.items()}
    if isinstance(content, str):
        return _Block(content) if "\n" in content else content
    return [_blocks(one) for one in content] if isinstance(content, Sequence) else content


def _joined(*parts: str) -> str:
    return "\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _undollared(text: str) -> str:
    """Compose puts variables of its own environment into what has a dollar sign."""
    return text.replace("$", "$$")
