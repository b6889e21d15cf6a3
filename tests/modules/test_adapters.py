"""Trainings of an adapter: in 4 bits the loss falls, a checkpoint holds the adapter alone, and a resumed run is the same run."""

from typing import Any

import lightning as L
import pytest
import torch

from cod_lightning.adapters import adapter_weights, is_adapter
from cod_lightning.callbacks import WeightSync
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.datamodules import DemonstrationDataModule
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import DataError
from cod_lightning.models import LoRAPolicy, PretrainedPolicy, QLoRAPolicy, TinyPolicy
from cod_lightning.modules import GRPOModule, WarmStartModule
from cod_lightning.objective.terms import KL
from tests.adapted import TINY, write_base
from tests.small_fit import quiet_trainer, small_data

pytestmark = pytest.mark.slow
SIZES = {"packs_per_rollout": 2, "updates_per_rollout": 1, "rollouts_per_epoch": 4}


_NESTED = "__bnb_optimizer_quant_state__"
_MOMENTS = ("exp_avg", "exp_avg_sq", "state1", "state2")


class Watch(L.Callback):
    """What was logged after each update, and a checkpoint after the second."""

    def __init__(self, path=None):
        self.path, self.values, self.weights = path, [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.values.append({k: float(v) for k, v in trainer.callback_metrics.items()})
        if self.path is not None and trainer.global_step == 2:
            trainer.save_checkpoint(self.path)


def online(base, kind: type[PretrainedPolicy] = LoRAPolicy, **options):
    L.seed_everything(1, verbose=False)
    policy = kind(str(base), dtype="float32", window=96, **({} if kind is PretrainedPolicy else {"rank": 64}))
    return GRPOModule(policy, **({"lr": 1e-2, "reweight": None} | options)), small_data(**SIZES, seed=1)


def test_an_adapter_stays_in_float32_where_everything_else_is_cast(tmp_path):
    """Updates of its size are lost in bfloat16: the rate is far below what a weight of .02 can take there."""
    write_base(tmp_path)
    module, data = online(tmp_path, lr=1e-6)
    trainer = quiet_trainer(tmp_path, WeightSync(), precision="bf16-true", max_steps=1)
    begun = {}
    module.on_fit_start = lambda: begun.update(
        {k: v.detach().clone() for k, v in adapter_weights(module.model).items()}
    )
    trainer.fit(module, data)
    kinds = {is_adapter(name): weight.dtype for name, weight in module.model.named_parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
    moved = [
        float((weight.detach() - begun[name]).abs().max()) for name, weight in adapter_weights(module.model).items()
    ]
    assert 0 < max(moved) < 1e-5
    served = data.engine.held()
    assert all(torch.equal(served[name], weight) for name, weight in adapter_weights(module.model).items())


def test_the_loss_of_a_4_bit_training_falls(tmp_path):
    world, context = Levers(protocol="compact"), HintContext(protocol="compact")
    torch.manual_seed(0)
    policy = TinyPolicy(**TINY)
    tokenizer = policy.tokenizer(beside(world, Vocabulary).words() + beside(context, Words).words())
    policy.model(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    data = DemonstrationDataModule(world, context, num_updates=24, packs_per_update=2, num_packs=24)
    watch = Watch()
    four_bit = QLoRAPolicy(str(tmp_path), rank=16, alpha=32, dtype="float32", window=256)
    module = WarmStartModule(four_bit, optimizer="adamw_8bit", lr=2e-2, warmup_updates=1)
    quiet_trainer(tmp_path, watch).fit(module, data)
    losses = [values["warm_start/loss"] for values in watch.values]
    assert sum(losses[-4:]) < 0.75 * sum(losses[:4])


@pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
@pytest.mark.parametrize("optimizer", ["adamw", "paged_adamw_8bit"])
def test_only_the_adapter_reaches_optimizer_and_checkpoint_and_a_resumed_run_is_the_same_run(optimizer, tmp_path, base):
    path, watch = tmp_path / "two.ckpt", Watch(tmp_path / "two.ckpt")
    module, data = online(base, QLoRAPolicy, optimizer=optimizer)
    quiet_trainer(tmp_path, WeightSync(), watch).fit(module, data)
    kept = torch.load(path, weights_only=True)
    names = {name.removeprefix("model.") for name in kept["state_dict"]}
    assert names == set(adapter_weights(module.model))
    assert kept["base"]["dtype"] == "nf4"
    (group,) = module.optimizers().param_groups
    states = [of | of.get(_NESTED, {}) for of in kept["optimizer_states"][0]["state"].values()]
    moments = {value.dtype for of in states for key, value in of.items() if key in _MOMENTS}
    assert (torch.uint8 in moments) == ("8bit" in optimizer)  # bitsandbytes keeps those of small tensors in float32
    assert {id(p) for p in group["params"]} == {id(p) for p in adapter_weights(module.model).values()}
    assert all(v["engine/self_test_gap"] <= 1e-4 for v in watch.values)

    resumed, again = online(base, QLoRAPolicy, optimizer=optimizer)
    rest = Watch()
    quiet_trainer(tmp_path, WeightSync(), rest).fit(resumed, again, ckpt_path=str(path), weights_only=True)
    for name, weight in adapter_weights(module.model).items():
        assert torch.equal(weight, adapter_weights(resumed.model)[name]), name
    same = ("train/gradient_norm", "train/logprob_gap", "train/entropy")
    assert [{k: v[k] for k in same} for v in rest.values] == [{k: v[k] for k in same} for v in watch.values[2:]]


def test_the_reference_of_an_adapter_is_its_base_and_takes_no_copy(tmp_path, base):
    logged: dict[Any, list[float]] = {}
    for kind in (LoRAPolicy, PretrainedPolicy):
        module, data = online(base, kind, terms=[KL(coefficient=0.1)])
        watch = Watch()
        quiet_trainer(tmp_path, WeightSync(), watch).fit(module, data)
        assert (module.reference is None) == (kind is LoRAPolicy)
        logged[kind] = [values["train/divergence"] for values in watch.values]
    assert logged[LoRAPolicy][0] == pytest.approx(0.0, abs=1e-9)
    assert logged[LoRAPolicy][-1] > 1e-4


@pytest.mark.parametrize("other", ["another base", "all weights", "other layers"])
def test_a_checkpoint_of_another_adapter_is_refused_in_one_line(other, tmp_path, base):
    path = tmp_path / "two.ckpt"
    module, data = online(base, PretrainedPolicy if other == "all weights" else LoRAPolicy)
    quiet_trainer(tmp_path, WeightSync(), Watch(path), max_steps=2).fit(module, data)
    if other == "another base":
        base = write_base(tmp_path / "other", seed=3)
    resumed, again = online(base)
    if other == "other layers":
        resumed.policy.targets = ["q_proj"]  # pyright: ignore
    said = {"another base": "has other weights", "all weights": "of a whole model", "other layers": "of other layers"}
    with pytest.raises(DataError, match=said[other]):
        quiet_trainer(tmp_path, WeightSync()).fit(resumed, again, ckpt_path=str(path), weights_only=True)
