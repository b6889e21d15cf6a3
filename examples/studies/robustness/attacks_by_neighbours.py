"""Attacks by what stands beside a run: agent programs, a long-lived agent's folder, the cache of warm starts, phases that hang.

Counted as in `attacks`.
"""

import contextlib
import io
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from cod_lightning.commands import phase
from cod_lightning.commands.phase import ensure_warm_start
from cod_lightning.envs import apart
from cod_lightning.envs.process_pool import PendingCall
from cod_lightning.envs.programs.processes import LinePool
from tests.commands import test_warm_start_cache as cached
from tests.envs.test_apart import LOOKS_ROUND, python

ZERO = ("read_keys", "trained_on", "unsaid", "unseen")
"""What no attack may count."""
_KEYS = ("sk-judge", "sk-hub", "sk-other", "sk-argument")
_DAMAGES = (cached.flip, cached.link, cached.link_weights, cached.replace)
_HANG = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from cod_lightning.rollout.runner import RolloutRunner\n"
    "runner = RolloutRunner(None, 0.3)\n"
    "runner.start(Path(sys.argv[1]))\n"
    "with runner.phase(sys.argv[2]):\n"
    "    time.sleep(60)\n"
)


def looking_round(num: int) -> dict[str, int]:
    """Agent programs that look for keys in /proc and in their environment: `read_keys` counts what they find."""
    counts = dict.fromkeys(("programs", "read_keys", "without_namespaces"), 0)
    keys = {"JUDGE_API_KEY": _KEYS[0], "HF_TOKEN": _KEYS[1]}
    with mock.patch.dict(os.environ, keys):
        counts["without_namespaces"] = int(not apart._starter())
        beside = {**os.environ, "KEY_OF_ANOTHER": _KEYS[2]}
        other = subprocess.Popen(["sleep", "120", _KEYS[3]], env=beside, stderr=subprocess.DEVNULL)
        try:
            for _ in range(num):
                pool = LinePool(python(LOOKS_ROUND), 1, False)
                said = str(pool.ask({"api_key": "sk-own"}, lambda one: "answer" in one, 20.0, PendingCall()))
                counts["programs"] += 1
                counts["read_keys"] += sum(key in said for key in _KEYS)
        finally:
            other.kill()
            other.wait()
    return counts


def warm_start_caches(num: int) -> dict[str, int]:
    """A cached warm start is flipped, linked or replaced by another: `trained_on` counts those that are used as they are."""
    counts = dict.fromkeys(("damages", "trained_on", "unsaid"), 0)
    made: list[Path] = []

    def save(_: Any, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(1000))
        made.append(folder)

    parser, data = SimpleNamespace(dump=lambda config: "data: {}"), SimpleNamespace(env=None, check_with=str)
    cli = SimpleNamespace(parser=parser, config=None, datamodule=data, model=SimpleNamespace(policy=None))
    patched = mock.patch.multiple(phase, start=lambda *args, **more: cli, save_policy=save)
    for number in range(num):
        with (
            tempfile.TemporaryDirectory() as root,
            patched,
            mock.patch.dict(os.environ, COD_LIGHTNING_CACHE=root + "/cache"),
        ):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                policy, before = ensure_warm_start(cached.RUN)[0], len(made)
                random.Random(number).choice(_DAMAGES)(policy)
                said.truncate(0)
                ensure_warm_start(cached.RUN)
            counts["damages"] += 1
            counts["trained_on"] += len(made) == before
            counts["unsaid"] += not said.getvalue().strip("\0 \n")
    return counts


def hanging_phases() -> dict[str, int]:
    """A world hangs in a phase without a rollout: `unseen` counts those that are not ended with code 70 and the phase's name."""
    counts = dict.fromkeys(("phases", "unseen"), 0)
    for hanging in ("choosing training packs", "sampling packs of 'validation'", "sampling the first pack"):
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run(
                [sys.executable, "-c", _HANG, root, hanging], capture_output=True, text=True, timeout=60
            )
            report = Path(root) / "stalled.txt"
            counts["phases"] += 1
            counts["unseen"] += done.returncode != 70 or not report.exists() or hanging not in report.read_text()
    return counts


def attacks(share: float) -> dict[str, Callable[[], dict[str, int]]]:
    """All of them, with this share of the full numbers."""
    return {
        "looking_round": lambda: looking_round(max(2, int(40 * share))),
        "warm_start_caches": lambda: warm_start_caches(int(100 * share)),
        "hanging_phases": hanging_phases,
    }
