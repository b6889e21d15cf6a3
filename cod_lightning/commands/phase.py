"""The warm start, a run's first phase: trained once for a config and a seed, and kept in a cache for every run that begins so."""

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from lightning.fabric.utilities.rank_zero import rank_zero_only

from cod_lightning import __version__, datamodules, modules
from cod_lightning.adapters import has_adapter
from cod_lightning.cache import class_paths, made_once, sources
from cod_lightning.checkpoints.folder import AUTO
from cod_lightning.commands.lightning_cli import CodCLI, start
from cod_lightning.commands.parser import Options
from cod_lightning.commands.shipped import overlaid
from cod_lightning.envs.base import TextEnv
from cod_lightning.modules.policy import OptimizerName
from cod_lightning.ranges import Count, Natural, Positive
from cod_lightning.trusted import leaves

_NAMING = ("path", "weights", "tasks", "first")
"""Last parts of the keys by which environments, policies and contexts name files and folders."""
_MOST_DIGESTED = 2**26
"""Bytes of a file whose content decides, and not its time."""


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """A supervised start on demonstrations of the run's environment, in its context and program, by its policy.

    `env`, `program` and `policy` change single arguments of the run's own, or name another `class_path`.
    """

    num_updates: Count = 1500
    """Optimizer updates."""
    packs_per_update: Count = 3
    """Packs whose episodes make one update."""
    num_packs: Count = 1500
    """Different packs; more updates than these hold go over them again."""
    optimizer: OptimizerName = "adamw"
    """As in `model.optimizer`."""
    lr: Positive = 3e-3
    """Largest learning rate; after its warm-up it falls linearly to 0."""
    warmup_updates: Natural = 50
    """Updates over which the learning rate rises linearly from 0."""
    token_budget: Count | None = None
    """Most tokens of a micro-batch, padding included; null takes an update whole."""
    teacher: dict[str, Any] | None = None
    """How good the demonstrations are: `data.env.teacher` for the warm start alone."""
    env: dict[str, Any] | None = None
    """What the demonstrated environment has in place of `data.env`'s; its words must be those of the run."""
    program: dict[str, Any] | None = None
    """Likewise of `data.program`."""
    policy: dict[str, Any] | None = None
    """Likewise of `model.policy`; an adapter whose `path` is null is trained over the policy that is named here."""
    pack_size: Count | None = None
    """Tasks of a demonstrated pack; null takes `data.pack_size`."""


def config_of(run: Mapping[str, Any], words: Sequence[str] | None = None) -> dict[str, Any]:
    """The config of the warm start's own CLI: `warm_start` of a run's resolved config, and of the rest what the run has.

    `words` is the run's vocabulary, which the demonstrations of another environment are in, too.
    """
    asked, data, policy = run["warm_start"], run["data"], run["model"]["policy"]
    teacher = {} if asked["teacher"] is None else {"teacher": asked["teacher"]}
    sizes = ("num_updates", "packs_per_update", "num_packs")
    other = {} if asked["env"] is None or not words else {"words": list(words)}
    apart = (*sizes, "teacher", "env", "program", "policy", "pack_size")
    return {
        "seed_everything": run["seed_everything"],
        "torch_threads": run["torch_threads"],
        "overwrite": True,
        "checkpoint_every": -(-asked["num_updates"] // 4),  # of a large model each takes seconds
        "keep_checkpoints": 1,
        "model": {
            "policy": overlaid(policy, asked["policy"] or {}),
            **{key: value for key, value in asked.items() if key not in apart},
        },
        "data": {
            "env": overlaid(overlaid(data["env"], asked["env"] or {}), teacher),
            "context": data["context"],
            "program": overlaid(data["program"], asked["program"] or {}),
            "pack_size": data["pack_size"] if asked["pack_size"] is None else asked["pack_size"],
            "max_new_tokens": data["max_new_tokens"],
            **{key: asked[key] for key in sizes},
            **other,
        },
        "trainer": {
            "max_epochs": 1,
            # a run on GPUs is compared with it on whatever there is
            "accelerator": "cpu" if run["trainer"]["accelerator"] == "cpu" else "auto",
            "precision": run["trainer"]["precision"],
        },
    }


def ensure_warm_start(run: Mapping[str, Any], words: Sequence[str] | None = None) -> tuple[Path, TextEnv]:
    """The folder of the policy with which the run begins, trained now unless the cache has it, and the demonstrated environment.

    Args:
        run: The resolved config of the run.
        words: The run's vocabulary, for demonstrations of another environment.
    """
    config = config_of(run, words)
    cli = started(config)

    def make(folder: Path) -> None:
        cli.datamodule.check_with(cli.model.policy)
        print(f"warm start: {run['warm_start']['num_updates']:,} updates, once; then cached", file=sys.stderr)
        begun = time.perf_counter()
        run_folder = folder.with_suffix(".run")  # stays, for who wants to look at its curves
        goes_on: Options = {"ckpt_path": (str | None, AUTO, "Where one that was stopped goes on.")}
        config["trainer"]["default_root_dir"] = str(run_folder)
        save_policy(started(config, action="fit", options=goes_on), folder)
        shutil.rmtree(run_folder / "checkpoints", ignore_errors=True)
        print(f"warm start: done in {time.perf_counter() - begun:.0f} s", file=sys.stderr)

    folder = made_once("warm_start", _key(cli.parser.dump(cli.config)), make, "warm start")
    rank_zero_only(print)(f"warm start: kept in {folder}", file=sys.stderr)
    return folder, cli.datamodule.env


def started(config: Mapping[str, Any], **how: Any) -> Any:
    """The CLI of a warm start with this config; `how` are its other arguments."""
    argv = ["--config", yaml.safe_dump(dict(config), sort_keys=False)]
    return start(CodCLI, modules.WarmStartModule, datamodules.DemonstrationDataModule, argv, "warm_start", **how)


def save_policy(cli: CodCLI, folder: Path) -> None:
    """Write the trained model, with an adapter merged into its base, and its tokenizer, in Hugging Face form."""
    from cod_lightning.models.lora import merged

    model = cli.model.model
    plain = merged(model) if has_adapter(model) else cli.model.plain_model()
    weights = None if has_adapter(model) else dict(cli.model.synced_weights(adapter=False))
    if cli.trainer.is_global_zero:
        plain.save_pretrained(folder, state_dict=weights)
        cli.datamodule.chat.tokenizer.save_pretrained(folder)


def _key(config: str) -> str:
    """Whatever decides the result: the resolved config (with its seed), the versions that compute it, the code of its classes, and
    the files that it names.

    A world that its author has edited keeps its class path, and demonstrates something else; so does a file with other rows.
    """
    homes = {name.rpartition(".")[0] for name in class_paths(config)}
    code = (path.read_text(errors="replace") for path in sources(homes))
    content = yaml.safe_load(config)
    files = _marks({part: content[part] for part in ("data", "model")})
    parts = (config, __version__, torch.__version__, transformers.__version__, *code, *files)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _marks(content: Any) -> Iterator[str]:
    """Of each file that a value of the config names, alone or in a folder or package: a digest, or of a large one size and time."""
    for key, value in leaves(content):
        if not (isinstance(value, str) and value and key.endswith(_NAMING)):
            continue
        from cod_lightning.models.gguf.cache import gguf_file

        place = Path(value) if os.path.exists(value) else gguf_file(value, key)
        if place is None:
            continue
        for file in sorted(path for path in (place, *place.rglob("*")) if path.is_file()):
            facts = file.stat()
            large = facts.st_size > _MOST_DIGESTED
            mark = f"{facts.st_size} {facts.st_mtime_ns}" if large else hashlib.sha256(file.read_bytes()).hexdigest()
            yield f"{file.relative_to(place)} {mark}"  # a package in another environment is the same
