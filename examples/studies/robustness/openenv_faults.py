"""So many lifecycles of each fault of an OpenEnv server: closed connection, no answer, no JSON, wrong types, an error, death.

    PYTHONPATH=. python examples/studies/robustness/openenv_faults.py [--lifecycles 1000] [--out docs/results/openenv_faults.json]

Needs the extra `openenv`. Raises where a lifecycle is lost, counted twice, or counted under another name.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from tests.openenv_faults import SIBLINGS, TIMEOUT_S, expected, play


def main() -> None:
    """Play, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lifecycles", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.lifecycles < SIBLINGS or options.lifecycles % SIBLINGS:
        parser.error(f"--lifecycles has to be a multiple of {SIBLINGS}")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counted = play(Path(folder), options.lifecycles)
    if counted != expected(options.lifecycles):
        raise SystemExit(f"counted {counted}, planted {expected(options.lifecycles)}")
    record = {
        "lifecycles of each": options.lifecycles,
        "counted": counted,
        "timeout_s": TIMEOUT_S,
        "seconds": round(time.perf_counter() - begun),
    }
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
