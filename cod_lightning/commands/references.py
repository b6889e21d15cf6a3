"""`references`: random, memoryless, scripted and oracle play of worlds, measured by position; the tables of docs/results."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cod_lightning.commands.parser import SplitName
from cod_lightning.commands.shipped import files_of
from cod_lightning.commands.worlds import (
    mechanism_for,
    own_worlds,
    packs_of,
    parse_world,
    reference_of,
    world_parser,
)
from cod_lightning.envs.base import HiddenRules, Reference, TextEnv, beside
from cod_lightning.envs.checks import MOST_PACKS, check_in, check_num_tasks
from cod_lightning.errors import ConfigError, did_you_mean, some_of
from cod_lightning.evaluation.conditions import REFERENCES
from cod_lightning.evaluation.intervals import Estimate
from cod_lightning.evaluation.references import ReferenceRow, play_reference, summarise
from cod_lightning.folder_lock import check_folder
from cod_lightning.markdown import table
from cod_lightning.terminal import Screen
from cod_lightning.types import Split

_ABOUT = """Success (share of tasks solved) at the first and the last position, and mean reward; every position, with 95 %
bootstrap intervals over packs, is in the JSON. *random* answers legally at random; *memoryless* is the scripted policy with its
context hidden from every solve prompt (memory that the world itself gives, where it does, stays); *scripted* has perfect memory
and plays every task as well as we know how (Bayes-optimally where that can be computed); *oracle* knows what is hidden. They
run through the same rollout and evaluation code as a model. The scripted policy is a reference, not a ceiling: a policy that
explores more than pays in early tasks can do better later."""


@dataclass(frozen=True)
class Measured:
    """One world's rows."""

    name: str
    identity: str
    """The world's own `name`."""
    rows: tuple[ReferenceRow, ...]
    seconds: float


def run(argv: Sequence[str]) -> int:
    """Measure, print, and write where asked to."""
    parser = world_parser("references", "Measure random, memoryless, scripted and oracle play.", required=False)
    text = "Names from `worlds`, or class paths, as in levers,grid_easy; null for all."
    parser.add_argument("--worlds", type=list[str] | str | None, default=None, help=text)
    parser.add_argument("--num_packs", type=int, default=200, help="Packs for each world and policy.")
    parser.add_argument("--pack_size", type=int, default=4, help="N, tasks of a pack.")
    text = "Share of the worlds that packs are drawn from."
    parser.add_argument("--split", type=SplitName, default="test", help=text)
    parser.add_argument("--out", type=str | None, default=None, help="Write OUT.json and OUT.md as well.")
    options = parse_world(parser, argv)
    options.split = Split(options.split)
    if isinstance(options.worlds, str):
        options.worlds = [name.strip() for name in options.worlds.split(",") if name.strip()]
    check_in("--num_packs", options.num_packs, 2, MOST_PACKS, "200 will do; intervals resample packs.")
    check_num_tasks("--pack_size", options.pack_size)
    if options.out is not None:
        if Path(options.out).name == "":
            raise ConfigError("--out", options.out or "empty", "a file's name without its ending", "Add it.")
        check_folder(Path(options.out).parent, f"--out {options.out}: its folder")
        for file in map(Path(options.out).with_suffix, (".json", ".md")):
            if file.is_dir():
                raise ConfigError("--out", options.out, f"a file's name, and {file} is a folder", "Name another one.")
    console = Screen()
    chosen = _worlds(options)
    measured: list[Measured] = []
    for name, world in chosen.items():
        measured.append(_measure(name, world, options))
        shown = Table(title=f"{name} ({measured[-1].seconds:.0f} s)", title_justify="left", box=None)
        shown.add_column("success by position")
        for title in (*map(str, range(options.pack_size)), "reward"):
            shown.add_column(title, justify="right")
        for row in measured[-1].rows:
            failed = f" ({row.num_failed} failed)" if row.num_failed else ""
            shown.add_row(
                f"{row.kind}{failed}",
                *(f"{e.mean:.2f}" for e in row.success),
                f"{mean(e.mean for e in row.reward):.3f}",
            )
        console.print(shown)
    if options.out:
        _write(Path(options.out), measured, options)
        print(f"Written to {options.out}.md and {options.out}.json")
    return 0


def _measure(name: str, world: TextEnv, options: Any) -> Measured:
    mechanism = mechanism_for(world)
    packs = packs_of(world, options.split, range(options.num_packs), options.pack_size)
    rules = [beside(world, HiddenRules).hidden_rule(pack) for pack in packs]
    for kind in Reference:
        reference_of(world, kind, packs[0])
    begun = time.perf_counter()
    rows: list[ReferenceRow] = []
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Screen(stderr=True), transient=True) as progress:
        bar = progress.add_task(name, total=len(REFERENCES) * options.num_packs)
        for kind in REFERENCES:
            progress.update(bar, description=f"{name}: {kind}")
            lives = []
            for life in play_reference(world, packs, kind, mechanism):
                lives.append(life)
                progress.advance(bar)
            if all(life.failed for life in lives):
                said = next(episode.error for episode in lives[0].episodes if episode.error)
                expected = f"an environment that can be played (all {len(lives)} lifecycles of {kind} failed: {said})"
                raise ConfigError("--env", name, expected, "`check --env` says where.")
            rows.append(summarise(kind, lives, rules))
    return Measured(name, world.name, tuple(rows), time.perf_counter() - begun)


def _worlds(options: Any) -> dict[str, TextEnv]:
    if options.env is not None:
        return {options.env.name: options.env}
    known = files_of("env")
    names = own_worlds() if options.worlds is None else options.worlds
    if not names:
        raise ConfigError("--worlds", "empty", "names, as in levers,doors", "Leave it out for all; see `worlds`.")
    if unknown := [name for name in names if name not in known and "." not in name]:
        expected = f"names out of {some_of([*known], unknown[0])}"
        raise ConfigError(
            "--worlds", ", ".join(unknown), expected, f"{did_you_mean(unknown[0], [*known])}See `worlds`."
        )
    return {name: parse_world(world_parser("references", ""), ["--env", name]).env for name in names}


def _write(stem: Path, measured: Sequence[Measured], options: Any) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "num_packs": options.num_packs,
        "pack_size": options.pack_size,
        "split": str(options.split),
        "worlds": {m.name: {"identity": m.identity, "rows": [_record(row) for row in m.rows]} for m in measured},
    }
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    command = f"python -m cod_lightning references --num_packs {options.num_packs} --pack_size {options.pack_size}"
    if options.worlds is not None:
        command += f" --worlds '[{','.join(options.worlds)}]'"
    text = [
        f"# References by position, packs of {options.pack_size}",
        f"`{command} --out {stem}`: {options.num_packs} packs of the {options.split} split for each world and policy.",
        _ABOUT,
        _markdown(measured),
    ]
    stem.with_suffix(".md").write_text("\n\n".join(text) + "\n")


def _markdown(measured: Sequence[Measured]) -> str:
    """A table of success at the first and the last position and mean reward by policy, and which lifecycles failed."""
    kinds = [row.kind for row in measured[0].rows]
    last = len(measured[0].rows[0].success) - 1
    rows = []
    for m in measured:
        ends = (f"{row.success[0].mean:.2f} to {row.success[last].mean:.2f}" for row in m.rows)
        rows.append([m.name, *ends, *(f"{mean(e.mean for e in row.reward):.2f}" for row in m.rows)])
    head = ["environment", *map(str, kinds), *(f"reward, {kind}" for kind in kinds)]
    failed = {m.name: sum(row.num_failed for row in m.rows) for m in measured}
    left_out = [f"{num} lifecycles of {name} failed and are left out." for name, num in failed.items() if num]
    return "\n\n".join([table(head, rows), *left_out])


def _record(row: ReferenceRow) -> dict[str, Any]:
    return {
        "policy": str(row.kind),
        "packs": row.num_packs,
        "failed_lifecycles": row.num_failed,
        "malformed_episodes": row.num_malformed,
        "success": [_numbers(e) for e in row.success],
        "reward": [_numbers(e) for e in row.reward],
    }


def _numbers(estimate: Estimate) -> dict[str, float | None]:
    values = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
    return {key: None if math.isnan(value) else round(value, 4) for key, value in values.items()}
