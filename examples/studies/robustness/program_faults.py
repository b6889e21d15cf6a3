"""So many lifecycles of each fault of an agent program and of a worker of verifiers: slow, dead, wrong types, closed connections.

    PYTHONPATH=. python examples/studies/robustness/program_faults.py [--lifecycles 48] [--out docs/results/program_faults.json]

Raises where a lifecycle is lost, counted twice, or counted under another name.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from tests.program_faults import SIBLINGS, TIMEOUT_S, expected, play


def main() -> None:
    """Play, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lifecycles", type=int, default=48)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.lifecycles < SIBLINGS or options.lifecycles % SIBLINGS:
        parser.error(f"--lifecycles has to be a multiple of {SIBLINGS}")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counted = play(Path(folder), options.lifecycles)
    if counted != expected(options.lifecycles):
        raise SystemExit(f"counted {counted}, planted {expected(options.lifecycles)}")
    planted = sum(
        n for of in counted.values() for fault, names in of.items() if fault != "none" for n in names.values()
    )
    record = {
        "faults planted": planted,
        "lifecycles of each": options.lifecycles,
        "counted": counted,
        "timeout_s of slow ones": TIMEOUT_S,
        "seconds": round(time.perf_counter() - begun),
    }
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
