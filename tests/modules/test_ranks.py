"""One, two and four ranks, with DDP and with FSDP2: the same gradients, metrics and weights from the same lifecycles."""

from functools import partial
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from msgspec import structs
from torch.distributed.tensor import DTensor

from cod_lightning.adapters import is_adapter
from cod_lightning.callbacks import Throughput, WeightSync
from cod_lightning.datamodules.rollout import RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.forward import row_tree
from cod_lightning.forward.row_tree import RowTree
from cod_lightning.methods.value_head import ValueHead
from cod_lightning.models import LoRAPolicy, TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.objective.losses import DAPO, GSPO
from cod_lightning.objective.mismatch import TokenTruncate
from cod_lightning.objective.terms import KL, EntropyBonus
from cod_lightning.rollout import transcript
from cod_lightning.training.rollouts import TrainingRollouts
from tests.adapted import write_base
from tests.cases import each
from tests.forked import on_ranks
from tests.small_fit import quiet_trainer
from tests.stubs import PlainContext, WordWorld

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*sync_dist=True.*"),  # what is logged is the same on all ranks
]
NUM_UPDATES = 4
SMALL = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}


class Recorder(L.Callback):
    """Whole gradients and logged values of every update, its packs and rows on this rank, and the weights at the end."""

    def __init__(self):
        self.gradients, self.values, self.packs, self.rows, self.weights = [], [], [], [], {}

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        trained = {name: p for name, p in pl_module.model.named_parameters() if p.requires_grad}
        self.gradients.append({name: whole(p.grad) for name, p in trained.items()})

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.values.append({k: float(v) for k, v in trainer.callback_metrics.items() if not timed(k)})
        self.packs.append(sorted(set(batch.place[:, 0].tolist())))
        self.rows.append((pl_module.last_update.num_rows, pl_module.last_update.num_micro_batches))

    def on_train_end(self, trainer, pl_module):
        self.weights = {name: tensor.clone() for name, tensor in pl_module.synced_weights(adapter=False)}


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).clone()


def timed(name):
    return name.startswith(("time/", "throughput/"))


def strategy(name, number):
    if name == "fsdp2":
        return ModelParallelStrategy(data_parallel_size=number, tensor_parallel_size=1, process_group_backend="gloo")
    return DDPStrategy(process_group_backend="gloo") if number > 1 else "auto"


class RecomputingPolicy(TinyPolicy):
    """As a large policy, which has no room for activations."""

    def model(self, tokenizer):
        model = super().model(tokenizer)
        model.gradient_checkpointing_enable()
        return model


def fit(name, number, folder, recorded=None, max_steps=NUM_UPDATES, precision="32-true", made=TinyPolicy, **module):
    L.seed_everything(3, verbose=False)
    adapter = {"path": str(folder / "base"), "rank": 4, "dtype": "float32", "window": 96}
    policy = made(**(SMALL if issubclass(made, TinyPolicy) else adapter))
    sizes = {"pack_size": 2, "group_size": 4, "packs_per_rollout": 8, "updates_per_rollout": 2, "rollouts_per_epoch": 2}
    data = RolloutDataModule(WordWorld(), PlainContext(), TransformersEngine(), **sizes, val_packs=5, max_new_tokens=3)
    if recorded is not None:  # the same groups on any number of ranks, whatever an engine would sample
        groups = {group.pack.id: group for group in transcript.read(recorded)}
        data.packs.collected = lambda packs, *_: [groups[pack.id] for pack in packs]
    recorder = Recorder()
    how = {"strategy": strategy(name, number), "devices": number, "max_steps": max_steps, "precision": precision}
    trainer = quiet_trainer(folder, WeightSync(), Throughput(), recorder, **how)
    trainer.fit(GRPOModule(policy, **({"lr": 1e-3, "token_budget": 100, "gradient_clip_val": None} | module)), data)
    kept = ("gradients", "values", "packs", "rows", "weights")
    return SimpleNamespace(**{name: getattr(recorder, name) for name in kept})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two rollouts, as one rank played them, but for packs 2 and 3 of the first: their siblings all do equally well."""
    path = tmp_path_factory.mktemp("recorded") / "train.jsonl"

    def record():
        play = TrainingRollouts.play

        def write(self, packs):
            groups = play(self, packs)
            kept = [equal(g) if g.pack.id.endswith(("/2", "/3")) else g for g in groups]
            transcript.write(path, [off_policy(g) for g in kept])
            return groups

        TrainingRollouts.play = write
        fit("ddp", 1, path.parent)
        return None

    on_ranks(1, record, path.parent / "out")
    return path


def equal(group):
    """The group with the rewards of its first sibling throughout."""
    first = group.lifecycles[0].episodes

    def life(one):
        pairs = zip(one.episodes, first, strict=True)
        return structs.replace(
            one, episodes=tuple(structs.replace(e, reward=f.reward, success=f.success) for e, f in pairs)
        )

    return structs.replace(group, lifecycles=tuple(map(life, group.lifecycles)))


def off_policy(group):
    """The group as another policy would have sampled it; where ratios are 1 but for rounding, that rounding decides |log ratio|."""

    def shifted(turn):
        shift = [0.02 * (-1) ** n for n in range(len(turn.behaviour_logprobs))]
        return structs.replace(
            turn, behaviour_logprobs=tuple(b + s for b, s in zip(turn.behaviour_logprobs, shift, strict=True))
        )

    def life(one):
        episodes = (structs.replace(e, turns=tuple(map(shifted, e.turns))) for e in one.episodes)
        return structs.replace(one, episodes=tuple(episodes))

    return structs.replace(group, lifecycles=tuple(map(life, group.lifecycles)))


def see_alike(ours, theirs):
    """Gradients of an update, by parameter."""
    assert max(float(gradient.abs().max()) for gradient in theirs.values()) > 1e-4
    for parameter, gradient in theirs.items():
        torch.testing.assert_close(ours[parameter], gradient, rtol=0, atol=1e-5)


OBJECTIVES = {
    "rec": {"mismatch": TokenTruncate()},
    "dapo": {"loss": DAPO(), "scale": "batch", "reweight": None},
    "divergence": {"terms": [KL(coefficient=0.1)], "filter_packs": True},
    "gspo": {"loss": GSPO(), "terms": [EntropyBonus(coefficient=0.01)], "gradient_clip_val": 1e-3},
    "critic": {"critic": ValueHead(lr=0.1, gae_lambda=0.9)},
}


@pytest.fixture(scope="module")
def alone(recorded, tmp_path_factory):
    """Gradients, values, packs and weights of one rank, by objective."""
    folder = tmp_path_factory.mktemp("alone")

    def every():
        return {name: fit("ddp", 1, folder, recorded, **keys) for name, keys in OBJECTIVES.items()}

    return on_ranks(1, every, folder)[0]


@pytest.mark.parametrize(
    ("name", "number", "chosen"),
    [
        ("ddp", 2, OBJECTIVES),
        ("fsdp2", 2, ("rec", "gspo", "critic")),  # norms of shards are added up before a gradient is clipped
        pytest.param("fsdp2", 4, ("rec",), marks=pytest.mark.soak),
        pytest.param("ddp", 4, ("rec",), marks=pytest.mark.soak),
    ],
    ids=lambda one: one if isinstance(one, (str, int)) else "",
)
def test_gradients_metrics_and_weights_are_those_of_one_rank(name, number, chosen, recorded, alone, tmp_path):
    def every():
        return {key: fit(name, number, tmp_path, recorded, **OBJECTIVES[key]) for key in chosen}

    ranks = on_ranks(number, every, tmp_path / "out")
    for key in ranks[0]:
        expected = alone[key]
        for found in (rank[key] for rank in ranks):
            assert len(found.gradients) == len(expected.gradients) == NUM_UPDATES
            for ours, theirs in zip(found.gradients, expected.gradients, strict=True):
                see_alike(ours, theirs)
            for ours, theirs in zip(found.values, expected.values, strict=True):
                assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
            for parameter, weight in expected.weights.items():
                torch.testing.assert_close(found.weights[parameter], weight, rtol=0, atol=1e-4)
            assert all(len(packs) == 4 // number for packs in found.packs)
        for update in range(NUM_UPDATES):  # together the packs that one rank trains on, and equally many passes
            assert sorted(pack for rank in ranks for pack in rank[key].packs[update]) == expected.packs[update]
            assert len({rank[key].rows[update][1] for rank in ranks}) == 1
    rows = [rank["rec"].rows[0][0] for rank in ranks]
    assert rows[0] > 0
    assert rows[-1] == 0  # the last rank steps all the same


@each(("precision", "size"), [("bf16-mixed", torch.float32), ("bf16-true", torch.bfloat16)])
def test_half_precision_and_recomputed_activations_train_sharded(precision, size, recorded, tmp_path):
    def train():
        found = fit("fsdp2", 2, tmp_path, recorded, max_steps=2, precision=precision, made=RecomputingPolicy)
        return found.weights, [values["train/gradient_norm"] for values in found.values]

    ours, theirs = on_ranks(2, train, tmp_path / "out")
    assert {weight.dtype for weight in ours[0].values()} == {size}
    assert all(torch.equal(ours[0][name], weight) for name, weight in theirs[0].items())
    assert ours[1] == theirs[1]
    assert min(ours[1]) > 0


@each(("name", "number"), [("ddp", 1), ("fsdp2", 2)])
def test_rows_as_a_tree_have_the_gradients_of_padded_ones(name, number, recorded, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(row_tree, "_PAYS_SMALL", 1.0)
    inputs, asked = RowTree.inputs, []
    monkeypatch.setattr(RowTree, "inputs", lambda self: asked.append(1) or inputs(self))

    def train():
        found = fit(name, number, tmp_path, recorded, made=RecomputingPolicy, **OBJECTIVES["rec"])
        return found.gradients, len(asked)

    for gradients, num_passes in on_ranks(number, train, tmp_path / "out"):
        assert num_passes > 1, "only the case was asked"
        for ours, theirs in zip(gradients, alone["rec"].gradients, strict=True):
            see_alike(ours, theirs)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_weights_that_are_rounded_stochastically_are_the_same_on_all_ranks_and_near_those_of_one(
    name, recorded, tmp_path
):
    def train(strategy, number):
        keys = {"precision": "bf16-true", "optimizer": "adamw_stochastic", "lr": 1e-4, "token_budget": 60}
        return fit(strategy, number, tmp_path, recorded, **keys).weights

    (alone,) = on_ranks(1, lambda: train(name, 1), tmp_path / "one")
    ours, theirs = on_ranks(2, lambda: train(name, 2), tmp_path / "two")
    assert {weight.dtype for weight in ours.values()} == {torch.bfloat16}
    differing = sum(int((alone[key] != weight).sum()) for key, weight in ours.items())
    for key, weight in ours.items():
        assert torch.equal(theirs[key], weight)
        step = 2.0**-8 * alone[key].abs().float().clamp_min(2.0**-10)
        assert bool(((weight.float() - alone[key].float()).abs() <= 4 * step + 8e-4).all()), key
    assert differing < 0.2 * sum(weight.numel() for weight in ours.values())  # most chances are the same, too


def test_an_adapter_is_trained_on_two_ranks_as_on_one(recorded, tmp_path):
    write_base(tmp_path / "base")

    def on(number):
        names = ("ddp", "fsdp2") if number > 1 else ("ddp",)
        every = partial(map, lambda name: fit(name, number, tmp_path, recorded, made=LoRAPolicy), names)
        return on_ranks(number, lambda: list(every()), tmp_path / f"on{number}")

    (((expected,),), found) = on(1), on(2)
    for rank in (found for of_rank in found for found in of_rank):
        for ours, theirs in zip(rank.gradients, expected.gradients, strict=True):
            assert theirs
            assert all(is_adapter(name) for name in theirs)
            see_alike(ours, theirs)
        for parameter, weight in expected.weights.items():
            torch.testing.assert_close(rank.weights[parameter], weight, rtol=0, atol=1e-4)
