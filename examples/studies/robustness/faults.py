"""A training with so many lifecycles of each planted fault, and an evaluation at a server that dies; part of `make soak`.

PYTHONPATH=. python examples/studies/robustness/faults.py [--lifecycles 1000] [--out docs/results/faults.json]
"""

import argparse
import json
import logging
import tempfile
import warnings
from pathlib import Path

PACKS_PER_ROLLOUT = 125
"""100 of them have each fault of the engine in one sibling, 12 or 13 each fault of the world in all eight."""


def main() -> None:
    """Both runs check every count against the plan and raise where one is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lifecycles", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.lifecycles < 100 or options.lifecycles % 100:
        parser.error("--lifecycles has to be a multiple of 100")
    import torch

    from tests.planted_faults import play_through_an_outage, train

    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        trained = train(
            Path(folder, "train"),
            rollouts=options.lifecycles // 100,
            packs=PACKS_PER_ROLLOUT,
            updates=5,
            step_s=2.0,
            turn_s=10.0,
        )
        outage = play_through_an_outage(Path(folder, "outage"), options.lifecycles, max_retries=0)
    record = {"training": trained, "server that dies and comes back": outage, "lost or counted twice": 0}
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
