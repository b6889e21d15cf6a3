"""What `launch` would have the machines do, and how Slurm and SkyPilot are asked for it."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

Platform = Literal["slurm", "sky"]
FILES: dict[Platform, str] = {"slurm": "job.sh", "sky": "sky.yaml"}
"""What each one is given, in the run's `launch/`."""


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

    @property
    def folder(self) -> Path:
        """Where the rendered file, the config and the logs are."""
        return self.root / "launch"

    @property
    def name(self) -> str:
        """Of the job; Slurm and SkyPilot take small letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", f"cod-{self.root.name.lower()}").strip("-")[:40].strip("-")

    @property
    def servers_per_node(self) -> int:
        return max(1, self.gpus // self.gpus_per_server) if self.num_server_nodes else 0

    def rendered(self, platform: Platform) -> str:
        """The file for it."""
        return {"slurm": self._slurm, "sky": self._sky}[platform]()

    def _slurm(self) -> str:
        return self._template("slurm.sh.j2", node=self._node())

    def _sky(self) -> str:
        own: dict[str, Any] = {"name": self.name, "num_nodes": self.num_trainers + self.num_server_nodes}
        if self.num_server_nodes:
            own["secrets"] = {"VLLM_API_KEY": None}
        script = _joined(self.setup, self._template("sky.sh.j2", node=self._node()))
        content = {**own, **(self.sky or {}), "run": script}
        return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)

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


class _Dumper(yaml.SafeDumper):
    """With scripts as blocks of lines."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _joined(*parts: str) -> str:
    return "\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
