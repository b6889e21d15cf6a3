"""Attacks by how much there is and by when it comes: requests, lifecycles, signals. Counted as in `attacks`."""

import contextlib
import copy
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
import yaml
from packaging.version import Version

from cod_lightning.checkpoints.changes import check_changes, check_same_policy
from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.envs.apps import Apps
from cod_lightning.envs.process_world import ProcessWorld
from cod_lightning.reports.sweeps.compare import compare, page
from cod_lightning.types import Split
from examples.studies.robustness.damages import ABSURD, absurd, damage, holders, refused
from tests.checkpoints.made import content, model
from tests.checkpoints.test_changes import changed, kept
from tests.methods.test_recorded import SIZES_OF_POLICY, fit, packs_of
from tests.reports.sweeps.test_compare import job as swept_job
from tests.reports.test_report import quarter_of_a_gigabyte
from tests.test_heard_at_once import AT_ONCE_S, WORLDS, stopped_asleep
from tests.test_lock import FLOORS, LOCKED

ZERO = ("terminal_bytes", "unpicklable", "late", "spinning", "below")
"""What no attack may count."""
_NO_HTTP = (
    "import sys\n"
    "from pathlib import Path\n"
    "from tests.rollout.test_own_loop import first, no_http, played\n"
    "groups, _ = played(Path(sys.argv[1]), no_http(int(sys.argv[2])), siblings=1)\n"
    "assert first(groups).error == '', first(groups).error\n"
)


def requests_without_http(num: int) -> dict[str, int]:
    """A program sends the policy's endpoint what is no HTTP: `terminal_bytes` is what the run prints of it."""
    with tempfile.TemporaryDirectory() as root:
        done = subprocess.run([sys.executable, "-c", _NO_HTTP, root, str(num)], capture_output=True, check=True)
    return {"requests": num, "terminal_bytes": len(done.stdout) + len(done.stderr)}


def damaged_sweeps(num: int) -> dict[str, int]:
    """A file of a sweep's job is damaged, or a value in it becomes absurd; the runs are compared, or refused in one line."""
    counts = dict.fromkeys(("damages", "tables", "refused", "tracebacks"), 0)
    with tempfile.TemporaryDirectory() as root:
        whole = Path(root) / "whole"
        whole.mkdir()
        for seed in (1, 2):
            swept_job(whole, seed, 0.3, credit="episode")
            swept_job(whole, seed, 0.5, credit="trajectory", order=1)
        files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
        for number in range(num):
            rng, folder = random.Random(f"sweeps/{number}"), Path(root) / str(number)
            shutil.copytree(whole, folder)
            path = folder / rng.choice(files)
            (absurd if path.suffix == ".json" and number % 4 else damage)(path, rng)
            counts["damages"] += 1
            with refused(counts, f"sweep {number}, {path.name}"):
                page(compare([folder]), "")
                counts["tables"] += 1
            shutil.rmtree(folder)
    return counts


def recorded_groups(num: int) -> dict[str, int]:
    """A line of lifecycles from elsewhere is damaged, or a value in it absurd; they are taken or refused in one line."""
    counts = dict.fromkeys(("damages", "taken", "refused", "tracebacks"), 0)
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(io.StringIO()):
        fit(Path(root))
        lines = (Path(root) / "lifecycles" / "train.jsonl").read_bytes()
        for number in range(num):
            rng, path = random.Random(f"groups/{number}"), Path(root) / str(number) / "train.jsonl"
            path.parent.mkdir()
            path.write_bytes(lines)
            (absurd if number % 4 else damage)(path, rng)
            counts["damages"] += 1
            with refused(counts, f"groups {number}"):
                packs, drawn = packs_of(path.parent)
                packs.collected(drawn, 2, *SIZES_OF_POLICY)
                counts["taken"] += 1
    return counts


def absurd_checkpoints(num: int) -> dict[str, int]:
    """A value of a checkpoint from elsewhere becomes absurd: commands read it and compare configs, or refuse it in one line."""
    counts = dict.fromkeys(("damages", "read", "refused", "tracebacks"), 0)
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stderr(io.StringIO()):
        whole, path = torch.load(kept(Path(root), left=1), weights_only=True), Path(root) / "last.ckpt"
        whole |= content(model()) | {"base": {"name": "a", "dtype": "float32", "digest": "0"}}
        for number in range(num):
            damaged, rng = copy.deepcopy(whole), random.Random(f"checkpoints/{number}")
            holder, key = rng.choice([one for one in holders(damaged) if one[1] != "cod_lightning"])
            holder[key] = rng.choice(ABSURD)
            torch.save(damaged, path)
            counts["damages"] += 1
            with refused(counts, f"checkpoint {number}, {key}"):
                found = read_checkpoint(path)
                check_changes(found, changed(data__pack_size=3), 1, accepted=True)
                check_same_policy(found, yaml.safe_load(changed()), (), accepted=True)
                found.weights()
                counts["read"] += found.global_step >= 0 and len(found.versions) > 0
    return counts


def large_reports() -> dict[str, int]:
    """A report of 272 MB of lifecycles: the most that its process held, in MiB."""
    with tempfile.TemporaryDirectory() as root:
        megabytes, _, peak = quarter_of_a_gigabyte(Path(root))
    return {"megabytes": megabytes, "peak_mib": peak}


def worlds_in_processes() -> dict[str, int]:
    """Apps of every kind in worker processes, where a broken one costs its lifecycle: `unpicklable` counts those that cannot be."""
    counts = dict.fromkeys(("worlds", "unpicklable"), 0)
    for options in ({}, {"quirks": 3}, {"protocol": "compact"}, {"templates": ["send_mail"]}):
        counts["worlds"] += 1
        try:
            world = ProcessWorld(Apps(**options), num_workers=1)
            pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
            world.reset(options={"task": pack.tasks[0]})
            world.step("<answer>user.done()</answer>")
        except Exception as error:
            print(f"{options}: {error}", file=sys.stderr)
            counts["unpicklable"] += 1
    return counts


def late_signals() -> dict[str, int]:
    """SIGTERM while a world sleeps for a minute: `late` counts runs that do not end at once."""
    counts = dict.fromkeys(("signals", "late"), 0)
    for more in WORLDS.values():
        for staleness in ("0", "1"):
            with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(io.StringIO()):
                seconds = stopped_asleep(Path(root) / "run", *more, "--data.max_staleness", staleness)
            counts["signals"] += 1
            counts["late"] += seconds > AT_ONCE_S
    return counts


def spinning_threads() -> dict[str, int]:
    """Our commands and the modules that they start: `spinning` counts those whose torch threads spin for long where they wait."""
    counts = dict.fromkeys(("starts", "spinning"), 0)
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    for argv in (["--version"], ["worlds"], ["fit", "--help"]):
        source = (
            f"from cod_lightning.cli import main\ntry:\n    main({argv})\nexcept SystemExit:\n    pass\nimport torch"
        )
        environment = kept | {"OMP_DISPLAY_ENV": "VERBOSE"}
        said = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True).stderr
        counts["starts"] += 1
        counts["spinning"] += any(int(found) > 1000 for found in re.findall(r"GOMP_SPINCOUNT = '(\d+)'", said))
    return counts


def pins() -> dict[str, int]:
    """`below` counts what is locked or installed of versions that let others run code, or write files."""
    found = [(name, where) for name in FLOORS for where in (LOCKED[name], version(name))]
    below = sum(Version(one) <= Version(FLOORS[name]) for name, one in found)
    return {"packages": len(LOCKED), "below": below}


def attacks(share: float) -> dict[str, Callable[[], dict[str, int]]]:
    """All of them, with this share of the full numbers."""
    return {
        "requests_without_http": lambda: requests_without_http(max(20, int(4000 * share))),
        "damaged_sweeps": lambda: damaged_sweeps(int(600 * share)),
        "recorded_groups": lambda: recorded_groups(int(2000 * share)),
        "absurd_checkpoints": lambda: absurd_checkpoints(int(2000 * share)),
        "large_reports": large_reports,
        "worlds_in_processes": worlds_in_processes,
        "late_signals": late_signals,
        "spinning_threads": spinning_threads,
        "pins": pins,
    }
