"""What a machine lacks of this project's packages, as pinned wheels; with `--to` they are downloaded, for one without an index.

    ssh gpu python3 -m pip freeze >there.txt
    python examples/studies/gpu/wheels.py --there there.txt --extra qlora --python 3.12 --to wheels
    ssh gpu python3 -m pip install --no-deps wheels/*.whl

Packages that are there stay, in whatever version: pip resolves the project beside them, and what it would add is listed. Without an
answer of pip (two versions that exclude each other) its message is shown.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main(argv: list[str] | None = None) -> int:
    """Print the pins, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--there", type=Path, required=True, help="`pip freeze` of the machine")
    parser.add_argument("--extra", action="append", default=[], help="of this project: qlora, vllm; may be given again")
    parser.add_argument("--python", default="3.12", help="of the machine")
    parser.add_argument("--to", type=Path, help="folder to download the wheels into")
    options = parser.parse_args(argv)
    there = pinned(options.there.read_text())
    extras = f"[{','.join(options.extra)}]" if options.extra else ""
    for_machine = [
        "--python-version",
        options.python,
        "--only-binary",
        ":all:",
        "--target",
        str(ROOT / "no_such_folder"),
    ]
    for_machine += [part for platform in PLATFORMS for part in ("--platform", platform)]
    report = resolve(f"{ROOT}{extras}", there, for_machine)
    missing = sorted(lacking(report, there))
    print("\n".join(missing))
    if options.to and missing:
        for_download = [part for part in for_machine if part not in ("--target", str(ROOT / "no_such_folder"))]
        command = ["download", "--no-deps", "--dest", str(options.to), *for_download, *missing]
        subprocess.run([sys.executable, "-m", "pip", "--quiet", *command], check=True)
    return 0


def pinned(freeze: str) -> dict[str, str]:
    """Versions by normalised name; lines that are no `NAME==VERSION` are left out, and a build tag such as +cu128 is cut off.

    >>> pinned("torch==2.11.0+cu128\\n-e git+https://x#egg=y\\nPyYAML==6.0.2")
    {'torch': '2.11.0', 'pyyaml': '6.0.2'}
    """
    found = re.findall(r"^([\w.-]+)==([^+\s]+)", freeze, re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def resolve(project: str, there: dict[str, str], for_machine: list[str]) -> dict:
    """pip's report on what an installation beside these versions would take."""
    constraints = "\n".join(f"{name}=={version}" for name, version in there.items())
    with_file = ROOT / ".there.txt"
    with_file.write_text(constraints + "\n")
    command = ["install", "--dry-run", "--ignore-installed", "--report", "-", "--constraint", str(with_file)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--quiet", *command, *for_machine, project], capture_output=True, text=True
        )
    finally:
        with_file.unlink()
    if done.returncode:
        sys.exit(done.stderr.strip()[-2000:])
    return json.loads(done.stdout)


def lacking(report: dict, there: dict[str, str]) -> list[str]:
    """Pins of the report's packages that are not there; the project itself travels as source.

    >>> one = {"metadata": {"name": "msgspec", "version": "0.20.0"}}
    >>> lacking({"install": [one, {"metadata": {"name": "torch", "version": "2.11.0"}}]}, {"torch": "2.11.0"})
    ['msgspec==0.20.0']
    """
    named = [
        (one["metadata"]["name"].lower().replace("_", "-"), one["metadata"]["version"]) for one in report["install"]
    ]
    return [f"{name}=={version}" for name, version in named if name not in there and name != "cod-lightning"]


if __name__ == "__main__":
    sys.exit(main())
