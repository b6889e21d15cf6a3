"""Every shipped YAML is composed, type-checked and built."""

import pkgutil
from dataclasses import asdict
from importlib import import_module
from inspect import isabstract
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml

from cod_lightning import methods
from cod_lightning.commands.config_files import expand
from cod_lightning.commands.lightning_cli import CodCLI, start
from cod_lightning.commands.phase import WarmStart, config_of
from cod_lightning.commands.shipped import config_folder, config_names
from cod_lightning.commands.train import TrainCLI
from cod_lightning.credit import baselines, returns
from cod_lightning.credit.baselines import Baseline
from cod_lightning.credit.returns import CreditRule
from cod_lightning.datamodules import DemonstrationDataModule, RolloutDataModule
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.modules import GRPOModule, WarmStartModule
from cod_lightning.objective import losses, mismatch
from cod_lightning.objective.losses import PolicyLoss
from cod_lightning.objective.mismatch import MismatchCorrection
from cod_lightning.types import Split
from tests.command_line import keep_compositions, stopped

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keep_compositions(monkeypatch)


CPU = ["--trainer.accelerator", "cpu", "--trainer.precision", "32-true", "--warm_start", "null"]


def build(name, *choices):
    argv = [*expand(["--config", name, *choices]).argv, *CPU]
    return start(TrainCLI, GRPOModule, RolloutDataModule, argv, "plan")


STUDIES = sorted(
    str(path)
    for path in Path(__file__).parents[1].glob("examples/studies/*.yaml")
    if path.stem not in ("as_published", "credit_scopes", "memory_suites")
)
"""Beside the scripts that train them; those left out are parts of others."""


@pytest.mark.parametrize("name", [*config_names(), *STUDIES], ids=lambda name: Path(name).stem)
def test_a_shipped_config_builds(name):
    if name.endswith("/textworld.yaml"):
        pytest.importorskip("textworld", reason="pip install -e '.[textworld]'")
    cli = build(name)
    assert cli.model.policy.window > 0
    assert cli.datamodule.env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4).tasks
    plain = yaml.safe_load(expand(["--config", name]).argv[1])
    if plain.get("warm_start"):
        run = cli.asked | {"warm_start": asdict(WarmStart(**plain["warm_start"]))}
        content = config_of(run, cli.datamodule.words_for(cli.model.policy))
        argv = ["--config", yaml.safe_dump(content, sort_keys=False)]
        phase = start(CodCLI, WarmStartModule, DemonstrationDataModule, argv, "warm_start")
        assert phase.datamodule.num_updates == plain["warm_start"]["num_updates"]
        assert beside(phase.datamodule.env, Vocabulary).words() == beside(cli.datamodule.env, Vocabulary).words()


def group_files(*groups):
    folder = config_folder()
    return [path for group in groups for path in sorted((folder / group).glob("*.yaml"))]


METHODS = group_files("method")


def said_by(path):
    """What the file of a method says of the model, and of the data."""
    said = yaml.safe_load(path.read_text())
    return (said["model"], said["data"]) if path.read_text().startswith("# @package _global_") else (said, {})


OF_CREDIT = {"credit": "rule", "filter_packs": "filtered"}


def of_model(model, key):
    """What `model.KEY` made: of the module, or of its credit."""
    return getattr(model.credited, OF_CREDIT.get(key, key), None) or getattr(model, key, None)


@pytest.mark.parametrize("path", METHODS, ids=lambda path: path.stem)
def test_a_method_can_be_chosen_and_is_what_its_file_says(path):
    cli = build("smoke", f"method={path.stem}")
    said, of_data = said_by(path)
    assert {key: getattr(cli.datamodule, key) for key in of_data} == of_data
    for key, value in said.items():
        found = of_model(cli.model, key)
        if not isinstance(value, dict):
            assert found == value
            continue
        assert f"{type(found).__module__}.{type(found).__name__}".startswith(value["class_path"].rpartition(".")[0])
        assert type(found).__name__ == value["class_path"].rpartition(".")[2]
        given = {k: v for k, v in value.get("init_args", {}).items() if not str(v).startswith("$")}
        assert {k: getattr(found, k) for k in given} == given


@pytest.mark.parametrize("path", METHODS, ids=lambda path: path.stem)
def test_a_method_says_what_belongs_to_a_loss_so_that_nothing_of_another_is_left(path):
    said, _ = said_by(path)
    assert said.keys() >= {"loss", "baseline", "scale", "reweight"}


SEAMS = {"loss": PolicyLoss, "credit": CreditRule, "baseline": Baseline, "mismatch": MismatchCorrection}
OF_METHODS = "".join(path.read_text() for path in METHODS)
HOMES = [
    baselines,
    mismatch,
    returns,
    *(
        import_module(one.name)
        for of in (losses, methods)
        for one in pkgutil.iter_modules(of.__path__, f"{of.__name__}.")
    ),
]
NAMED = {
    key: [
        value
        for home in HOMES
        for value in vars(home).values()
        if isinstance(value, type)
        and issubclass(value, seam)
        and value.__module__ == home.__name__
        and not isabstract(value)
        and f".{value.__name__}" not in OF_METHODS
    ]
    for key, seam in SEAMS.items()
}
"""Those that no method's file names."""
ROWS = [{key: kind for key, kind in zip(NAMED, row, strict=True) if kind} for row in zip_longest(*NAMED.values())]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(kind.__name__ for kind in row.values()))
def test_every_class_of_the_objective_is_chosen_by_its_name(row):
    chosen = [word for key, kind in row.items() for word in (f"--model.{key}", kind.__name__)]
    beside = ["--model.terms+=EntropyBonus"] * (baselines.TermsAlone in row.values())  # refused without a term
    model = build("smoke", "method=reinforce", *chosen, *beside).model
    assert {key: type(of_model(model, key)) for key in row} == row


BY_NAME = {
    "a notebook": ("pretrained context=NotebookContext", "data.context.budget", 512),
    "compacting": ("pretrained context=CompactingContext context.inner=HintContext", "data.context.inner", "HintContext"),
    "a rule kept": ("smoke context=CheckedContext --data.context.inside HintContext --data.context.inside.protocol compact "
        "--data.context.kept [never=1]", "data.context", "CheckedContext"),
    "two memories": ("pretrained --data.context {class_path:_StackedContext,init_args:_{parts:_[{class_path:_HintContext},"
        "{class_path:_SkillsContext}]}}", "data.context", "StackedContext"),
    "quickstart with acts": ("quickstart program.every=null data.max_new_tokens=24 context=ActsContext "
        "context.protocol=compact context.max_entries=6 context.budget=12 context.max_acts=2 context.response_limit=null",
        "data.context.max_acts", 2),
    "quickstart with a constant state": ("quickstart program.every=null data.max_new_tokens=12 "
        "context=ConstantStateContext context.protocol=compact context.budget=8 context.response_limit=null",
        "data.context.budget", 8),
    "the paper's credit": ("smoke --model.credit.mean true --model.credit.discount 1.0", "model.credit.mean", True),
    "attempts": ("smoke program=Anchored", "data.program.fraction", 0.25),
    "a program within": ("smoke program=Counterfactual --data.program.program Anchored --data.program.program.attempts 3",
        "data.program.program.attempts", 3),
    "an endpoint": ("smoke --data.engine OpenAIEngine --model.policy EndpointPolicy", "data.engine", "OpenAIEngine"),
    "no updates": ("smoke program.every=null", "data.program.every", None),
    "growing packs": ("smoke source=Growth source.num_tasks=[2,4]", "data.source.rollouts_per_stage", 10),
    "failures": ("smoke source=Revisits source.by=failure source.back=near", "data.source.by", "failure"),
    "KL to the start": ("smoke --model.terms+=KL --model.terms.estimator k3 --model.terms.coefficient 0.04",
        "model.terms.estimator", "k3"),
    "too long": ("smoke --data.rewards.overlong OverlongReward --data.rewards.overlong.zero_tokens 1500 "
        "--data.rewards.overlong.full_tokens 2000", "data.rewards.overlong.full_tokens", 2000),
    "the policy as its own teacher": ("smoke --model.terms [{class_path:_KL,init_args:_{coefficient:_0.1,to:_teacher}}] "
        "--model.scorers.teacher PrivilegedScorer", "model.scorers.teacher", "PrivilegedScorer"),
    "servers on half of the GPUs": ("experiment/eight_80gb_full_8b engine=VLLMServerEngine "
        'data.engine.local.devices=["4","5","6","7"] data.max_staleness=1 trainer.devices=4', "data.engine.local.devices", "4"),
}  # fmt: skip
"""How a part of a training is said on the command line, and what then holds."""


@pytest.mark.parametrize(("line", "key", "value"), BY_NAME.values(), ids=BY_NAME)
def test_what_stands_alone_is_chosen_by_its_name(line, key, value, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    name, *choices = (word.replace(":_", ": ") for word in line.split())
    found = build(name, *choices).asked
    for part in key.split("."):
        found = found[0] if isinstance(found, list) else found
        found = found[part] if part in found else found["init_args"][part]
    found = found[0] if isinstance(found, list) else found
    assert (found["class_path"].rpartition(".")[2] if isinstance(found, dict) else found) == value


def test_every_group_file_says_where_it_belongs():
    objects = group_files("env", "context")
    assert len(objects) >= 17
    assert {path.parent.name for path in config_folder().glob("*/*.yaml")} == {
        *("context", "env", "experiment", "method", "recipe", "strategy", "suite")
    }
    for path in objects + METHODS:
        first = path.read_text().splitlines()[0]
        assert first.startswith("# @package "), path
        assert path in METHODS or "class_path" in yaml.safe_load(path.read_text())
        assert path in objects or first in ("# @package model", "# @package _global_")


@pytest.mark.parametrize("path", group_files("strategy"), ids=lambda path: path.stem)
def test_a_strategy_can_be_chosen_and_is_what_its_file_says(path, monkeypatch):
    given = yaml.safe_load(path.read_text())["strategy"]
    strategy = stopped(monkeypatch, "fit", "--config", "smoke", f"strategy={path.stem}", *CPU).trainer.strategy
    assert type(strategy).__name__ == (
        given["class_path"].rpartition(".")[2] if isinstance(given, dict) else "DDPStrategy"
    )
