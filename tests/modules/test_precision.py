"""Lightning's precisions on the CPU: what is cast, and what must not be."""

from dataclasses import dataclass, field
from typing import Any

import lightning as L
import pytest
import torch

from cod_lightning.callbacks import Evaluation, WeightSync
from cod_lightning.contexts import HintContext
from cod_lightning.datamodules import DemonstrationDataModule
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.metrics import PositionMetrics
from cod_lightning.evaluation.results import read_results
from cod_lightning.evaluation.suite import Suite
from cod_lightning.methods.induction import InductionHeads
from cod_lightning.methods.value_head import ValueHead
from cod_lightning.models import TinyPolicy
from cod_lightning.modules import GRPOModule, WarmStartModule
from cod_lightning.objective.batch import collate
from cod_lightning.objective.losses import REC, LossInputs, LossOutputs
from cod_lightning.objective.terms import KL
from cod_lightning.rollout.segments import segments_of
from cod_lightning.training.scorers import Scorer
from tests.cases import each
from tests.credit_tables import credit_table, kept_credit
from tests.small_fit import Updates, quiet_trainer, small_data

TINY: dict[str, Any] = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}
HALF = pytest.mark.parametrize("precision", ["bf16-true", pytest.param("bf16-mixed", marks=pytest.mark.slow)])


@dataclass(frozen=True, kw_only=True)
class Watched(REC):
    """REC that keeps what went in and what came out."""

    seen: list[tuple[LossInputs, LossOutputs]] = field(default_factory=list)

    def __call__(self, inputs):
        out = super().__call__(inputs)
        self.seen.append((inputs, out))
        return out


def trainer(folder, precision, *callbacks, **options):
    return quiet_trainer(folder, *callbacks, precision=precision, **options)


def online(folder, precision, val_packs=2, **module) -> tuple[Any, Any, L.Trainer, Updates]:
    """Module, DataModule, Trainer, what was watched, and the weights before."""
    L.seed_everything(3, verbose=False)
    grpo = GRPOModule(TinyPolicy(**TINY), **({"lr": 1e-2, "loss": Watched()} | module))
    data = small_data(val_packs=val_packs, suites=[Suite(name="heldout", num_packs=5, pack_size=2)])
    watch = Updates()
    return grpo, data, trainer(folder, precision, WeightSync(), Evaluation(), watch, max_epochs=1), watch


def weights(model):
    return torch.cat([p.detach().float().flatten() for p in model.parameters()])


@pytest.mark.slow
@HALF
def test_fit_validate_and_test_run_in_half_precision(tmp_path, precision):
    module, data, lightning, watch = online(tmp_path, precision, val_packs=300, terms=[KL(coefficient=0.1)])
    lightning.fit(module, data)
    trained = weights(module.model)
    assert trained.isfinite().all()
    assert (trained != weights(module.reference)).float().mean() > 0.5
    assert {p.dtype for p in module.model.parameters()} == {
        torch.bfloat16 if precision == "bf16-true" else torch.float32
    }
    gaps = [values["train/logprob_gap"] for values in watch.values[0::2]]
    assert all(0 <= gap < 0.2 for gap in gaps)
    (validated,) = lightning.validate(module, data, verbose=False)
    assert validated["val/lifecycles"] == validated["val/num/position_0"] == 300
    lightning.test(module, data, verbose=False)
    assert read_results(tmp_path / "evaluation.json")


@pytest.fixture(scope="module", params=["bf16-true", pytest.param("bf16-mixed", marks=pytest.mark.slow)])
def trained(request, tmp_path_factory):
    """Module, DataModule and what was watched after a training, its credit, and what gives a table its credit."""
    module, data, lightning, watch = online(tmp_path_factory.mktemp("run"), request.param)
    credited, credits = module.credited, kept_credit(module)
    lightning.fit(module, data)
    return module, data, watch, credits, credited


def test_the_rows_of_an_update_and_its_loss_stay_in_float32(trained):
    module, data, watch, *_ = trained
    groups = watch.groups[:4]
    index = {group.pack.id: g for g, group in enumerate(groups)}
    sampled = collate(segments_of(groups[:2]), credit_table(groups), index, pad_id=data.chat.pad_id)
    batch = watch.batches[0]
    for name in ("token_ids", "action_mask", "behaviour_logprobs", "place", "policy_version", "lengths"):
        assert torch.equal(getattr(batch, name), getattr(sampled, name)), name
        assert getattr(batch, name).dtype == getattr(sampled, name).dtype, name
    assert batch.behaviour_logprobs.dtype == batch.advantages.dtype == torch.float32
    assert module.loss.seen
    for inputs, out in module.loss.seen:
        for tensor in (inputs.policy_logprobs, inputs.behaviour_logprobs, inputs.advantages, out.loss):
            assert tensor.dtype == torch.float32
        assert not torch.equal(inputs.policy_logprobs, inputs.policy_logprobs.bfloat16().float())


def test_advantages_do_not_depend_on_the_precision(trained):
    *_, credits, credited = trained
    assert credits
    for found in credits:
        expected = credited(found.table)
        assert found.values.dtype == torch.float32
        assert torch.equal(found.values, expected.values)
        assert found.temperature == expected.temperature


@pytest.mark.slow
def test_the_log_probs_of_other_models_are_computed_in_the_precision_of_training(tmp_path):
    """The frozen initial policy before the first update is the policy: what is scored is what the first update finds."""
    module, data, lightning, watch = online(tmp_path, "bf16-mixed", terms=[KL(coefficient=0.1)])
    lightning.fit(module, data)
    assert watch.batches[0].scores["reference"].abs().sum() > 0
    mask = module.loss.seen[0][0].action_mask
    first = module.loss.seen[0][0].policy_logprobs[mask]
    scored = watch.batches[0].scores["reference"][watch.batches[0].action_mask]
    assert set(first.tolist()) <= set(scored.tolist())


class Rounded(Scorer):
    """Gives every token a log-prob that bfloat16 does not have, in the dtype that a tensor has by itself."""

    def score(self, rows, forward):
        return torch.full(rows.token_ids.shape, -1.001)


@pytest.mark.slow
def test_the_log_probs_that_a_scorer_gives_are_not_rounded(tmp_path):
    terms, scorers = [KL(coefficient=0.1, to="one")], {"one": Rounded()}
    module, data, lightning, watch = online(tmp_path, "bf16-true", terms=terms, scorers=scorers)
    lightning.fit(module, data)
    batch = watch.batches[0]
    assert set(batch.scores["one"][batch.action_mask].tolist()) == {float(torch.tensor(-1.001))}


def test_a_policy_that_begins_as_a_copier_is_made_before_its_weights_are_cast(tmp_path):
    sizes = {"hidden_size": 48, "num_layers": 2, "num_heads": 3, "num_kv_heads": 3, "intermediate_size": 32}
    module = GRPOModule(TinyPolicy(**sizes, start=InductionHeads()))
    trainer(tmp_path, "bf16-true", WeightSync(), max_steps=1).fit(module, small_data())
    assert {weight.dtype for weight in module.model.parameters()} == {torch.bfloat16}


@pytest.mark.slow
@each("precision", ["bf16-mixed", "bf16-true"])
def test_a_critic_s_hidden_states_are_computed_in_the_precision_of_training(tmp_path, precision):
    module, data, lightning, _ = online(tmp_path, precision, critic=ValueHead())
    dtypes = set()

    class Watched(type(module)):
        def _hidden(self, part):
            projected = self.model.base_model.layers[0].mlp.down_proj
            with projected.register_forward_hook(lambda *of: dtypes.add(of[-1].dtype)):
                return super()._hidden(part)

    module.__class__ = Watched
    lightning.fit(module, data)
    assert dtypes == {torch.bfloat16}
    assert {weight.dtype for weight in module.critic_at_work.net.parameters()} == {torch.float32}


def test_rotary_frequencies_are_moved_and_never_cast(trained):
    module, data, *_ = trained
    rotary = module.model.base_model.rotary_emb
    fresh: Any = TinyPolicy(**TINY).model(data.chat.tokenizer).base_model
    exact = fresh.rotary_emb.inv_freq
    assert rotary.inv_freq.dtype == torch.float32
    assert torch.equal(rotary.inv_freq, exact)
    served = data.engine._bound().model.base_model.rotary_emb.inv_freq
    assert torch.equal(served, exact)


@pytest.mark.slow
def test_nor_are_those_of_the_frozen_initial_policy(tmp_path):
    module, data, lightning, _ = online(tmp_path, "bf16-true", terms=[KL(coefficient=0.1)])
    lightning.fit(module, data)
    ours, frozen = (model.base_model.rotary_emb.inv_freq for model in (module.model, module.reference))
    assert frozen.dtype == torch.float32
    assert torch.equal(frozen, ours)


def test_counts_of_a_metric_do_not_take_part_in_a_cast():
    holder: Any = torch.nn.Module()
    holder.metric = PositionMetrics()
    holder.to(torch.bfloat16)
    holder.metric.reset()
    assert holder.metric.solves.dtype == holder.metric.totals.dtype == torch.float64
    assert holder.to("meta").metric.solves.device.type == "meta"


def test_gradients_of_weights_that_are_rounded_stochastically_add_up_in_float32(tmp_path):
    data = DemonstrationDataModule(
        Levers(protocol="compact"), HintContext(protocol="compact"), num_updates=1, num_packs=3
    )
    module = WarmStartModule(TinyPolicy(**TINY), optimizer="adamw_stochastic", token_budget=60)
    trainer(tmp_path, "bf16-true", max_epochs=1).fit(module, data)
    assert {(one.dtype, one.grad_dtype) for one in module.model.parameters()} == {(torch.bfloat16, torch.float32)}


@HALF
def test_the_warm_start_trains_in_half_precision_too(tmp_path, precision):
    L.seed_everything(1, verbose=False)
    data = DemonstrationDataModule(
        Levers(protocol="compact"), HintContext(protocol="compact"), num_updates=8, packs_per_update=2, num_packs=8
    )
    module, watch = WarmStartModule(TinyPolicy(**TINY), lr=1e-2, warmup_updates=1), Updates()
    trainer(tmp_path, precision, watch, max_epochs=1).fit(module, data)
    losses = [values["warm_start/loss"] for values in watch.values]
    assert weights(module.model).isfinite().all()
    assert losses[-1] < losses[0]
    assert watch.batches[0].behaviour_logprobs.dtype == torch.float32
