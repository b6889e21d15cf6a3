"""The model card of an exported policy: what it is, how it was trained, what was measured, how to use it."""

import re
import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from pprint import pformat
from typing import Any

import yaml

from cod_lightning.reports.page import rendered
from cod_lightning.reports.suites import STALE, read_suites

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_OF_MODEL = ("loss", "credit", "baseline", "reweight", "lr", "terms")
_OF_DATA = (
    *("env", "context", "program", "pack_size", "group_size", "packs_per_rollout", "updates_per_rollout"),
    *("passes_per_rollout", "max_new_tokens"),
)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The contents of the card."""

    name: str
    run: str
    """Name of the run's folder; empty where the checkpoint lay by itself."""
    checkpoint: str
    updates: int
    """Optimizer updates behind the checkpoint."""
    learnt: bool = True
    """Whether any of them had a gradient."""
    written: datetime
    config: dict[str, Any]
    """The run's, in plain containers."""
    world: str
    num_parameters: int
    dtype: str
    window: int
    prompt: tuple[tuple[str, str], ...]
    """Role and text of the first messages in a held-out world."""
    evaluation: Path | None
    """Where the run's evaluation.json would be."""
    evaluated: datetime | None
    """When it was written; None where there is none."""
    written_by: dict[str, str]
    """Package versions in the checkpoint."""
    exported_by: dict[str, str]


def render(facts: Facts) -> str:
    """The card as Markdown with the hub's YAML header; every text of models, worlds and configs is escaped or fenced."""
    stale, of = "", f" of run {facts.run}" if facts.run else ""
    if facts.evaluated is not None and facts.evaluated < facts.written:
        stale = STALE.format("the checkpoint")
    elif facts.evaluated is not None and facts.checkpoint != "last.ckpt":
        stale = "Numbers without a checkpoint's name are those of the run's last weights; this checkpoint may be an earlier one."
    what = {
        "base policy": base_policy(facts.config),
        "world": facts.world,
        "checkpoint": f"{facts.checkpoint}{of}, {facts.updates:,} updates, {facts.written:%Y-%m-%d %H:%M} UTC",
        "parameters": f"{facts.num_parameters:,}, in {facts.dtype}",
        "window": f"{facts.window:,} tokens, prompt and response together",
    }
    suites, notes = ({}, []) if facts.evaluation is None else read_suites(facts.evaluation.parent)
    return rendered(
        "card.md.j2",
        facts=facts,
        header=yaml.safe_dump(_header(facts), sort_keys=False, allow_unicode=False).strip(),
        what=what.items(),
        settings=settings(facts.config),
        suites=suites,
        notes=notes,
        stale=stale,
        messages=pformat([{"role": role, "content": text} for role, text in facts.prompt], width=100, sort_dicts=False),
        commands=_commands(facts.config),
    )


def base_policy(config: dict[str, Any]) -> str:
    """What the training began from, in a few words."""
    policy = config["model"]["policy"]
    settings = policy.get("init_args") or {}
    name = policy["class_path"].rpartition(".")[2]
    begun = settings.get("path") or settings.get("weights") or f"{name}, from random numbers"
    warm = config.get("warm_start")
    number = warm.get("num_updates") if isinstance(warm, dict) else None
    return f"{begun}, after a warm start of {number:,} updates" if isinstance(number, int) else str(begun)


def settings(config: dict[str, Any]) -> str:
    """What decides about a training, in YAML."""
    parts = ("model", _OF_MODEL), ("data", _OF_DATA)
    chosen = {part: {key: config[part][key] for key in keys if key in config[part]} for part, keys in parts}
    return yaml.safe_dump(chosen | {"seed_everything": config["seed_everything"]}, sort_keys=False)


def _header(facts: Facts) -> dict[str, Any]:
    path = str((facts.config["model"]["policy"].get("init_args") or {}).get("path") or "")
    base = {"base_model": path} if _HUB_NAME.fullmatch(path) and not Path(path).exists() else {}
    tags = ["cod_lightning", "agents", "reinforcement-learning"]
    return {"library_name": "transformers", "pipeline_tag": "text-generation", **base, "tags": tags}


def _commands(config: dict[str, Any]) -> str:
    """Command lines of this project that take the folder; empty for a policy that takes none."""
    settings = config["model"]["policy"].get("init_args") or {}
    key = next((key for key in ("path", "weights") if key in settings), None)
    if key is None:
        return ""
    policy = f"--config DIR/run_config.yaml --model.policy.{key} DIR"
    engine = shlex.quote(str(config["data"]["engine"]["class_path"]))  # a checkpoint of others may say anything
    return "\n".join(
        [
            f"python -m cod_lightning test {policy}                          # the suites of its run",
            f"python -m cod_lightning deploy {policy} --state agents/ada     # it lives on, and keeps its context",
            f"python -m cod_lightning deploy {policy} --data.engine {engine} --state agents/ada",
        ]
    )
