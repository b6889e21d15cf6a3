"""Every shipped YAML is composed, type-checked and built."""

import pkgutil
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from cod_lightning.commands.config_files import expand, temporary_config
from cod_lightning.commands.lightning_cli import CodCLI, start
from cod_lightning.commands.phase import WarmStart, config_of
from cod_lightning.commands.shipped import config_folders, config_names
from cod_lightning.commands.train import TrainCLI
from cod_lightning.credit import baselines, returns
from cod_lightning.credit.baselines import Baseline
from cod_lightning.credit.returns import CreditRule
from cod_lightning.datamodules import DemonstrationDataModule, RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.modules import GRPOModule, WarmStartModule
from cod_lightning.objective import losses, mismatch
from cod_lightning.objective.losses import PolicyLoss
from cod_lightning.objective.mismatch import MismatchCorrection
from cod_lightning.types import Split

pytestmark = pytest.mark.slow


def build(name, *choices):
    argv = [
        *expand(["--config", name, *choices]).argv,
        "--trainer.accelerator",
        "cpu",
        "--trainer.precision",
        "32-true",
    ]
    return start(TrainCLI, GRPOModule, RolloutDataModule, [*argv, "--warm_start", "null"], "plan")


STUDIES = sorted(
    str(path)
    for path in Path(__file__).parents[1].glob("examples/studies/*.yaml")
    if path.stem not in ("as_published", "credit_scopes", "memory_suites")
)
"""Beside the scripts that train them; those left out are parts of others."""


@pytest.mark.parametrize("name", [*config_names(), *STUDIES], ids=lambda name: Path(name).stem)
def test_a_shipped_config_builds(name, tmp_path, monkeypatch):
    if name.endswith("/textworld.yaml"):
        pytest.importorskip("textworld", reason="pip install 'cod-lightning[textworld]'")
    monkeypatch.chdir(tmp_path)
    cli = build(name)
    assert cli.model.policy.window > 0
    assert cli.datamodule.env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4).tasks
    plain = yaml.safe_load(Path(expand(["--config", name]).argv[1]).read_text())
    if plain.get("warm_start"):
        run = cli.asked | {"warm_start": asdict(WarmStart(**plain["warm_start"]))}
        content = config_of(run, cli.datamodule.words_for(cli.model.policy))
        argv = ["--config", str(temporary_config("warm_start.yaml", content))]
        phase = start(CodCLI, WarmStartModule, DemonstrationDataModule, argv, "warm_start")
        assert phase.datamodule.num_updates == plain["warm_start"]["num_updates"]
        assert beside(phase.datamodule.env, Vocabulary).words() == beside(cli.datamodule.env, Vocabulary).words()


@pytest.mark.parametrize("name", ["one_24gb_qlora_8b", "eight_80gb_full_8b"])
def test_a_large_training_takes_another_engine_and_another_world_in_a_word(name):
    name = f"experiment/{name}"
    assert isinstance(
        build(name, "engine=TransformersEngine", "env=alchemy_easy").datamodule.engine, TransformersEngine
    )
    cli = build(name, "engine=VLLMServerEngine", "--data.engine.init_args.urls", "[http://localhost:1]")
    assert cli.datamodule.engine.urls


@pytest.mark.parametrize(
    "name", [one for one in config_names() if one.startswith("experiment/") and "endpoint" not in one][::6]
)
def test_every_training_takes_a_method_in_a_word(name):
    data = expand(["--config", name, "method=loop"]).argv[1]
    assert yaml.safe_load(Path(data).read_text())["model"]["loss"]["class_path"].endswith("losses.LOOP")


def group_files(*groups):
    folder = config_folders()[0]
    return [path for group in groups for path in sorted((folder / group).glob("*.yaml"))]


METHODS = group_files("method")


def said_by(path):
    """What the file of a method says of the model, and of the data."""
    said = yaml.safe_load(path.read_text())
    return (said["model"], said["data"]) if path.read_text().startswith("# @package _global_") else (said, {})


@pytest.mark.parametrize("path", METHODS, ids=lambda path: path.stem)
def test_a_method_can_be_chosen_and_is_what_its_file_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli = build("smoke", f"method={path.stem}")
    said, of_data = said_by(path)
    assert {key: getattr(cli.datamodule, key) for key in of_data} == of_data
    for key, value in said.items():
        found = getattr(cli.model, key)
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


for one in pkgutil.iter_modules(losses.__path__, f"{losses.__name__}."):  # they are imported when they are named
    vars(losses).update({name: kind for name, kind in vars(import_module(one.name)).items() if isinstance(kind, type)})
SEAMS = {"loss": (PolicyLoss, losses), "credit": (CreditRule, returns), "baseline": (Baseline, baselines)}
OF_METHODS = "".join(path.read_text() for path in METHODS)
NAMED = [
    (key, value)
    for key, (seam, home) in (SEAMS | {"mismatch": (MismatchCorrection, mismatch)}).items()
    for value in vars(home).values()
    if isinstance(value, type)
    and issubclass(value, seam)
    and value is not seam
    and f".{value.__name__}" not in OF_METHODS
]
"""Those that no method's file names."""


@pytest.mark.parametrize(("key", "kind"), NAMED, ids=lambda one: getattr(one, "__name__", one))
def test_every_class_of_the_objective_is_chosen_by_its_name(key, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    beside = ["--model.terms+=EntropyBonus"] if kind is baselines.TermsAlone else []  # refused without a term
    model = build("smoke", "method=reinforce", f"--model.{key}", kind.__name__, *beside).model
    assert type(getattr(model, key)) is kind


def test_parts_of_the_objective_combine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = ("method=dapo", "credit=TrajectoryCredit", "baseline=LeaveOneOut", "--model.terms+=EntropyBonus")
    model = build("smoke", *parts).model
    assert (model.loss, model.credit, model.baseline) == (
        losses.DAPO(),
        returns.TrajectoryCredit(),
        baselines.LeaveOneOut(),
    )
    assert (model.scale, model.reweight, model.filter_packs) == ("group", None, True)


BY_NAME = {
    "a hint": ("smoke context=HintContext --data.context.protocol compact", "data.context.protocol", "compact"),
    "a notebook": ("pretrained context=NotebookContext", "data.context.budget", 512),
    "acts": ("pretrained context=ActsContext program.every=null", "data.program.every", None),
    "skills": ("pretrained context=SkillsContext", "data.context", "SkillsContext"),
    "a constant state": ("pretrained context=ConstantStateContext program.every=null", "data.context", "ConstantStateContext"),
    "compacting": ("pretrained context=CompactingContext context.inner=HintContext", "data.context.inner", "HintContext"),
    "a rule kept": ("smoke context=CheckedContext --data.context.inside HintContext --data.context.inside.protocol compact "
        "--data.context.kept [never=1]", "data.context", "CheckedContext"),
    "two memories": ("pretrained --data.context {class_path:_StackedContext,init_args:_{parts:_[{class_path:_HintContext},"
        "{class_path:_SkillsContext}]}}", "data.context", "StackedContext"),
    "quickstart, compacting": ("quickstart context=compacting_compact", "data.context.budget", 6),
    "a rule's credit": ("smoke credit=TaskCredit", "model.credit", "TaskCredit"),
    "the next task's credit": ("smoke --model.credit.mean true --model.credit.window 2 "
        "--model.credit.discount null", "model.credit.window", 2),
    "a program within": ("smoke program=Counterfactual --data.program.program Anchored --data.program.program.attempts 3",
        "data.program.program.attempts", 3),
    "an engine in this process": ("experiment/one_80gb_lora_8b engine=TransformersEngine", "data.engine", "TransformersEngine"),
    "an endpoint": ("smoke --data.engine OpenAIEngine --model.policy EndpointPolicy", "data.engine", "OpenAIEngine"),
    "proposals": ("smoke program=ProposeAndSolve data.pack_size=8", "data.program.solves", 4),
    "growing packs": ("smoke source=Growth source.num_tasks=[2,4]", "data.source.rollouts_per_stage", 10),
    "failures": ("smoke source=Revisits source.by=failure source.back=near", "data.source.by", "failure"),
    "own history": ("smoke source=Revisits source.back=continued", "data.source.back", "continued"),
    "self-imitation": ("smoke method=grpo replay=SelfImitation", "data.replay.episodes_per_update", 64),
    "REC without RED": ("smoke --model.reweight null", "model.reweight", None),
    "KL to the start": ("smoke --model.terms+=KL --model.terms.estimator k3 --model.terms.coefficient 0.04",
        "model.terms.estimator", "k3"),
    "a form": ("smoke --data.rewards.form FormatReward --data.rewards.form.truncated 0.1", "data.rewards.form.truncated", 0.1),
    "a length": ("smoke --data.rewards.length LengthReward --data.rewards.length.zero_tokens 1000 "
        "--data.rewards.length.full_tokens 2000", "data.rewards.length", "LengthReward"),
    "too long": ("smoke --data.rewards.overlong OverlongReward --data.rewards.overlong.zero_tokens 1500 "
        "--data.rewards.overlong.full_tokens 2000", "data.rewards.overlong.full_tokens", 2000),
    "a noisy judge": ("smoke --data.rewards.noisy NoisyJudge", "data.rewards.noisy.false_positive", 0.1),
    "a use": ("smoke --data.rewards.use EntryUse", "data.rewards.use.bonus", 0.5),
    "a broken rule": ("smoke --data.rewards.rule BrokenRule --data.rewards.rule.pattern Lever_1", "data.rewards.rule.penalty", 1.0),
    "sentences": ("experiment/sentences_levers", "model.policy.induction", True),
    "control made easy": ("experiment/pde_control_grid env=control_hard env.start_max=1 env.speed_max=0.5 env.target_max=3 "
        "env.horizon_min=8 env.horizon_max=8", "data.env", "OptimalControl"),
    "a hard terminal": ("experiment/one_80gb_lora_8b env=terminal_easy env.quirks=3 env.max_turns=4 env.max_commands=4",
        "data.env.max_turns", 4),
    "a hard clinic": ("experiment/one_80gb_lora_8b env=learn2ask_easy env.num_items=12 env.num_required=4 env.num_conditions=10 "
        "env.split_by=diagnosis", "data.env", "Learn2Ask"),
    "apps in JSON": ("experiment/one_80gb_lora_8b env=apps env.actions=json env.quirks=1 env.difficulties=[1]", "data.env", "Apps"),
    "apps that confirm": ("experiment/one_80gb_lora_8b env=apps env.patience=3 "
        "env.templates=[confirm_transfer,confirm_pay_contact,confirm_goods]", "data.env", "Apps"),
    "the policy as its own teacher": ("smoke --model.terms [{class_path:_KL,init_args:_{coefficient:_0.1,to:_teacher}}] "
        "--model.scorers.teacher PrivilegedScorer", "model.scorers.teacher", "PrivilegedScorer"),
    "servers on half of the GPUs": ("experiment/eight_80gb_full_8b engine=VLLMServerEngine "
        'data.engine.local.devices=["4","5","6","7"] data.max_staleness=1 trainer.devices=4', "data.engine.local.devices", "4"),
    "own successes": ("smoke method=reinforce baseline=Accepted", "model.baseline", "Accepted"),
    "an adapter": ("smoke --model.policy LoRAPolicy", "model.policy.rank", 32),
    "an adapter over 4 bits": ("experiment/one_80gb_lora_8b --model.policy QLoRAPolicy", "model.policy.rank", 32),
    "14B": ("experiment/one_80gb_lora_8b --model.policy.path Qwen/Qwen3-14B", "model.policy.path", "Qwen/Qwen3-14B"),
}  # fmt: skip
"""What was a config file of a few lines: how it is said now, and what then holds."""


@pytest.mark.parametrize(("line", "key", "value"), BY_NAME.values(), ids=BY_NAME)
def test_what_stands_alone_is_chosen_by_its_name(line, key, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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
    assert {path.parent.name for path in config_folders()[0].glob("*/*.yaml")} == {
        *("context", "env", "experiment", "method", "recipe", "strategy", "suite")
    }
    for path in objects + METHODS:
        first = path.read_text().splitlines()[0]
        assert first.startswith("# @package "), path
        assert path in METHODS or "class_path" in yaml.safe_load(path.read_text())
        assert path in objects or first in ("# @package model", "# @package _global_")


@pytest.mark.parametrize("path", group_files("strategy"), ids=lambda path: path.stem)
def test_a_strategy_can_be_chosen_and_is_what_its_file_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = yaml.safe_load(path.read_text())["strategy"]
    strategy = build("smoke", f"strategy={path.stem}").trainer.strategy
    assert type(strategy).__name__ == (
        given["class_path"].rpartition(".")[2] if isinstance(given, dict) else "DDPStrategy"
    )


def test_a_group_choice_replaces_the_world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli = build("quickstart", "env=frozen_lake_easy", "context=HintContext")
    assert (cli.datamodule.env.parameters.size_min, cli.datamodule.env.parameters.size_max) == (4, 5)
