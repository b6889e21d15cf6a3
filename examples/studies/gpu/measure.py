"""`make gpu`: what a GPU does, part by part, into docs/results/gpu.md. Each part has a process and a time limit of its own.

    python examples/studies/gpu/measure.py                          # all parts, at most 30 minutes
    python examples/studies/gpu/measure.py --parts gap,speed        # some; the others' figures stay on the page
    python examples/studies/gpu/measure.py --small --out /tmp/gpu   # a dry run on the CPU at small sizes

A part that cannot run says why on the page, and the rest goes on. Only what was measured is written.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parents[3]
PARTS = {  # name: module, most seconds
    "gap": ("parts", 60),
    "graphs": ("parts", 60),
    "speed": ("parts", 200),
    "cod": ("language_model", 590),
    "resume": ("language_model", 150),
    "plan": ("parts", 120),
    "gradients": ("parts", 60),
    "stochastic": ("parts", 60),
    "sleep": ("run_parts", 120),
    "paged": ("run_parts", 90),
    "fsdp2": ("run_parts", 150),
}
PACKAGES = ("torch", "transformers", "lightning", "peft", "bitsandbytes", "vllm", "vllm-bnb-plugin", "cod-lightning")
MARK = "ROW "


def main(argv: list[str] | None = None) -> int:
    """0 where every part ran or said why it cannot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--small", action="store_true", help="small sizes on the CPU")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "gpu", help="without a suffix")
    parser.add_argument("--one", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        for row in rows_of(options.one, small=options.small):
            print(MARK + json.dumps(row), flush=True)
        return 0
    chosen = options.parts.split(",")
    if unknown := set(chosen) - PARTS.keys():
        parser.error(f"--parts is {', '.join(sorted(unknown))}; expected some of {', '.join(PARTS)}")
    file = options.out.with_suffix(".json")
    record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    for name in chosen:
        begun = time.monotonic()
        rows = run(name, small=options.small)
        seconds = time.monotonic() - begun
        record["parts"][name] = {"rows": rows, "seconds": seconds, "machine": machine(small=options.small)}
        print(f"{name}: {seconds:.0f} s, {sum('not run' not in row for row in rows)} of {len(rows)} lines", flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")
        file.with_suffix(".md").write_text(page(record))
    return 0


def rows_of(name: str, *, small: bool) -> Iterable[dict[str, Any]]:
    """The part's rows as it measures them, in this process."""
    from examples.studies.gpu.sizes import REAL, SMALL

    return getattr(import_module(f"examples.studies.gpu.{PARTS[name][0]}"), name)(SMALL if small else REAL)


def run(name: str, *, small: bool) -> list[dict[str, Any]]:
    """The part's rows, those of a part that was cut off too, and why it ended where it did not end well."""
    command = [sys.executable, str(Path(__file__)), "--one", name, *(["--small"] if small else [])]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=complained, text=True)
        why = ""
        try:
            if code := process.wait(timeout=PARTS[name][1]):
                complained.seek(0)
                last = (complained.read().strip().splitlines() or ["no output"])[-1]
                why = f"ended with {code}: {last[:300]}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            why = f"not done within {PARTS[name][1]} s"
        said.seek(0)
        rows = [json.loads(line.removeprefix(MARK)) for line in said if line.startswith(MARK)]
    return [*rows, {"not run": why}] if why else rows


def machine(*, small: bool) -> str:
    """What it ran on, and with what."""
    try:
        import torch

        card = torch.cuda.get_device_name() if torch.cuda.is_available() and not small else "no GPU"
        device = f"{max(1, torch.cuda.device_count())} x {card}" if card != "no GPU" else f"{platform.machine()} CPU"
    except ImportError:
        device = "no torch"
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    sizes = "small sizes, a dry run: no figure here says anything about a GPU" if small else "full sizes"
    return f"{device}, Python {platform.python_version()}, {', '.join(found)}; {sizes}"


def page(record: dict[str, Any]) -> str:
    """The page, from all parts that the record has."""
    from cod_lightning import markdown

    text = ["# On a GPU", ABOUT.strip()]
    if missing := [name for name in PARTS if name not in record["parts"]]:
        text.append(f"Not measured: {', '.join(missing)}.")
    machines = dict.fromkeys(part["machine"] for part in record["parts"].values())
    text += [f"All parts: {one}." for one in machines] if len(machines) == 1 else []
    for name in (name for name in PARTS if name in record["parts"]):
        part = record["parts"][name]
        module = import_module(f"examples.studies.gpu.{PARTS[name][0]}")
        about = " ".join((getattr(module, name).__doc__ or "").split())
        machine_of = "" if len(machines) == 1 else f" {part['machine']}."
        text += [f"## {name}", f"{about} {part['seconds']:.0f} s.{machine_of}"]
        ran = over_seeds([row for row in part["rows"] if not {"suite", "not run"} & row.keys()])  # a policy's: many
        if ran:
            columns = list(dict.fromkeys(key for row in ran for key in row))
            text.append(markdown.table(columns, [[_cell(row.get(key, "")) for key in columns] for row in ran]))
        for row in (row for row in part["rows"] if "not run" in row):
            text.append(f"Not run: {', '.join(map(str, row.values()))}.")
    return "\n\n".join(text) + "\n"


def over_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, those of runs that differ in nothing but their seed as one: their means."""
    seeds = [row for row in rows if str(row.get("run")).startswith("seed ")]
    if not seeds:
        return rows
    means = {key: mean(row[key] for row in seeds) for key, value in seeds[0].items() if isinstance(value, float)}
    return [{**seeds[0], **means, "run": f"mean of {len(seeds)} seeds"}, *(row for row in rows if row not in seeds)]


ABOUT = """
**How fast is it on a GPU, and are its numbers right?** A process for each part, with random weights but in `cod`, whose success is
on [its page](pretrained.md). Seeds are in [gpu.json](gpu.json).

    make gpu
    python examples/studies/gpu/measure.py --parts gap,graphs
"""


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
