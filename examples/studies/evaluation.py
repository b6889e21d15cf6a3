"""The quick start's policy against everything that could explain its curve: warm start, controls, references; 2,048 packs each.

    python examples/studies/evaluation.py --out docs/results/evaluation.json [--checkpoint PATH] [--config quickstart]
        [--packs 2048] [--only held_out]

Without a checkpoint the policy is trained first. Then one `python -m cod_lightning test` plays held-out packs, longer packs, the
Ralph loop and packs whose rule changes. Writes what came out to the JSON file and to a page beside it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from cod_lightning.evaluation.results import read_results
from cod_lightning.evaluation.schema import Results
from cod_lightning.evaluation.view import packs_of, rows, with_interval
from cod_lightning.evaluation.wording import sentences
from cod_lightning.markdown import table

ROOT = Path(__file__).resolve().parents[2]
ABOUT = """
**Does success come from what was written down?** The quick start's policy in four suites, with every control, in {packs} of
each, the same for all: {sizes}.

    {command}

Success at the first and last position, 95 % bootstrap intervals over hidden orders with all their packs; all positions and
differences are in [evaluation.json](evaluation.json). *Blanked context*: contexts are written and not shown; *no context*: no
update; *another pack's context*: that of the next pack's agent at that position; *the oracle's context*: the truth from position 0
on. The oracle solves all. **Limits**: one training seed, one environment.
"""


def suites(num_packs: int) -> list[dict[str, Any]]:
    """What is played, by which controls."""
    contexts = ["blanked_context", "no_context", "shuffled_context", "oracle_context"]
    references = ["random", "memoryless", "scripted", "oracle"]
    every: dict[str, Any] = {"num_packs": num_packs, "reference_packs": num_packs, "controls": [*contexts, *references]}
    alone: dict[str, Any] = {**every, "warm_start_temperatures": [0.3, 1.0]}
    longer = {**alone, "controls": ["no_context", "shuffled_context", "oracle_context", "scripted", "oracle"]}
    return [
        {"name": "held_out", **every},
        {"name": "longer_packs_16", "pack_size": 16, **longer},
        {"name": "ralph_loop", "pack_size": 8, "wrap": "ralph_loop", **alone},
        {"name": "non_stationary", "pack_size": 8, "change_at": 4, **alone},
    ]


def page(results: Results, command: str) -> str:
    """A table of all suites, and what they show in sentences."""
    suites = results["suites"]
    beginning, first = next(iter(suites.items()))
    found = {name: {row.label: row.positions for row in rows(record) if row.main} for name, record in suites.items()}
    cells = []
    for label, positions in found[beginning].items():
        if label == "oracle":  # solves all
            continue
        ends = [positions[0], *(of[label][-1] if label in of else None for of in found.values())]
        cells.append([label, *(with_interval(p["success"], p["success_ci95"]) if p else "" for p in ends)])
    sizes = ", ".join(f"`{name}` of {record['pack_size']}" for name, record in suites.items())
    changed = [one for record in suites.values() if record["figures"]["recovery"] for one in sentences(record)]
    parts = [
        "# Learning or luck",
        ABOUT.strip().format(command=command, packs=packs_of(first), sizes=sizes),
        table(["policy", f"{beginning}, first", *(f"{name}, last" for name in suites)], cells),
        "\n".join(f"- {one}" for one in [*sentences(first), *(one for one in changed if "change of the rule" in one)]),
    ]
    return "\n\n".join(parts) + "\n"


def cod(*arguments: str) -> None:
    """A command of the project, in a process of its own."""
    command = [sys.executable, "-m", "cod_lightning", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")


def measure(config: str, checkpoint: Path | None, num_packs: int, only: list[str], folder: Path) -> Results:
    """The evaluation of the checkpoint, or of a policy that is trained for it."""
    if checkpoint is None:
        cod("fit", "--config", config, "--data.suites", "null", "--trainer.default_root_dir", str(folder / "run"))
        checkpoint = folder / "run" / "checkpoints" / "last.ckpt"
    chosen = folder / "suites.yaml"
    chosen.write_text(yaml.safe_dump([s for s in suites(num_packs) if not only or s["name"] in only]))
    tested = ("--ckpt_path", str(checkpoint.resolve()), "--data.suites", str(chosen))
    cod("test", "--config", config, *tested, "--trainer.default_root_dir", str(folder / "tested"))
    return read_results(folder / "tested" / "evaluation.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, default=None)
    parser.add_argument("--config", default="quickstart")
    parser.add_argument("--packs", type=int, default=2048)
    parser.add_argument("--only", nargs="*", default=[], help="names of suites; all if left out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(args.config, args.checkpoint, args.packs, args.only, Path(folder))
    for record in results["suites"].values():
        record["checkpoint"] = None if args.checkpoint is None else str(args.checkpoint)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    only = f" --only {' '.join(args.only)}" if args.only else ""
    command = (
        f"python examples/studies/evaluation.py --config {args.config} --packs {args.packs}{only} --out {args.out}"
    )
    args.out.with_suffix(".md").write_text(page(results, command))
    print(f"Written to {args.out} and {args.out.with_suffix('.md')}")


if __name__ == "__main__":
    main()
