"""The command `evolve`: `evolution.py` on a config's run, and what came of it in a folder."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from cod_lightning.contexts.base import Stored, beside
from cod_lightning.errors import ConfigError
from cod_lightning.files import check_folder, locked, write_whole
from cod_lightning.methods.evolution import Evolution, Round
from cod_lightning.ranges import Count, Natural
from cod_lightning.rollout.deadlines import STALLED, Watchdog
from cod_lightning.rollout.setting import Setting
from cod_lightning.terminal import Screen
from cod_lightning.types import Pack, Split

_FILE = "evolution.json"
OPTIONS = {
    "out": (str, ..., "Folder of the results; made if need be."),
    "rounds": (Natural, 10, "Rewrites that are tried."),
    "num_packs": (Count, 16, "Validation packs by which candidates are selected."),
    "round_packs": (Count, 3, "Training packs that a round plays and reflects on."),
}


def run(cli: Any, setting: Callable[[], Setting], draw: Callable[[Split, int], Pack]) -> int:
    """Evolve, and write what came of it after each round."""
    options, data = cli.config, cli.datamodule
    console, folder, name = Screen(), Path(options.out), type(data.context).__name__
    check_folder(folder, "--out")
    if (folder / _FILE).exists():
        raise ConfigError("--out", folder, f"a folder without {_FILE}", "Name another one.")
    if not data.context.updates:
        expected = f"a mechanism that the policy rewrites, unlike {name}"
        raise ConfigError("data.context", name, expected, "Choose context=HintContext.")
    played = setting()

    def packs(split: Split, number: int, index: int = 0) -> list[Pack]:
        first = index * number
        return [draw(split, first + n) for n in range(number)]

    remedy = f"{folder / _FILE} has the rounds that are over"
    watched = Watchdog(played.sampler.liveness, data.deadlines.stall_s, folder / STALLED, "the evolution", remedy)
    with locked(folder, "--out", "evolve"), watched:
        drawn = partial(packs, Split.TRAIN, options.round_packs)
        evolution = Evolution(played, packs(Split.VALIDATION, options.num_packs), drawn, data.seed)
        console.print(f"{_mean(evolution)} with nothing to begin with")
        rounds: list[Round] = []
        _write(folder, cli, evolution, rounds)
        for number, one in enumerate(evolution.rounds(options.rounds), start=1):
            rounds.append(one)
            came = f"refused: {one.refused}" if one.refused else f"kept; {_mean(evolution)}"
            tested = f"{one.before:.3f} -> {one.after:.3f} in {options.round_packs} packs, "
            console.print(f"round {number}: from {one.parent}, {'' if math.isnan(one.before) else tested}{came}")
            _write(folder, cli, evolution, rounds)
    best = evolution.best
    console.print(f"best, mean reward {best.mean:.3f}:\n{best.text or '(empty)'}", soft_wrap=True)
    use = f"Use it: test ... --config {quote(str(folder))}/context.yaml"
    console.print(f"{evolution.num_lifecycles} lifecycles were played. {use}")
    if report := data.engine.report():
        console.print(report)
    return 0


def _mean(evolution: Evolution) -> str:
    latest = evolution.candidates[-1]
    return f"candidate {len(evolution.candidates) - 1} has mean reward {latest.mean:.3f} in {len(latest.scores)} packs"


def _write(folder: Path, cli: Any, evolution: Evolution, rounds: Sequence[Round]) -> None:
    """The best one's state, the config by which any command begins with it, and last, as a sign of both, the rest."""
    record = {
        "best": evolution.candidates.index(evolution.best),
        "num_lifecycles": evolution.num_lifecycles,
        "candidates": [
            {
                "text": one.text,
                "parent": one.parent,
                "mean_reward": _known(one.mean),
                "rewards": [*map(_known, one.scores)],
            }
            for one in evolution.candidates
        ],
        "rounds": [{**asdict(one), "before": _known(one.before), "after": _known(one.after)} for one in rounds],
    }
    state = folder / "best.json"
    write_whole(state, beside(evolution.setting.mechanism, Stored).dump(evolution.best.state))
    started = {"inside": cli.asked["data"]["context"], "first": str(state.absolute())}
    config = {"data": {"context": {"class_path": "cod_lightning.contexts.StartedContext", "init_args": started}}}
    write_whole(folder / "context.yaml", yaml.safe_dump(config))
    write_whole(folder / _FILE, json.dumps(record, indent=1) + "\n")


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
