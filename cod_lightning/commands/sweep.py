"""`sweep`: every combination of choices and seeds, each trained in a process of its own, and one table that compares them."""

import contextlib
import functools
import hashlib
import io
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cod_lightning.commands.composition import Composed, composed
from cod_lightning.commands.config_files import (
    below_init_args,
    expand,
    find_config,
    full_key,
    group_of,
    inline,
    keys_of,
    overlaid,
    taken_apart,
    temporary_config,
    with_values,
)
from cod_lightning.commands.parser import OneLine, program
from cod_lightning.commands.sweep_job import check_launcher, launch
from cod_lightning.errors import ConfigError, check_at_least, did_you_mean
from cod_lightning.files import held, locked, write_whole
from cod_lightning.reports.sweeps.record import JobRecord, JobStatus, read_record, write_record

_DESCRIPTION = """Train every combination of the values of each key, and compare: GROUP=A,B chooses in a config group,
key=1,2,3 sets a key of `fit`, seed_everything=1,2,3 are the seeds that runs are paired by, hydra.launcher.KEY=VALUE is the
launcher's own. Finished jobs are skipped, interrupted ones go on, failed ones begin anew. Ends with 1 if a job failed."""
_SEED = "seed_everything"
_OF_ONE_RUN = ("trainer.default_root_dir", "ckpt_path", "overwrite", "accept_changes")


@dataclass(frozen=True)
class Job:
    """A job that is planned; its folder carries the hash of its config, so that the same job is found again."""

    folder: Path
    record: JobRecord
    config: dict[str, Any]
    """Resolved."""

    @property
    def status(self) -> JobStatus:
        """How far it got."""
        return read_record(self.folder).status if (self.folder / "job.json").is_file() else JobStatus.PLANNED


def run(argv: Sequence[str]) -> int:
    """Run a sweep, or compare the runs of earlier ones."""
    options, axes, hydra = _parse(argv)
    if options.table:
        return _table(options.table, options, argv)
    if options.config is None:
        remedy = "Try --config smoke credit=EpisodeCredit,TaskCredit."
        raise ConfigError("--config", "missing", "the config that is varied", remedy)
    check_at_least("--threads", options.threads, 1, "1 is the default.")
    check_at_least("--jobs", options.jobs, 1, "Leave it out for as many as the cores hold.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_once = options.jobs or max(1, cores // options.threads)
    check_launcher(options.launcher)
    root = (options.out or Path("runs") / "sweeps" / Path(options.config).stem).resolve()
    jobs = plan(options.config, axes, root, options.threads)
    if not options.print_jobs:
        with locked(root, "--out", "sweep"):
            _run(jobs, root, options.launcher, at_once, hydra)
        failed = _failures(jobs)
        if any(job.status is JobStatus.FINISHED for job in jobs):
            _table([root], options, argv)
        return failed
    check_cells(jobs)
    for job in jobs:
        print(f"{job.status:<9} {job.record.label}  ->  {job.folder}")
    print(f"{len(jobs)} jobs, {sum(job.status is JobStatus.FINISHED for job in jobs)} finished")
    return 0


def _parse(argv: Sequence[str]) -> tuple[Any, list[str], list[str]]:
    """Options, axes as KEY=VALUES, and overrides of Hydra's launcher."""
    parser = OneLine(
        prog=f"{program()} sweep",
        usage="%(prog)s --config NAME KEY=VALUES ...",
        description=" ".join(_DESCRIPTION.split()),
    )
    add = parser.add_argument
    add("--config", default=None, help="As in `fit`; its hydra.sweeper.params are axes too.")
    add("--out", type=Path, default=None, metavar="FOLDER", help="Default: runs/sweeps/CONFIG.")
    text = "basic: one after another; joblib: several at a time; submitit: on a cluster (slurm); submitit_local."
    add("--launcher", default="basic", help=text)
    add("--jobs", type=int, default=None, help="At a time, with joblib; default: cores over --threads.")
    add("--threads", type=int, default=1, help="Of torch in each job, where torch_threads is not set.")
    add("--print_jobs", action="store_true", help="Print what would run and how far it is; run nothing.")
    text = "Compare the runs in there; run nothing."
    add("--table", nargs="+", type=Path, default=None, metavar="FOLDER", help=text)
    text = "Cell that the others are compared with; default: the first."
    add("--reference", default=None, metavar="KEY=VALUE,...", help=text)
    text = "Of the files written; default: FOLDER/sweep_results."
    add("--results", type=Path, default=None, metavar="STEM", help=text)
    axes: list[str] = []
    own: list[str] = []
    hydra: list[str] = []
    known = [option for option in parser._option_string_actions if option.startswith("--")]
    for key, value in keys_of(argv):
        name = key.removeprefix("--")
        if key in (*known, "-h") or value is None:
            own += [key] if value is None else [key, value]
        elif key.startswith("--") and (meant := did_you_mean(key, known, cutoff=0.8)):
            raise ConfigError("command line", key, "an option of sweep, or a key of `fit`", meant.strip())
        elif name.startswith("hydra.launcher."):
            hydra.append(f"{name}={value}")
        elif name.startswith("hydra."):
            expected = "an axis, as in model.lr=1e-3,2e-3, or hydra.launcher.KEY=VALUE"
            raise ConfigError("command line", f"{name}={value}", expected, "Leave it out.")
        else:
            axes.append(f"{name}={value}")
    if len(names := [value for key, value in keys_of(argv) if key == "--config"]) > 1:
        raise ConfigError("--config", names[1], "one config", "Type what another one changes as KEY=VALUE.")
    return parser.parse_args(own), axes, hydra


# ---------------------------------------------------------------------- jobs


def plan(config: str, axes: Sequence[str], root: Path, threads: int) -> list[Job]:
    """The job of every combination of the axes and of those of the file, each once."""
    path = find_config(config)
    compose = functools.cache(lambda choices: composed(path, choices))
    jobs: dict[Path, Job] = {}
    lines = _combinations(axes, compose(()).axes)
    for line in lines:
        content, setting = _cell(line, compose)
        content = overlaid({_SEED: 1, "torch_threads": threads}, content)
        seed = content[_SEED]
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ConfigError(_SEED, seed, "a whole number", "Give each run one; a sweep pairs runs by their seeds.")
        varied = [one for at, one in enumerate(line) if any(other[at] != one for other in lines)]
        keys = [one.lstrip("+~") for one in varied if not one.startswith(f"{_SEED}=")]
        label = " ".join([Path(config).stem, *keys, f"seed={seed}"])
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
        name = "".join(letter if letter.isalnum() or letter in "_=.,+-" else "_" for letter in label.replace(" ", ","))
        folder = next(iter(sorted(root.glob(f"*-{digest}"))), root / f"{name[:120]}-{digest}")
        record = JobRecord(
            label=label,
            config=config,
            overrides=tuple(line),
            setting=setting,
            seed=seed,
            order=len(jobs),
            threads=content["torch_threads"],
        )
        twin = next((one for one in jobs.values() if one.config == content), None)
        jobs.setdefault(folder, Job(folder, record, content))
        if twin is not None and twin.record.label != label:
            labels = f"{twin.record.label} and {label}"
            expected = f"axes that change the config; {labels} are the same training"
            raise ConfigError("sweep", " ".join(axes), expected, "Leave out what another choice overrules.")
    return list(jobs.values())


def _cell(line: Sequence[str], compose: Callable[[tuple[str, ...]], Composed]) -> tuple[dict[str, Any], dict[str, str]]:
    """The config of a combination, suites spelled out, and what tells its cell from others."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    pairs = [one.partition("=")[::2] for one in line]
    read = {full_key(key): OverridesParser.create().parse_override(f"{key}={text}").value() for key, text in pairs}
    typed = taken_apart((key, _as_yaml(text, read[full_key(key)])) for key, text in pairs)
    made = compose(tuple(typed.choices))
    values = [*((key, value) for key, _, value in typed.values), *((key, read[key]) for key, _ in typed.others)]
    content = with_values(below_init_args(made.plain), values)
    if not (suites := (content.get("data") or {}).get("suites")):
        raise ConfigError("data.suites", "empty", "a suite by which runs are compared", "Try data.suites=[in_domain].")
    content["data"] = {**content["data"], "suites": inline(suites)}
    return content, made.choices | {_named(key): text for key, text in pairs if key != _SEED}


def _as_yaml(text: str, value: Any) -> str:
    """Hydra's text of a value, or of a list of mappings YAML's."""
    return json.dumps(value) if isinstance(value, list) and any(isinstance(one, dict) for one in value) else text


def _named(key: str) -> str:
    """The key however it was typed: a class by its group, an argument without `init_args`."""
    key = full_key(key.lstrip("+~").replace(".init_args.", "."))
    return group_of(key) or key


def _combinations(axes: Sequence[str], of_file: dict[str, str]) -> list[list[str]]:
    """Every combination of the values of all axes; a typed one takes the place of the file's."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    typed: dict[str, str] = {}
    for line in axes:
        key, _, values = line.partition("=")
        name = _named(key)
        if name in _OF_ONE_RUN:
            expected = "left out, since every run has a folder of its own, and goes on there where it was stopped"
            raise ConfigError(name, values, expected, "--out is the folder of the sweep.")
        if earlier := typed.get(name):
            expected = f"all of its values in one place; {name}={earlier} stands before it"
            raise ConfigError(name, values, expected, f"Write {name}={earlier},{values}, or leave one out.")
        typed[name] = values
    lines = [*(f"{key}={values}" for key, values in of_file.items() if _named(key) not in typed), *axes]
    try:
        (batch,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(lines), None)
    except HydraException as error:
        reason = " ".join(str(error).split())
        raise ConfigError("sweep", " ".join(lines), "axes that Hydra can read", f"Hydra's error: {reason}") from error
    return batch


def check_cells(jobs: Sequence[Job]) -> None:
    """Build every cell before one runs: a typo costs seconds and not a night. Raises `ConfigError` for what `fit` would refuse."""
    cells = list({json.dumps(job.record.setting, sort_keys=True): job for job in jobs}.values())
    if cells:
        print(f"checking {len(cells)} cells", file=sys.stderr, flush=True)
    for job in cells:
        if (reason := _build_error(job.config)) is not None:
            raise ConfigError("sweep", job.record.label, "a cell that can be built", reason)


def _build_error(config: dict[str, Any]) -> str | None:
    """Why `fit` would refuse the config; None if it would not."""
    from cod_lightning.commands.train import TrainCLI, made

    path = temporary_config("job.yaml", {**config, "warm_start": None})
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            made(TrainCLI, expand(["--config", str(path)]))
    except ConfigError as error:
        return str(error)
    except SystemExit:
        return printed.getvalue().strip().partition("error: ")[2]
    return None


def _run(jobs: Sequence[Job], root: Path, launcher: str, at_once: int, hydra: Sequence[str]) -> None:
    """Run everything that is not finished, in a folder that no other sweep works in meanwhile.

    Of several jobs that begin with one warm start, the first makes it and the others wait.
    """
    todo = [job for job in jobs if job.status is not JobStatus.FINISHED]
    for job in todo:
        if held(job.folder):  # its sweep was killed and has left it behind
            remedy = f"End it, or wait: {job.record.label}."
            raise ConfigError("--out", root, "a folder in which no other process trains", remedy)
    check_cells(todo)
    for job in todo:
        job.folder.mkdir(parents=True, exist_ok=True)
        write_whole(job.folder / "job.yaml", yaml.safe_dump(job.config, sort_keys=False))
        write_record(job.folder, job.record if job.status is JobStatus.PLANNED else read_record(job.folder))
    print(f"{len(jobs)} jobs: {len(jobs) - len(todo)} finished before, {len(todo)} to run in {root}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a job's process is ended too
    if todo:
        launch([job.folder for job in todo], root, launcher, at_once, hydra)


def _failures(jobs: Sequence[Job]) -> int:
    """Print them; 1 if there are any."""
    records = {job.folder: read_record(job.folder) for job in jobs}
    wrong = {folder: one for folder, one in records.items() if one.status is not JobStatus.FINISHED}
    for folder, one in wrong.items():
        print(f"error: {one.label}: {one.error or one.status} (see {folder / 'log.txt'})", file=sys.stderr)
    if wrong:
        print(f"error: {len(wrong)} of {len(records)} jobs are not finished", file=sys.stderr)
    return int(bool(wrong))


def _table(roots: Sequence[Path], options: Any, argv: Sequence[str]) -> int:
    """Compare the finished cells; print the comparison and write it."""
    from rich.padding import Padding
    from rich.text import Text

    from cod_lightning.reports.sweeps.compare import compare, write_results
    from cod_lightning.reports.sweeps.page import page, sentences
    from cod_lightning.terminal import Screen

    stem: Path = options.results or roots[0] / "sweep_results"
    results = compare([root.resolve() for root in roots], options.reference)
    write_results(stem.with_name(f"{stem.name}.json"), results)
    command = shlex.join(["python", "-m", "cod_lightning", "sweep", *argv])
    write_whole(stem.with_name(f"{stem.name}.md"), page(results, "Runs compared", command))
    screen = Screen()
    for sweep in results["sweeps"]:
        screen.print(Text(f"\n{sweep['config']}, suite {sweep['suite']}:"))
        for sentence in [*sentences(sweep), *(f"Note: {note}" for note in sweep["notes"])]:
            screen.print(Padding(Text(sentence), (0, 0, 0, 2)))
    print(f"\nWritten to {stem}.json and .md")
    return 0
