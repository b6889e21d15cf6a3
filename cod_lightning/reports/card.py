"""The model card of an exported policy: what it is, how it was trained, what was measured, how to use it."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from cod_lightning.evaluation.view import with_interval
from cod_lightning.markdown import escaped, fenced
from cod_lightning.reports.suites import STALE, read_suites

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_LONGEST = 400
"""Characters of a figure in the card."""


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
    environment = Environment(
        loader=PackageLoader("cod_lightning.reports", "card"),
        autoescape=False,  # it is Markdown: what is foreign passes the filters below
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "escaped": lambda value: escaped(str(value)),
        "fenced": fenced,
        "cell": lambda success, ci95: with_interval(success, ci95, ".2f"),
    }
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
    return environment.get_template("README.md.j2").render(
        facts=facts,
        header=yaml.safe_dump(_header(facts), sort_keys=False, allow_unicode=False).strip(),
        what=what.items(),
        figures=figures(facts.config),
        suites=suites,
        notes=notes,
        stale=stale,
        snippet=_snippet(facts),
        commands=_commands(facts.config),
    )


def base_policy(config: dict[str, Any]) -> str:
    """What the training began from, in a few words."""
    policy = config["model"]["policy"]
    settings = policy.get("init_args") or {}
    begun = settings.get("path") or settings.get("weights") or f"{_class(policy)}, from random numbers"
    warm = config.get("warm_start")
    if isinstance(warm, str):  # of a run of an earlier version, where it was the name of a config
        return f"{begun}, after the warm start {warm}"
    return f"{begun}, after a warm start of {warm['num_updates']:,} updates" if warm else str(begun)


def figures(config: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values of what decides about a training."""
    model, data = config["model"], config["data"]
    loss, credit = model["loss"], model["credit"]
    rows = {
        "loss": _described(loss),
        "credit": _described(credit),
        "baseline": _described(model["baseline"]),
        "tilt of negative advantages (RED)": "no" if model["reweight"] is None else _settings(model["reweight"]),
        "learning rate": model["lr"],
        "terms beside the policy loss": ", ".join(map(_described, model["terms"] or ())) or "none",
        "tasks of a pack": data["pack_size"],
        "sibling lifecycles of a pack": data["group_size"],
        "packs of a rollout": data["packs_per_rollout"],
        "updates of a rollout": data["updates_per_rollout"] * data.get("passes_per_rollout", 1),
        "most tokens of a response": data["max_new_tokens"],
        "world": _described(data["env"]),
        "context": _described(data["context"]),
        "precision": config["trainer"].get("precision") or "32-true",
        "seed": config["seed_everything"],
    }
    shown = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in rows.items()}
    rest = " ... (the rest is in run_config.yaml)"
    return [(name, text if len(text) <= _LONGEST else text[:_LONGEST] + rest) for name, text in shown.items()]


def _header(facts: Facts) -> dict[str, Any]:
    path = str((facts.config["model"]["policy"].get("init_args") or {}).get("path") or "")
    base = {"base_model": path} if _HUB_NAME.fullmatch(path) and not Path(path).exists() else {}
    tags = ["cod_lightning", "agents", "reinforcement-learning"]
    return {"library_name": "transformers", "pipeline_tag": "text-generation", **base, "tags": tags}


def _snippet(facts: Facts) -> str:
    """A program that samples the first response in a held-out world; run from inside the folder."""
    literals = [f"{role} = {_literal(text)}" for role, text in facts.prompt]
    messages = ", ".join(f'{{"role": "{role}", "content": {role}}}' for role, _ in facts.prompt)
    thinking = bool(facts.config["data"]["enable_thinking"])
    return "\n".join(
        [
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            'folder = "."  # this one',
            "tokenizer = AutoTokenizer.from_pretrained(folder)",
            "model = AutoModelForCausalLM.from_pretrained(folder)",
            *literals,
            f"messages = [{messages}]",
            f"options = {{'add_generation_prompt': True, 'enable_thinking': {thinking}}}".replace("'", '"'),
            'ids = tokenizer.apply_chat_template(messages, return_tensors="pt", return_dict=True, **options)["input_ids"]',
            "response = model.generate(ids)[0, ids.shape[1] :]",
            "print(tokenizer.decode(response, skip_special_tokens=True))",
        ]
    )


def _literal(text: str) -> str:
    """A Python expression for the text, a source line for each of its lines."""
    lines = "".join(f"    {line!r}\n" for line in text.splitlines(keepends=True))
    return f"(\n{lines})" if lines.count("\n") > 1 else repr(text)


def _commands(config: dict[str, Any]) -> str:
    """Command lines of this project that take the folder; empty for a policy that takes none."""
    settings = config["model"]["policy"].get("init_args") or {}
    key = next((key for key in ("path", "weights") if key in settings), None)
    if key is None:
        return ""
    policy = f"--config DIR/run_config.yaml --model.policy.{key} DIR"
    engine = config["data"]["engine"]["class_path"]
    return "\n".join(
        [
            f"python -m cod_lightning test {policy}                          # the suites of its run",
            f"python -m cod_lightning deploy {policy} --state agents/ada     # it lives on, and keeps its context",
            f"python -m cod_lightning deploy {policy} --data.engine {engine} --state agents/ada",
        ]
    )


def _described(spec: Any) -> str:
    settings = spec.get("init_args") or {}
    return f"{_class(spec)} ({_settings(settings)})" if settings else _class(spec)


def _class(spec: Any) -> str:
    return str(spec["class_path"]).rpartition(".")[2]


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())
