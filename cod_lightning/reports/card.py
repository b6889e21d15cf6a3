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
from cod_lightning.reports.suites import STALE, read_evaluation

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
    suites, notes = ({}, []) if facts.evaluation is None else read_evaluation(facts.evaluation.parent)
    given = _given(facts.config)
    path = str(given.get("path") or "")
    return rendered(
        "card.md.j2",
        facts=facts,
        base=path if _HUB_NAME.fullmatch(path) and not Path(path).exists() else "",
        what=what.items(),
        settings=settings(facts.config),
        suites=suites,
        notes=notes,
        stale=stale,
        messages=pformat([{"role": role, "content": text} for role, text in facts.prompt], width=100, sort_dicts=False),
        folder_key=next((key for key in ("path", "weights") if key in given), ""),
        # a checkpoint of others may say anything
        engine=shlex.quote(str(facts.config["data"]["engine"]["class_path"])),
    )


def base_policy(config: dict[str, Any]) -> str:
    """What the training began from, in a few words."""
    given, name = _given(config), config["model"]["policy"]["class_path"].rpartition(".")[2]
    begun = given.get("path") or given.get("weights") or f"{name}, from random numbers"
    warm = config.get("warm_start")
    number = warm.get("num_updates") if isinstance(warm, dict) else None
    return f"{begun}, after a warm start of {number:,} updates" if isinstance(number, int) else str(begun)


def settings(config: dict[str, Any]) -> str:
    """What decides about a training, in YAML."""
    parts = ("model", _OF_MODEL), ("data", _OF_DATA)
    chosen = {part: {key: config[part][key] for key in keys if key in config[part]} for part, keys in parts}
    return yaml.safe_dump(chosen | {"seed_everything": config["seed_everything"]}, sort_keys=False)


def _given(config: dict[str, Any]) -> dict[str, Any]:
    """What the policy is made with."""
    return config["model"]["policy"].get("init_args") or {}
