"""`references`: random, memoryless, scripted and oracle play of worlds, measured by position."""

import functools
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.progress import track
from rich.table import Table

from cod_lightning.commands.parser import SplitName
from cod_lightning.commands.worlds import asked_of, own_worlds, parse_world, world_parser
from cod_lightning.contexts import default_mechanism
from cod_lightning.envs.base import HiddenRules, Players, Reference, TextEnv, Vocabulary, beside
from cod_lightning.envs.checks import MOST_PACKS, check_in, check_num_tasks
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.intervals import Estimate
from cod_lightning.evaluation.references import ReferenceRow, play_reference, summarise
from cod_lightning.evaluation.suite import REFERENCES
from cod_lightning.files import check_folder
from cod_lightning.terminal import Screen
from cod_lightning.types import Split


def run(argv: Sequence[str]) -> int:
    """Measure, print, and write where asked to."""
    parser = world_parser("references", "Measure random, memoryless, scripted and oracle play.", required=False)
    text = "Names from `worlds`, or class paths, as in levers,grid_easy; null for all."
    parser.add_argument("--worlds", type=str | None, default=None, help=text)
    parser.add_argument("--num_packs", type=int, default=200, help="Packs for each world and policy.")
    parser.add_argument("--pack_size", type=int, default=4, help="N, tasks of a pack.")
    text = "Share of the worlds that packs are drawn from."
    parser.add_argument("--split", type=SplitName, default="test", help=text)
    text = "JSON file for the figures of every position, with 95 % bootstrap intervals over packs."
    parser.add_argument("--out", type=Path | None, default=None, help=text)
    options = parse_world(parser, argv)
    check_in("--num_packs", options.num_packs, 2, MOST_PACKS, "200 will do; intervals resample packs.")
    check_num_tasks("--pack_size", options.pack_size)
    if (out := options.out) is not None:
        if out.name == "" or out.is_dir():
            raise ConfigError("--out", out, "a file's name", "Name one, as in references.json.")
        check_folder(out.parent, f"--out {out}: its folder")
    screen, worlds = Screen(), {}
    for name, world in _worlds(options).items():
        begun = time.perf_counter()
        rows = _measured(name, world, options)
        worlds[name] = {"identity": world.name, "rows": [_record(row) for row in rows]}
        _show(screen, f"{name} ({time.perf_counter() - begun:.0f} s)", rows)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        sizes = {"num_packs": options.num_packs, "pack_size": options.pack_size, "split": options.split}
        out.write_text(json.dumps({**sizes, "worlds": worlds}, indent=1) + "\n")
        print(f"Written to {out}")
    return 0


def _worlds(options: Any) -> dict[str, TextEnv]:
    if options.env is not None:
        return {options.env.name: options.env}
    names = own_worlds() if options.worlds is None else [name.strip() for name in options.worlds.split(",")]
    return {name: parse_world(world_parser("references", ""), ["--env", name]).env for name in names}


def _measured(name: str, world: TextEnv, options: Any) -> list[ReferenceRow]:
    with asked_of(world):
        draw = functools.partial(world.sample_pack, split=Split(options.split), num_tasks=options.pack_size)
        packs = [draw(index=index) for index in range(options.num_packs)]
        mechanism = default_mechanism(compact=bool(beside(world, Vocabulary).words()))
        rules = [beside(world, HiddenRules).hidden_rule(pack) for pack in packs]
        for kind in Reference:
            beside(world, Players).reference(kind, packs[0])
    rows: list[ReferenceRow] = []
    for kind in REFERENCES:
        played = play_reference(world, packs, kind, mechanism)
        shown = {"console": Screen(stderr=True), "transient": True, "total": len(packs)}
        lives = list(track(played, f"{name}: {kind}", **shown))
        if all(life.failed for life in lives):
            said = next(episode.error for episode in lives[0].episodes if episode.error)
            expected = f"an environment that can be played (all {len(lives)} lifecycles of {kind} failed: {said})"
            raise ConfigError("--env", name, expected, "`check --env` says where.")
        rows.append(summarise(kind, lives, rules))
    return rows


def _show(screen: Screen, title: str, rows: Sequence[ReferenceRow]) -> None:
    shown = Table(title=title, title_justify="left", box=None)
    shown.add_column("success by position")
    for column in (*map(str, range(len(rows[0].success))), "reward"):
        shown.add_column(column, justify="right")
    for row in rows:
        failed = f" ({row.num_failed} failed)" if row.num_failed else ""
        success = (f"{one.mean:.2f}" for one in row.success)
        shown.add_row(f"{row.kind}{failed}", *success, f"{mean(one.mean for one in row.reward):.3f}")
    screen.print(shown)


def _record(row: ReferenceRow) -> dict[str, Any]:
    return {
        "policy": str(row.kind),
        "packs": row.num_packs,
        "failed_lifecycles": row.num_failed,
        "malformed_episodes": row.num_malformed,
        "success": [_numbers(one) for one in row.success],
        "reward": [_numbers(one) for one in row.reward],
    }


def _numbers(estimate: Estimate) -> dict[str, float | None]:
    values = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
    return {key: None if math.isnan(value) else round(value, 4) for key, value in values.items()}
