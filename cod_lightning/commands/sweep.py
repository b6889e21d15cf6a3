"""`sweep`: every combination of choices and seeds, each trained in a process of its own, and one table that compares them."""

import contextlib
import io
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from cod_lightning.commands.config_files import split_choices, temporary_config
from cod_lightning.commands.parser import OneLine, program
from cod_lightning.commands.sweep_job import LAUNCHERS, check_launcher, launch, still_runs
from cod_lightning.commands.sweep_plan import Job, plan
from cod_lightning.errors import ConfigError, check_at_least, did_you_mean
from cod_lightning.folder_lock import locked
from cod_lightning.reports.sweeps.record import JobKind, JobStatus, read_record, write_record
from cod_lightning.whole_file import write_whole

_OPTIONS = ("--config", "--out", "--launcher", "--jobs", "--threads", "--table", "--reference", "--results")
"""Those with a value."""
_FLAGS = ("--print_jobs", "--help")
_DESCRIPTION = """Train every combination of the values of each key, and compare: GROUP=A,B chooses in a config group,
key=1,2,3 sets a key of `fit`, seed_everything=1,2,3 are the seeds that runs are paired by, hydra.launcher.KEY=VALUE is the
launcher's own. Finished jobs are skipped, interrupted ones go on, failed ones begin anew. Ends with 1 if a job failed."""


def run(argv: Sequence[str]) -> int:
    """Run a sweep, or compare the runs of earlier ones."""
    choices, others = split_choices(_as_assignments(argv))
    options = _parse(others)
    if options.table:
        if choices or options.config:
            given = choices[0] if choices else options.config
            raise ConfigError("--table", f"beside {given}", "alone, since it runs nothing", "Run the sweep first.")
        return _table(options.table, options, argv)
    if options.config is None:
        raise ConfigError(
            "--config", "missing", "the config that is varied", "Try --config smoke credit=EpisodeCredit,TaskCredit."
        )
    if sum(arg.partition("=")[0] == "--config" for arg in argv) > 1:
        raise ConfigError("--config", options.config, "one config", "Type what another one changes as KEY=VALUE.")
    at_once = _at_once(options)
    if options.launcher not in LAUNCHERS:
        raise ConfigError("--launcher", options.launcher, f"one of {', '.join(LAUNCHERS)}", "basic is the default.")
    check_launcher(options.launcher)
    root = (options.out or Path("runs") / "sweeps" / Path(options.config).stem).resolve()
    axes = [choice for choice in choices if not choice.startswith("hydra.")]
    if other := [choice for choice in choices if re.match(r"hydra\.(?!launcher\.)", choice)]:
        axis = other[0].removeprefix("hydra.sweeper.params.")
        remedy = f"Write {axis}." if axis != other[0] else "Leave it out."
        raise ConfigError("command line", other[0], "an axis, or hydra.launcher.KEY=VALUE", remedy)
    jobs = plan(options.config, axes, root, options.threads)
    if options.print_jobs:
        _check([job for job in jobs if job.record.kind is JobKind.FIT])
        for job in jobs:
            print(f"{_status(job):<9} {job.record.kind:<11} {job.record.label}  ->  {job.folder}")
        print(f"{len(jobs)} jobs, {sum(_status(job) is JobStatus.FINISHED for job in jobs)} finished")
        return 0
    with locked(root, "--out", "sweep"):
        _run(jobs, root, options.launcher, at_once, [choice for choice in choices if choice.startswith("hydra.")])
    failed = _failures(jobs)
    if any(_status(job) is JobStatus.FINISHED and job.record.kind is JobKind.FIT for job in jobs):
        _table([root], options, argv)
    return failed


def _as_assignments(argv: Sequence[str]) -> list[str]:
    """The command line with `KEY=VALUES` for `--KEY VALUES` and `--KEY=VALUES`, but for the options of `sweep` itself."""
    out: list[str] = []
    rest = list(argv)
    while rest:
        arg = rest.pop(0)
        name, is_assigned, values = arg.partition("=")
        if name in _OPTIONS and not is_assigned:
            out += [arg, *rest[:1]]
            rest = rest[1:]
        elif name in (*_OPTIONS, *_FLAGS) or not name.startswith("--"):
            out.append(arg)
        elif meant := did_you_mean(name, (*_OPTIONS, *_FLAGS), cutoff=0.8):
            raise ConfigError("command line", name, "an option of sweep, or a key of `fit`", meant.strip())
        elif is_assigned or (rest and not rest[0].startswith("--")):
            out.append(f"{name[2:]}={values if is_assigned else rest.pop(0)}")
        else:
            out.append(arg)
    return out


def _parse(argv: Sequence[str]) -> Any:
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
    return parser.parse_args(list(argv))


def _at_once(options: Any) -> int:
    """Jobs at a time: threads of all of them together fit the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    check_at_least("--threads", options.threads, 1, "1 is the default.")
    most = max(1, cores // options.threads)
    if options.jobs is not None and options.launcher != "joblib":
        expected = f"left out with --launcher {options.launcher}"
        raise ConfigError("--jobs", options.jobs, expected, "Add --launcher joblib.")
    if options.jobs is not None and not 1 <= options.jobs <= most:
        expected = f"1 to {most}, with {cores} cores and {options.threads} threads a job"
        raise ConfigError("--jobs", options.jobs, expected, "Threads that share a core spin and crawl.")
    return options.jobs or most


def _status(job: Job) -> JobStatus:
    return read_record(job.folder).status if (job.folder / "job.json").is_file() else JobStatus.PLANNED


def _run(jobs: Sequence[Job], root: Path, launcher: str, at_once: int, hydra: Sequence[str]) -> None:
    """Run everything that is not finished, in a folder that no other sweep works in meanwhile.

    Of several jobs that begin with one warm start, the first makes it and the others wait.
    """
    todo = [job for job in jobs if _status(job) is not JobStatus.FINISHED]
    known = {job.folder: read_record(job.folder) for job in todo if (job.folder / "job.json").is_file()}
    for folder, record in known.items():
        if still_runs(folder, record):  # its sweep was killed and has left it behind
            remedy = f"End process {record.pid}, or wait: {record.label}."
            raise ConfigError("--out", root, "a folder that no other process uses", remedy)
    _check([job for job in todo if job.record.kind is JobKind.FIT])
    for job in todo:
        job.write_config()
        write_record(job.folder, known.get(job.folder, job.record))
    print(f"{len(jobs)} jobs: {len(jobs) - len(todo)} finished before, {len(todo)} to run in {root}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a job's process is ended too
    if todo:
        launch([job.folder for job in todo], root, launcher, at_once, hydra)


def _check(jobs: Sequence[Job]) -> None:
    """Build every cell before one runs, in a process of its own: a typo costs seconds and not a night.

    Raises `ConfigError` for the first cell that `fit` would refuse, and where that process is killed.
    """
    cells = list({str(sorted(job.record.setting.items())): job for job in jobs}.values())
    if not cells:
        return
    print(f"checking {len(cells)} cells", file=sys.stderr, flush=True)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_the_sweep) as pool:
        reasons = pool.map(build_error, [job.config for job in cells])
        for job in cells:
            try:
                reason = next(reasons)
            except BrokenProcessPool:
                reason = (
                    "The process that built it was killed: free memory if that is short, then type the command again."
                )
            if reason is not None:
                raise ConfigError("sweep", job.record.label, "a cell that can be built", reason)


def _end_with_the_sweep() -> None:
    """End this process once the sweep is gone, however that ended: a pool's process would wait for it for ever."""
    parent = parent_process()
    assert parent is not None, "this is no process of a pool"
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def build_error(config: dict[str, Any]) -> str | None:
    """Why `fit` would refuse the config; None if it would not."""
    from cod_lightning.commands.lightning_cli import start
    from cod_lightning.commands.train import TrainCLI
    from cod_lightning.datamodules import RolloutDataModule
    from cod_lightning.modules import GRPOModule

    path = temporary_config("job.yaml", {**config, "warm_start": None})
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            cli = start(TrainCLI, GRPOModule, RolloutDataModule, ["--config", str(path)], execute=False)
        cli.model.credit.check(cli.datamodule.pack_size)
    except ConfigError as error:
        return str(error)
    except SystemExit:
        return printed.getvalue().strip().partition("error: ")[2]
    return None


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
    from cod_lightning.reports.sweeps.plots import write_plots
    from cod_lightning.terminal import Screen

    stem: Path = options.results or roots[0] / "sweep_results"
    results = compare([root.resolve() for root in roots], options.reference)
    write_results(stem.with_name(f"{stem.name}.json"), results)
    plots = write_plots(results, stem)
    command = shlex.join(["python", "-m", "cod_lightning", "sweep", *argv])
    text = page(results, "Runs compared", command, [plot for plot in plots if plot.suffix == ".png"])
    write_whole(stem.with_name(f"{stem.name}.md"), text)
    screen = Screen()
    for sweep in results["sweeps"]:
        screen.print(Text(f"\n{sweep['config']}, suite {sweep['suite']}:"))
        for sentence in [*sentences(sweep), *(f"Note: {note}" for note in sweep["notes"])]:
            screen.print(Padding(Text(sentence), (0, 0, 0, 2)))
    print(f"\nWritten to {stem}.json, .md and {len(plots)} plots")
    return 0
