"""The evaluation of a real policy: several checkpoints, every control, and one file in the end."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch

from cod_lightning.callbacks import Evaluation, Progress, WeightSync
from cod_lightning.commands import train
from cod_lightning.commands.train import evaluate
from cod_lightning.contexts import HintContext
from cod_lightning.datamodules.rollout import RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.evaluation.controls import CONTROLS
from cod_lightning.evaluation.results import read_results
from cod_lightning.evaluation.suite import Suite
from cod_lightning.methods.noisy import NoisyPairwiseJudge
from cod_lightning.models import PretrainedPolicy, TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from tests.families import saved

PLAIN = Suite(
    name="plain", num_packs=2, pack_size=3, controls=tuple(CONTROLS), reference_packs=2, warm_start_temperatures=()
)
CHANGING = Suite(
    name="changing",
    num_packs=2,
    pack_size=None,
    env=NonStationary(Levers(protocol="compact")),
    warm_start_temperatures=(),
)


def parts(folder: Path, suites: list[Suite]) -> tuple[L.Trainer, GRPOModule, RolloutDataModule]:
    L.seed_everything(1, verbose=False)
    policy = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)
    data = RolloutDataModule(
        Levers(protocol="compact"),
        HintContext("compact"),
        TransformersEngine(),
        max_new_tokens=4,
        suites=suites,
        rewards={"pairs": NoisyPairwiseJudge()},  # in training alone
    )
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        callbacks=[WeightSync(), Progress(), Evaluation()],
        default_root_dir=folder,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    return trainer, GRPOModule(policy), data


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """Results of the policy itself, then of a checkpoint with other weights, then of one with the same."""
    folder = tmp_path_factory.mktemp("run")
    trainer, module, data = parts(folder, [PLAIN, CHANGING])
    cli = SimpleNamespace(trainer=trainer, model=module, datamodule=data, root=folder)
    cli.demonstrations = cli.warm_start_folder = None
    evaluate(cli, trained_done=False)
    alone = read_results(folder / "evaluation.json")
    trainer.save_checkpoint(folder / "same.ckpt", weights_only=True)
    content = torch.load(folder / "same.ckpt", weights_only=True)
    generator = torch.Generator().manual_seed(0)
    for weight in content["state_dict"].values():
        if weight.is_floating_point():
            weight += torch.randn(weight.shape, generator=generator)
    torch.save(content, folder / "other.ckpt")
    found = [alone]
    for name in ("other.ckpt", "same.ckpt"):
        trainer.test(module, data, ckpt_path=str(folder / name), verbose=False)
        evaluate(cli, trained_done=True)
        found.append(read_results(folder / "evaluation.json"))
    return tuple(found)


@pytest.mark.slow
def test_every_control_is_in_the_file_under_its_name(tested: tuple[Any, ...]) -> None:
    record = tested[0]["suites"]["plain"]
    assert set(record["controls"]) == set(CONTROLS)
    assert [p["n"] for p in record["controls"]["oracle"]] == [2] * 3
    assert [p["success"] for p in record["controls"]["oracle"]] == [1.0] * 3
    assert record["controls"]["shuffled_context"][0] == record["positions"][0], "both begin without a context"


def test_a_suite_of_changing_rules_has_its_recovery(tested: tuple[Any, ...]) -> None:
    record = tested[0]["suites"]["changing"]
    assert record["env"] == "changing-levers-4"
    assert record["pack_size"] == 4
    assert record["figures"]["recovery"]["offsets"][:2] == [-1, 0]
    assert set(record["figures"]["recovery"]["rows"]) == {"trained", *record["controls"]}
    assert tested[0]["suites"]["plain"]["figures"]["recovery"] is None


def test_the_same_weights_have_the_same_figures(tested: tuple[Any, ...]) -> None:
    alone, other, same = (one["suites"] for one in tested)
    assert [Path(one["plain"]["checkpoint"]).name for one in (other, same)] == ["other.ckpt", "same.ckpt"]
    assert other["plain"]["positions"] != same["plain"]["positions"]
    assert other["plain"]["controls"]["oracle"] == alone["plain"]["controls"]["oracle"]
    for name in ("plain", "changing"):
        assert {**same[name], "checkpoint": None} == alone[name]


def test_the_warm_start_of_a_mixture_of_experts_is_played_with_all_of_its_weights(tmp_path, monkeypatch):
    policy = PretrainedPolicy(str(saved(tmp_path, "qwen3_moe")), "float32")
    data = SimpleNamespace(chat=SimpleNamespace(tokenizer=policy.tokenizer(())))
    model, played = policy.model(data.chat.tokenizer), []
    begun = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1
    trained = copy.deepcopy(model.state_dict())
    monkeypatch.setattr(train, "_pass", lambda *_: played.append(copy.deepcopy(model.state_dict())))
    module: Any = SimpleNamespace(model=model, policy=policy)
    train._play_warm_start(None, module, data)
    for found, expected in ((played[0], begun), (model.state_dict(), trained)):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], weight) for name, weight in expected.items())
