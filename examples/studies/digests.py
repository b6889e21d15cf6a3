"""SHA-256 of what short trainings compute, to tell whether a change, or another day, leaves every bit as it was.

    PYTHONPATH=. python examples/studies/digests.py [--runs NAME ...] [--out docs/results/digests.json]

Each run trains from an empty cache with one torch thread and no evaluation: minutes. Digests are those of the columns of
metrics.csv other than timings, by name, and of the trained weights. Prints them, and exits with 1 where one is not that of
digests.json, which holds for one kind of processor and the versions that it names.
"""

import argparse
import csv
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "results" / "digests.json"
CONFIGS = {"smoke": "smoke", "quickstart": "quickstart", "mixture": "experiment/mixture"}
LIBRARIES = "torch", "lightning", "transformers", "numpy"


def machine() -> dict[str, str]:
    """The processor with what torch's kernels use of it, and versions."""
    cpus = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", cpus)
    cpu = f"{name[1] if name else platform.processor()}, {torch.backends.cpu.get_cpu_capability()}"
    return {"cpu": cpu, "python": platform.python_version()} | {one: version(one) for one in LIBRARIES}


def run(name: str) -> dict[str, str]:
    """Digests of a training of that name, and its command."""
    arguments = [
        "fit",
        "--config",
        CONFIGS[name],
        "--seed_everything",
        "1",
        "--torch_threads",
        "1",
        "--data.suites",
        "null",
    ]
    with tempfile.TemporaryDirectory() as folder:
        of = os.environ | {"COD_LIGHTNING_CACHE": f"{folder}/cache", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "cod_lightning", *arguments, "--trainer.default_root_dir", f"{folder}/run"]
        subprocess.run(command, cwd=ROOT, env=of, check=True, stdout=subprocess.DEVNULL)
        metrics, weights = (
            of_metrics(Path(folder, "run/metrics.csv")),
            of_weights(Path(folder, "run/checkpoints/last.ckpt")),
        )
    return {"command": " ".join(["python -m cod_lightning", *arguments]), "metrics": metrics, "weights": weights}


def of_metrics(file: Path) -> str:
    """Of the columns, each with its name, in the order of names; of a row that has no value, the empty text."""
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = sorted(name for name in rows[0] if not name.startswith(("time/", "throughput/")))
    return hashlib.sha256(json.dumps([[name, *(row[name] for row in rows)] for name in names]).encode()).hexdigest()


def of_weights(checkpoint: Path) -> str:
    found = hashlib.sha256()
    for name, weight in sorted(torch.load(checkpoint, weights_only=False)["state_dict"].items()):
        found.update(f"{name} {weight.dtype} {list(weight.shape)}".encode())
        found.update(weight.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", choices=CONFIGS, default=list(CONFIGS), metavar="NAME")
    parser.add_argument("--out", type=Path, help="The JSON file, in place of a comparison.")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "runs": {}}
    for name in options.runs:
        found["runs"][name] = run(name)
        print(json.dumps({name: found["runs"][name]}, indent=1), flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    kept = json.loads(KEPT.read_text())
    if kept["machine"] != found["machine"]:
        print(f"of another machine: {kept['machine']}, not {found['machine']}")
    differing = [name for name, one in found["runs"].items() if one != kept["runs"][name]]
    print(f"not as in {KEPT.name}: {', '.join(differing)}" if differing else f"as in {KEPT.name}")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
