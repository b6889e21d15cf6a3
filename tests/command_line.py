"""Commands as a user types them, in processes of their own, and the metrics that a run left."""

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def cod(*arguments, cwd, cache, timeout=600):
    """`python -m cod_lightning` with these arguments, and with a cache of warm starts of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COD_LIGHTNING_CACHE": str(cache)}
    command = [sys.executable, "-m", "cod_lightning", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)


def rows(folder):
    """Rows of the run's `metrics.csv`."""
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))
