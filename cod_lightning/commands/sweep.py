"""`sweep`: every combination of choices and seeds, each trained in a process of its own, and one table that compares them."""

import functools
import hashlib
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from cod_lightning.commands.config_files import find_config, full_key, keys_of
from cod_lightning.commands.parser import Options, parser_of
from cod_lightning.commands.shipped import CLASS_KEYS, composed
from cod_lightning.commands.sweep_job import launch
from cod_lightning.errors import ConfigError, Stopped, in_a_line
from cod_lightning.files import locked, write_whole
from cod_lightning.reports.sweeps.record import JobRecord, read_record, write_record

_ABOUT = """Train every combination of the values of each key, and compare: GROUP=A,B chooses in a config group,
key=1,2,3 sets a key of `fit`, seed_everything=1,2,3 are the seeds that runs are paired by, hydra.launcher.KEY=VALUE is the
launcher's own. Finished jobs are skipped, others go on from their last checkpoints. Ends with 1 if a job is not finished."""
_OPTIONS: Options = {
    "config": (str | None, None, "As in `fit`; its hydra.sweeper.params are axes too."),
    "out": (Path | None, None, "Folder of the jobs; null: runs/sweeps/CONFIG."),
    "launcher": (
        str,
        "basic",
        "basic: one after another; joblib: several at a time; submitit_slurm: on a cluster; submitit_local.",
    ),
    "print_jobs": (None, False, "Print what would run and how far it is; run nothing."),
    "reference": (str | None, None, "Cell that the others are compared with, as KEY=VALUE,...; null: the first."),
}
_SEED, _LAUNCHER = "seed_everything", "hydra.launcher."
_WIDEST_CELL = 32
"""Columns of a screen for a cell's name; a longer one goes on in the next line."""


@dataclass(frozen=True)
class Job:
    """A job that is planned; its folder carries the hash of its config, so that the same job is found again."""

    folder: Path
    record: JobRecord
    config: dict[str, Any]
    """Resolved."""

    @property
    def finished(self) -> bool:
        """Whether its run was trained and evaluated to its end."""
        return (self.folder / "job.json").is_file() and read_record(self.folder).finished


def run(argv: Sequence[str]) -> int:
    """Run a sweep, or compare the runs of earlier ones."""
    options, assigned = _asked(argv)
    if options.table:
        return _table(options.table, options.reference, argv)
    jobs = plan(options.config, [one for one in assigned if not one.startswith(_LAUNCHER)], options.out)
    if options.print_jobs:
        for job in jobs:
            print(f"{'finished' if job.finished else 'to run':<9} {job.record.label}  ->  {job.folder}")
        print(f"{len(jobs)} jobs, {sum(job.finished for job in jobs)} finished")
        return 0
    with locked(options.out, "--out", "sweep"):
        of_launcher = [one for one in assigned if one.startswith(_LAUNCHER)]
        failed = _run(jobs, options.out, options.launcher, of_launcher)
    if any(job.finished for job in jobs):
        _table([options.out], options.reference, argv)
    return failed


def _asked(argv: Sequence[str]) -> tuple[Any, list[str]]:
    """The options, with a folder of the jobs, and what is typed as KEY=VALUE."""
    typed = list(keys_of(argv))
    if len(names := [value for key, value in typed if key == "--config"]) > 1:
        raise ConfigError("--config", names[1], "one config", "Type what another one changes as KEY=VALUE.")
    assigned = [f"{key}={value}" for key, value in typed if not key.startswith("-") and value is not None]
    parser = parser_of("sweep", in_a_line(_ABOUT), _OPTIONS)
    text = "Compare the runs in there; run nothing."
    parser.add_argument("--table", nargs="+", type=Path, default=None, metavar="FOLDER", help=text)
    own = (pair for pair in typed if pair[0].startswith("-") or pair[1] is None)
    options: Any = parser.parse_args([part for pair in own for part in pair if part is not None])
    if options.config is None and not options.table:
        remedy = "Try --config smoke credit=EpisodeCredit,TaskCredit."
        raise ConfigError("--config", "missing", "the config that is varied", remedy)
    options.out = (options.out or Path("runs") / "sweeps" / Path(options.config or "").stem).resolve()
    return options, assigned


def plan(config: str, axes: Sequence[str], root: Path) -> list[Job]:
    """The job of every combination of the axes and of those of the file, each once; every cell is built, so that a typo costs
    seconds and not a night."""
    lines = _combinations(config, axes)
    build = functools.cache(functools.partial(_built, config))
    jobs: dict[str, Job] = {}
    for line in lines:
        overrides = tuple(one for one in line if _named(one) != _SEED)
        content = build(overrides)
        seed = next((_read(one.partition("=")[2]) for one in line if _named(one) == _SEED), content[_SEED])
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
            expected = "a whole number from 0 to 4294967295"
            raise ConfigError(_SEED, seed, expected, "Give each run one; a sweep pairs runs by their seeds.")
        varied = [one.lstrip("+~") for at, one in enumerate(line) if any(other[at] != one for other in lines)]
        label = " ".join([Path(config).stem, *(one for one in varied if _named(one) != _SEED), f"seed={seed}"])
        digest = _digest(content | {_SEED: seed})
        twin = jobs.get(digest)
        if twin is not None and twin.record.label != label:
            expected = f"axes that change the config; {twin.record.label} and {label} are the same training"
            raise ConfigError("sweep", " ".join(axes), expected, "Leave out what another choice overrules.")
        cell = _digest(content | {_SEED: None})
        record = JobRecord(label=label, config=config, overrides=overrides, cell=cell, seed=seed, order=len(jobs))
        name = "".join(letter if letter.isalnum() or letter in "_=.,+-" else "_" for letter in label.replace(" ", ","))
        folder = next(iter(sorted(root.glob(f"*-{digest}"))), root / f"{name[:120]}-{digest}")
        jobs.setdefault(digest, Job(folder, record, content | {_SEED: seed}))
    return list(jobs.values())


def _built(config: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    """The config of a cell, every key in it, once module and data were built from it."""
    from cod_lightning.commands.phase import config_of, started
    from cod_lightning.commands.train import built

    typed = [f"{key}={_as_typed(text)}" for key, _, text in (one.partition("=") for one in overrides)]
    print(f"checking {' '.join([Path(config).stem, *overrides])}", file=sys.stderr, flush=True)
    cli = built("sweep", {}, ["--config", config, *typed])
    cli.check_fit()
    cli.check_played(elsewhere=True)
    asked = cli.asked
    if not asked["data"]["suites"]:
        raise ConfigError("data.suites", "empty", "a suite by which runs are compared", "Try data.suites=[in_domain].")
    if asked["warm_start"] is not None:
        started(config_of(asked))
    trainer = {**asked["trainer"], "default_root_dir": None}  # each has a folder of its own
    return asked | {"torch_threads": asked["torch_threads"] or 1, "overwrite": False, "trainer": trainer}


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def _read(text: str) -> Any:
    """A value in Hydra's grammar."""
    return OverridesParser.create().parse_override(f"x={text}").value()


def _as_typed(text: str) -> str:
    """A value of Hydra's as `fit` takes it: without quotes, mappings in JSON."""
    value = _read(text)
    return value if isinstance(value, str) else json.dumps(value) if "{" in text else text


def _named(line: str) -> str:
    """The key of KEY=VALUE however it was typed: a class by its group, an argument without `init_args`."""
    key = full_key(line.partition("=")[0].lstrip("+~").replace(".init_args.", "."))
    return next((group for group, of in CLASS_KEYS.items() if key == of), key)


def _combinations(config: str, axes: Sequence[str]) -> list[list[str]]:
    """Every combination of the values of all axes; a typed one takes the place of the config's."""
    of_file = composed(find_config(config), [])[1]
    every = [*(f"{key}={values}" for key, values in of_file.items()), *axes]
    lines = list({_named(line): line for line in every}.values())
    if not lines:
        expected = "a key with the values that it takes, as in credit=EpisodeCredit,TaskCredit"
        raise ConfigError("choices", "missing", expected, f"For a single run: fit --config {config}.")
    try:
        (batch,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(lines), None)
    except HydraException as error:
        expected = f"axes that Hydra can read ({in_a_line(error)})"
        raise ConfigError("sweep", " ".join(lines), expected, "See docs/guides/sweep.md.") from error
    return batch


def _run(jobs: Sequence[Job], root: Path, launcher: str, hydra: Sequence[str]) -> int:
    """Run what is not finished, and print what is not finished then; 1 if there is any. Of several jobs that begin with one warm
    start, the first makes it and the others wait."""
    todo = [job for job in jobs if not job.finished]
    for job in todo:
        write_whole(job.folder / "job.yaml", yaml.safe_dump(job.config, sort_keys=False))
        write_record(job.folder, job.record)
    print(f"{len(jobs)} jobs: {len(jobs) - len(todo)} finished before, {len(todo)} to run in {root}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a job's process is ended too
    try:
        if todo:
            launch([job.folder for job in todo], root, launcher, hydra)
    except KeyboardInterrupt:
        stopped = Stopped(signal.SIGINT)
        stopped.message += " To go on: the same command again."
        raise stopped from None
    records = {job.folder: read_record(job.folder) for job in jobs}
    wrong = {folder: one for folder, one in records.items() if not one.finished}
    for folder, one in wrong.items():
        print(f"error: {one.label}: {one.error} (see {folder / 'log.txt'})", file=sys.stderr)
    if wrong:
        print(f"error: {len(wrong)} of {len(records)} jobs are not finished", file=sys.stderr)
    return int(bool(wrong))


def _table(roots: Sequence[Path], reference: str | None, argv: Sequence[str]) -> int:
    """Compare the finished cells; print the comparison and write it into the first folder."""
    from rich.table import Column, Table

    from cod_lightning.reports.sweeps.compare import compare, page, summary
    from cod_lightning.terminal import Screen

    sweeps = compare([root.resolve() for root in roots], reference)
    stem = roots[0] / "sweep_results"
    write_whole(stem.with_suffix(".json"), json.dumps({"sweeps": sweeps}, indent=1, allow_nan=False) + "\n")
    command = shlex.join(["python", "-m", "cod_lightning", "sweep", *argv])
    write_whole(stem.with_suffix(".md"), page(sweeps, command))
    screen = Screen()
    for sweep in sweeps:
        screen.print(f"\n{sweep['config']}, suite {sweep['suite']}:")
        head, lines = summary(sweep)
        widest = min(_WIDEST_CELL, max(len(line[0]) for line in lines))
        named = Column(head[0], width=widest, overflow="fold")  # else the screen cuts what cells differ by
        table = Table(named, *(Column(one, overflow="fold") for one in head[1:]), box=None, pad_edge=False)
        for line in lines:
            table.add_row(*line)
        screen.print(table)
        for note in sweep["notes"]:
            screen.print(f"Note: {note}")
    print(f"\nWritten to {stem}.json and .md")
    return 0
