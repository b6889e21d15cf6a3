"""Every module of the package stands in an import contract with a direction."""

import pkgutil
import re
import tomllib
from collections import Counter
from dataclasses import is_dataclass
from importlib import import_module
from inspect import isabstract
from pathlib import Path

from cod_lightning import methods
from cod_lightning.credit.baselines import Baseline
from cod_lightning.credit.returns import CreditRule
from cod_lightning.lifecycles import Program
from cod_lightning.objective.losses import PolicyLoss
from cod_lightning.objective.mismatch import MismatchCorrection
from cod_lightning.objective.terms import LossTerm

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cod_lightning", "datamodules", "modules", "callbacks")


def test_every_module_stands_in_a_contract_and_a_room_of_layers_lists_all_of_its_modules() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered: set[str] = set()
    for contract in (contract for contract in contracts if contract["type"] == "layers"):
        names = [name for layer in contract["layers"] for name in re.split(r"\s*[|:]\s*", layer)]
        layered |= {f"{of}.{name}" for of in contract.get("containers", []) for name in names}
        layered |= set() if "containers" in contract else set(names)
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts if parts[0] == "cod_lightning" else ("cod_lightning", *parts)
        name = ".".join(parts).removesuffix(".__init__")
        above = {".".join(parts[: n + 1]) for n in range(len(parts))}
        assert name == "cod_lightning" or above & layered, f"{name} stands in no contract"
    rooms = [contract for contract in contracts if "containers" in contract]
    assert {"cod_lightning.commands", "cod_lightning.evaluation", "cod_lightning.callbacks"} <= {
        r["containers"][0] for r in rooms
    }
    assert all(room["exhaustive"] for room in rooms)


def test_neither_two_classes_nor_two_types_of_functions_share_a_name() -> None:
    texts = [path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    classes, types = (
        Counter(name for text in texts for name in re.findall(pattern, text, re.MULTILINE))
        for pattern in (r"^ *class (\w+)[:(\[]", r"^(\w+) = Callable\[")
    )
    assert len(classes) > 300
    assert [name for name, number in (classes + types).items() if number > 1] == []


def test_the_runner_of_rollouts_is_written_by_itself_alone() -> None:
    written = re.compile(r"\brunner\.\w+(: [^=\n]+)? [|+-]?=(?!=)")
    texts = {path: path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert [str(path) for path, text in texts.items() if written.search(text)] == []


def test_what_belongs_to_the_objective_is_a_frozen_dataclass() -> None:
    for one in pkgutil.iter_modules(methods.__path__, "cod_lightning.methods."):
        import_module(one.name)
    seams = (CreditRule, Baseline, PolicyLoss, MismatchCorrection, LossTerm, Program)
    found = [one for seam in seams for one in everything_below(seam) if one.__module__.startswith("cod_lightning.")]
    assert len(found) > 20
    for one in found:
        assert isabstract(one) or (is_dataclass(one) and one.__dataclass_params__.frozen), one


def everything_below(base: type) -> set[type]:
    return {one for direct in base.__subclasses__() for one in (direct, *everything_below(direct))}
