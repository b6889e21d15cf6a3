"""Every module of the four packages stands in an import contract with a direction."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cod_lightning", "datamodules", "modules", "callbacks")


def test_every_module_stands_in_a_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered: set[str] = set()
    for contract in (contract for contract in contracts if contract["type"] == "layers"):
        names = [name for layer in contract["layers"] for name in re.split(r"\s*[|:]\s*", layer)]
        layered |= {f"{of}.{name}" for of in contract.get("containers", []) for name in names}
        layered |= set() if "containers" in contract else set(names)
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        above = {".".join(parts[: n + 1]) for n in range(len(parts))}
        assert name == "cod_lightning" or above & layered, f"{name} stands in no contract"


def test_a_room_whose_modules_are_layered_lists_all_of_them() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = [contract for contract in contracts if "containers" in contract]
    assert {"cod_lightning.commands", "cod_lightning.evaluation", "callbacks"} <= {r["containers"][0] for r in rooms}
    assert all(room["exhaustive"] for room in rooms)
