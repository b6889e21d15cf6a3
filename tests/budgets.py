"""Prints how large the project is, by part: `python tests/budgets.py`. Lines are those of Python files that git tracks."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
AIMS = {
    "core": 24_000,
    "envs": 21_000,
    "commands": 2_500,
    "tests": 44_000,
    "studies": None,  # scripts and page writers of docs/results/, in examples/ beside the tutorials' files
    "YAML files": 80,
    "words of docs": 45_000,
    "modules of fit": 130,
}
_OWN = "cod_lightning", "datamodules", "modules", "callbacks"


def main() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    files = [name for name in tracked if (ROOT / name).is_file()]
    python = {name: len((ROOT / name).read_text().splitlines()) for name in files if name.endswith(".py")}

    def lines(*begins: str, but: tuple[str, ...] = ()) -> int:
        return sum(n for name, n in python.items() if name.startswith(begins) and not name.startswith(but or ("\0",)))

    apart = ("cod_lightning/envs/", "cod_lightning/methods/")
    found = {
        "core": lines(*(f"{name}/" for name in _OWN), but=apart),
        "envs": lines("cod_lightning/envs/"),
        "commands": lines("cod_lightning/commands/"),
        "tests": lines("tests/"),
        "studies": lines("examples/studies/"),
        "YAML files": sum(name.startswith("configs/") and name.endswith(".yaml") for name in files),
        "words of docs": sum(len((ROOT / name).read_text().split()) for name in files if name.endswith(".md")),
        "modules of fit": _imported(),
    }
    for part, size in found.items():
        aim = AIMS[part]
        print(f"{part:15s} {size:8,}" + ("" if aim is None else f"   aim {aim:,}"))


def _imported() -> int:
    """Own modules that `fit --config quickstart` imports before it trains."""
    line = (
        "import atexit, sys; from cod_lightning.cli import main; "  # --print_config exits
        f"atexit.register(lambda: print(sum(n.split('.')[0] in {_OWN} for n in sys.modules), file=sys.stderr)); "
        "main(['fit', '--config', 'quickstart', '--print_config'])"
    )
    done = subprocess.run([sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True)
    return int(done.stderr.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
