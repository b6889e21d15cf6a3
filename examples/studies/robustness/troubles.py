"""Full disks, clocks that go back and commands typed twice, against `fit`, `deploy`, `sweep` and Slurm; part of `make soak`.

    PYTHONPATH=. python examples/studies/robustness/troubles.py [--times 10] [--commands fit deploy sweep launch]
        [--troubles no_room clock_back two_at_once] [--out docs/results/troubles.json]

*no_room*: the folder's file system, a small one in memory, fills up at a random moment and stays full until the command ends;
then there is room, and it is typed again. *clock_back*: the clock goes back by a day four times a second, files get times at
random, and the command is killed once. *two_at_once*: it is typed again while the first one runs. `launch` submits
`examples/slurm.sh` to a stand-in of Slurm. Exits with 1 where anything hangs or gives a traceback, where the command does not end
well when typed again, where two run in one folder, or where what it leaves is not what a command without trouble leaves: a run is
counted only after that.
Linux, with `unshare` and `cc`; what `--out` has of another command or trouble stays.
"""

import argparse
import json
import multiprocessing.context
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cod_lightning.cli import main as command_line
from cod_lightning.deployment import ContextStore
from examples.studies.robustness.job_kills import (
    CELLS,
    JOB,
    MARK,
    ROOT,
    cells_that_differ,
    kill_some,
    marked,
    until_gone,
)
from tests import fake_slurm
from tests.forked_fit import EVERY, SMALL, assert_the_same

SIZE_MIB, NUM_TASKS = 48, 60
_LAST = "error: "
_TRACEBACK, _OF_OURS = "Traceback (most recent call last)", re.compile(r'File "[^"]*/cod_lightning/(?!.*site-packages)')
_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static int (*asked)(clockid_t, struct timespec *);
int clock_gettime(clockid_t id, struct timespec *now) {
  if (!asked) asked = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int code = asked(id, now);
  struct timespec since;
  if (code == 0 && id == CLOCK_REALTIME && getenv("CLOCK_GOES_BACK") && asked(CLOCK_MONOTONIC, &since) == 0)
    now->tv_sec -= 86400 * ((since.tv_sec * 4 + since.tv_nsec / 250000000) % 4000);
  return code;
}
int gettimeofday(struct timeval *now, void *zone) {
  struct timespec is;
  int code = clock_gettime(CLOCK_REALTIME, &is);
  now->tv_sec = is.tv_sec, now->tv_usec = is.tv_nsec / 1000;
  return code;
}
time_t time(time_t *now) {
  struct timespec is;
  clock_gettime(CLOCK_REALTIME, &is);
  if (now) *now = is.tv_sec;
  return is.tv_sec;
}
"""
"""Loaded before the C library. Where it is asked to, the clock goes back by a day four times a second, for 4,000 days."""


class Forked(multiprocessing.context.ForkProcess):
    """A command line in a fork of this process, which has imported all of it, with the face of `subprocess.Popen`."""

    def __init__(self, line: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        super().__init__(target=self.work, args=(line, log, environment))
        self.start()

    @staticmethod
    def work(line: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = (os.fdopen(one, "w", buffering=1) for one in (1, 2))
        code = 1
        try:
            code = command_line(line)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float) -> int:
        self.join(timeout)
        assert self.exitcode is not None, f"process {self.pid} hangs"
        return self.exitcode


@dataclass
class Command:
    """One of the four in a folder of its own.

    Args:
        line: Of a run's folder, what is typed.
        check: Raises `AssertionError` where the first folder is not as the second one.
        forked: Whether it is one process, a fork of this one.
    """

    name: str
    folder: Path
    line: Callable[[Path], list[str]]
    check: Callable[[Path, Path], None]
    forked: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    num_typed: int = 0

    @property
    def mark(self) -> str:
        return str(self.folder / self.name)

    def type(self, root: Path, **more: str) -> "Forked | subprocess.Popen[bytes]":
        """Begin it; its output goes to a file beside the folder, which no full disk cuts."""
        self.num_typed += 1
        environment = {MARK: self.mark, "PYTHONPATH": str(ROOT)} | self.environment | more
        environment |= {"COD_LIGHTNING_CACHE": str(self.folder / "cache"), "FAKE_SLURM_JOB": str(self.num_typed)}
        if self.forked:
            return Forked(self.line(root), self.log(root), environment)
        line = self.line(root)
        line = line if line[0] == "sbatch" else [sys.executable, "-m", "cod_lightning", *line]
        with self.log(root).open("ab") as log:
            return subprocess.Popen(line, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True)

    def runs(self, typed: "Forked | subprocess.Popen[bytes]") -> bool:
        """Whether it, or a job that it began, is there."""
        return typed.poll() is None or (not self.forked and bool(marked(self.mark)))

    def kill(self, typed: "Forked | subprocess.Popen[bytes]", rng: random.Random) -> bool:
        """SIGKILL to the fork, or to one or all of the processes; whether there were any."""
        if not isinstance(typed, Forked):
            return kill_some(self.mark, rng)
        typed.kill()
        return typed.wait(60) == -signal.SIGKILL

    def log(self, root: Path) -> Path:
        return self.folder / f"{root.name}.log"

    def ended(self, typed: "Forked | subprocess.Popen[bytes]", root: Path) -> int:
        """Its exit code, once all of its processes are gone and none has said a traceback."""
        code = typed.wait(300)
        until_gone(self.mark)
        said = [self.log(root), *root.rglob("*.log"), *root.rglob("log.txt"), *root.rglob("*.out")]
        for path in said:
            text = path.read_text(errors="replace")
            torchrun = self.name == "launch" and not _OF_OURS.search(
                text
            )  # says one of its own where a rank was refused
            assert _TRACEBACK not in text or torchrun, f"{path}: {text[-3000:]}"
        return code

    def well(self, root: Path) -> None:
        """Typed once more with nothing in its way, it ends well."""
        assert self.ended(self.type(root), root) == 0, self.log(root).read_text()[-2000:]


def commands(folder: Path) -> dict[str, Command]:
    """All four, by name."""
    small = ["--checkpoint_every", "1", "--trainer.default_root_dir"]
    deploy = [
        "deploy",
        "--config",
        "smoke",
        "--warm_start",
        "null",
        "--torch_threads",
        "1",
        "--trainer.accelerator",
        "cpu",
    ]

    def deployed(root: Path) -> list[str]:
        return [*deploy, "--state", str(root), "--num_tasks", str(NUM_TASKS - solved(root))]

    slurm = fake_slurm.install(folder / "slurm", {"127.0.0.1": ""})
    return {
        "fit": Command(
            "fit", folder, lambda root: [*SMALL, *EVERY, "--ckpt_path", "auto", small[-1], str(root)], same_run, True
        ),
        "deploy": Command("deploy", folder, deployed, same_store, True),
        "sweep": Command(
            "sweep", folder, lambda root: ["sweep", "--config", "smoke", "--out", str(root), *CELLS], same_cells
        ),
        "launch": Command(
            "launch",
            folder,
            lambda root: [*JOB, str(root), *SMALL[1:], *small[:2]],
            same_run,
            environment=slurm | {"PYTHON": sys.executable},
        ),
    }


def solved(root: Path) -> int:
    """Tasks that the agent in this folder has solved."""
    if not (root / "agent.sqlite").exists():
        return 0
    store = ContextStore(root, create=False)
    try:
        return store.num_solved()
    finally:
        store.close()


def same_run(root: Path, whole: Path) -> None:
    """Weights, moments and metrics, bit for bit, and every lifecycle that was written down."""
    assert_the_same(root, whole)
    for path in sorted((whole / "lifecycles").glob("*.jsonl")):
        lines = [set((one / "lifecycles" / path.name).read_text().splitlines()) for one in (root, whole)]
        assert lines[1] <= lines[0], f"{path.name} lacks {len(lines[1] - lines[0])} of {len(lines[1])} lines"
    assert (root / "report.html").is_file()


def same_cells(root: Path, whole: Path) -> None:
    assert not (differing := cells_that_differ(root, whole)), f"{differing} cells differ"


def same_store(root: Path, whole: Path) -> None:
    """Every context and every episode of these tasks, but for when it was."""
    kept = []
    for folder in (root, whole):
        store = ContextStore(folder, create=False)
        versions = [(one.version, one.text, one.state, one.reason) for one in store.versions()]
        kept.append((versions, [(one.task, one.episode) for one in store.episodes()]))
        store.close()
    (versions, episodes), (their_versions, their_episodes) = kept
    assert len(their_episodes) == 2 * NUM_TASKS
    assert episodes[: len(their_episodes)] == their_episodes, "the episodes differ"
    assert versions[: len(their_versions)] == their_versions, "the contexts differ"


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own, in memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> None:
    """Until nothing more can be written."""
    with suppress(OSError), (disk / "ballast").open("ab", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


def no_room(command: Command, whole: Path, seconds: float, rng: random.Random, number: int) -> dict[str, int]:
    """One run whose disk is full from some moment on, until there is room again."""
    with small_disk(command.folder / f"{command.name}-disk{number}") as disk:
        root, end = disk / f"{command.name}-no_room{number}", time.monotonic() + rng.uniform(0.1, 0.8) * seconds
        typed = command.type(root)
        while time.monotonic() < end and command.runs(typed):
            time.sleep(0.05)
        while command.runs(typed):
            fill(disk)
            time.sleep(0.05)
        code = command.ended(typed, root)
        text = command.log(root).read_text(errors="replace")
        assert code in (0, 1, 2), text[-2000:]
        assert _LAST in text or code == 0 or command.name == "sweep", text[-2000:]
        cut = code != 0 or (command.name == "launch" and not (root / "report.html").is_file())
        (disk / "ballast").unlink(missing_ok=True)
        command.well(root)
        command.check(root, whole)
    return {"ended_for_want_of_room": int(cut)}


def clock_back(command: Command, whole: Path, seconds: float, rng: random.Random, number: int) -> dict[str, int]:
    """One run under a clock that goes back, killed once; its files then get times of any order."""
    root = command.folder / f"{command.name}-clock{number}"
    typed = command.type(root, CLOCK_GOES_BACK="1")
    time.sleep(rng.uniform(0.1, 0.8) * seconds)
    kills = int(command.kill(typed, rng))
    typed.wait(300)
    until_gone(command.mark)
    for path in (root, *root.rglob("*")):
        with suppress(FileNotFoundError):
            os.utime(path, (rng.randrange(2 * 10**9), rng.randrange(2 * 10**9)))
    code = command.ended(command.type(root, CLOCK_GOES_BACK="1"), root)
    assert code == 0, command.log(root).read_text()[-2000:]
    command.check(root, whole)
    return {"kills": kills}


def two_at_once(command: Command, whole: Path, seconds: float, rng: random.Random, number: int) -> dict[str, int]:
    """One folder, for which the command is typed twice."""
    root = command.folder / f"{command.name}-two{number}"
    first = command.type(root)
    time.sleep(rng.choice((0.0, rng.uniform(0, seconds))))
    second = command.type(root)
    codes = sorted((first.wait(300), command.ended(second, root)))
    said = "".join(path.read_text(errors="replace") for path in (command.log(root), *root.glob("launch/train.*.log")))
    assert codes in ([0, 0], [0, 2]), f"{codes}: {said[-2000:]}"
    refused = said.count("holds it)")
    assert refused == (codes == [0, 2]) or command.name == "launch", said[-2000:]  # there a job may be refused as well
    command.check(root, whole)
    return {"refused": int(refused > 0), "one_after_the_other": int(not refused)}


TROUBLES = {"no_room": no_room, "clock_back": clock_back, "two_at_once": two_at_once}


def soak(command: Command, troubles: Sequence[str], times: int, note: Callable[[str, dict[str, int]], None]) -> None:
    """So many runs with each of the troubles, beside one without."""
    whole, begun = command.folder / f"{command.name}-whole", time.monotonic()
    command.well(whole)
    seconds = time.monotonic() - begun
    for name in troubles:
        found: dict[str, int] = {"runs": 0}
        for number in range(times):
            rng = random.Random(f"{command.name}/{name}/{number}")
            for key, count in TROUBLES[name](command, whole, seconds, rng, number).items():
                found[key] = found.get(key, 0) + count
            found["runs"] += 1
            note(name, found)


def begin_again(argv: Sequence[str]) -> None:
    """This script once more, with the clock, and with mounts that no other process sees and that end with it."""
    folder = Path(tempfile.mkdtemp())
    (folder / "clock.c").write_text(_CLOCK)
    clock = str(folder / "clock.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", clock, folder / "clock.c", "-ldl"], check=True)
    own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    os.execvpe(own[0], [*own, sys.executable, *argv], os.environ | {"LD_PRELOAD": clock})


def main() -> None:
    """All of them, in a temporary folder and a mount namespace of this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["fit", "deploy", "sweep", "launch"]
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--commands", nargs="+", choices=names, default=names)
    parser.add_argument("--troubles", nargs="+", choices=list(TROUBLES), default=list(TROUBLES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if "LD_PRELOAD" not in os.environ:
        begin_again(sys.argv)
    clock = Path(os.environ["LD_PRELOAD"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    record: dict[str, Any] = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    try:
        for name in options.commands:

            def note(trouble: str, found: dict[str, int], name: str = name) -> None:
                record.setdefault(name, {})[trouble] = found
                print(json.dumps({name: {trouble: found}}), file=sys.stderr, flush=True)
                if options.out:
                    options.out.write_text(json.dumps(record, indent=1) + "\n")

            soak(commands(clock.parent)[name], options.troubles, options.times, note)
    finally:
        shutil.rmtree(clock.parent, ignore_errors=True)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
