"""A player and a writer as two adapters of one base: each is sampled in its episodes and trained on their rows alone."""

import lightning as L
import pytest
import torch
from msgspec import structs

from cod_lightning.adapters import adapter_weights, adapters_by_name, choose_adapter, without_adapter
from cod_lightning.callbacks import WeightSync
from cod_lightning.credit.table import kind_id
from cod_lightning.datamodules.checks import check_pair
from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import ConfigError, DataError, EngineFailure, EngineMismatch
from cod_lightning.models import LoRAPolicy, QLoRAPolicy
from cod_lightning.modules import GRPOModule, WarmStartModule
from cod_lightning.objective.terms import KL
from cod_lightning.rollout import transcript
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.segments import count_drift
from cod_lightning.rollout.setting import Setting
from cod_lightning.training.scorers import FrozenRole
from cod_lightning.types import EpisodeKind, Split
from tests.adapted import adapted, step, write_base
from tests.forked import on_ranks
from tests.recorded_rollouts import RecordedRollouts
from tests.small_fit import quiet_trainer
from tests.stubs import FunctionEngine, PlainContext, WordWorld

PLAYED = (EpisodeKind.SOLVE, EpisodeKind.UPDATE)
PLAYER, WRITER = (kind.role for kind in PLAYED)
IDS = torch.randint(6, 40, (2, 30), generator=torch.Generator().manual_seed(1))
SIZES = {"pack_size": 2, "group_size": 4, "packs_per_rollout": 4, "updates_per_rollout": 2, "rollouts_per_epoch": 2}
KINDS = pytest.mark.parametrize("kind", [LoRAPolicy, pytest.param(QLoRAPolicy, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_base(tmp_path_factory.mktemp("base"))


def two(kind, base, **options):
    """A model with both adapters, which do different things."""
    return adapted(kind, base, adapters="by_role", **options)


def served(model):
    engine = TransformersEngine()
    engine.bind(model, stop_ids=[2])
    engine.update_weights(adapter_weights(model).items(), 0)
    return engine


def logits(model, adapter):
    choose_adapter(model, adapter)
    with torch.no_grad():
        return model(IDS).logits


@KINDS
def test_one_adapter_acts_at_a_time_both_are_trained_and_without_them_there_is_the_base(kind, base):
    model = two(kind, base)
    assert adapters_by_name(model) == (PLAYER, WRITER)
    player, writer = logits(model, PLAYER), logits(model, WRITER)
    assert not torch.allclose(player, writer, atol=1e-2)
    torch.testing.assert_close(logits(model, PLAYER), player, rtol=0, atol=0)
    with without_adapter(model):
        initial = logits(model, WRITER)
    new = kind(path=str(base), dtype="float32", adapters="by_role").model(None)  # pyright: ignore
    torch.testing.assert_close(initial, logits(new, PLAYER), rtol=0, atol=0)
    assert all(weight.requires_grad for weight in adapter_weights(model).values())
    of_player = adapter_weights(model, PLAYER)
    next(iter(of_player.values())).requires_grad_(False)
    with without_adapter(model):
        choose_adapter(model, PLAYER)
    assert [weight.requires_grad for weight in of_player.values()] == [False] + [True] * (len(of_player) - 1)


@KINDS
def test_the_engine_serves_both_over_one_base_as_the_training_forward_has_them(kind, base):
    model = two(kind, base)
    engine = served(model)
    served_twice = [one.model for one in engine.decoders.values()]
    for name, weight in model.named_parameters():
        ours = [copy.get_parameter(name) for copy in served_twice]
        assert ours[0] is ours[1]
        assert (ours[0] is weight) == ("lora_" not in name)
    for version in range(3):
        step(model, version)
        engine.update_weights(adapter_weights(model).items(), version)
        assert SelfTest()(engine, model, window=256).size <= 1e-5


@pytest.mark.slow
def test_an_adapter_that_was_not_synced_is_found_out_by_name(base):
    model = two(LoRAPolicy, base)
    engine = served(model)
    stale = adapter_weights(model) | {n: torch.zeros_like(w) for n, w in adapter_weights(model, WRITER).items()}
    engine.update_weights(stale.items(), 1)
    with pytest.raises(EngineMismatch, match="does not sample from the adapter writer that is trained"):
        SelfTest()(engine, model, window=256)


def test_every_turn_is_sampled_by_the_adapter_of_its_episode_on_exact_tokens(base):
    policy = LoRAPolicy(str(base), rank=4, dtype="float32", window=96, adapters="by_role")
    model = two(LoRAPolicy, base)
    world, chat = WordWorld(), Chat(policy.tokenizer(()))
    sampler = Sampler(engine=served(model), chat=chat, window=96, max_new_tokens=4)
    setting = Setting(
        env=world, mechanism=PlainContext(), sampler=sampler, by_kind=sampler.by_kind(policy.adapter_kinds)
    )
    packs = [world.sample_pack(split=Split.TRAIN, index=i, num_tasks=2) for i in range(2)]
    groups = run_groups(packs, 2, setting)
    assert count_drift(groups) == 0
    seen = set()
    for episode in (one for group in groups for life in group.lifecycles for one in life.episodes):
        assert not episode.error
        choose_adapter(model, episode.kind.role)
        ids: list[int] = []
        for turn in episode.turns:
            ids = [*(ids if turn.extends else []), *turn.new_ids, *turn.action_ids]
            with torch.no_grad():
                found = model(torch.tensor([ids])).logits[0].log_softmax(-1)[-len(turn.action_ids) - 1 : -1]
            expected = found.gather(1, torch.tensor(turn.action_ids)[:, None])[:, 0].tolist()
            assert turn.behaviour_logprobs == pytest.approx(expected, abs=1e-4)
            seen.add(episode.kind)
    assert seen == set(PLAYED)


def test_who_plays_tasks_writes_what_a_program_asks_for_and_two_adapters_stay_two(base):
    policy = LoRAPolicy(str(base), adapters="by_role")
    assert policy.adapter_names == (PLAYER, WRITER)
    sampler = Sampler(engine=FunctionEngine(lambda _: ()), chat=Chat(policy.tokenizer(())), window=96, max_new_tokens=4)
    assert {kind: one.adapter for kind, one in sampler.by_kind(policy.adapter_kinds).items()} == {
        EpisodeKind.SOLVE: PLAYER,
        EpisodeKind.UPDATE: WRITER,
        EpisodeKind.WRITE: PLAYER,
    }


def test_a_request_that_names_no_adapter_of_several_is_refused(base):
    engine = served(two(LoRAPolicy, base))
    sampler = Sampler(engine=engine, chat=Chat(LoRAPolicy(str(base)).tokenizer(())), window=96, max_new_tokens=4)
    world = WordWorld()
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    (group,) = run_groups([pack], 1, Setting(env=world, mechanism=PlainContext(), sampler=sampler))
    assert "names the adapter None" in group.lifecycles[0].episodes[0].error
    with pytest.raises(EngineFailure, match="left out"):
        engine.update_weights(adapter_weights(two(LoRAPolicy, base), PLAYER).items(), 1)


# ------------------------------------------------------------------ training


class Watch(L.Callback):
    """Gradients and logged values of every update, the kinds of its rows, and a checkpoint after the first."""

    def __init__(self, path=None):
        self.path, self.gradients, self.values, self.kinds, self.weights = path, [], [], [], {}

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        trained = adapter_weights(pl_module.model).items()
        self.gradients.append({name: None if w.grad is None else w.grad.clone() for name, w in trained})

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        named = {k: float(v) for k, v in trainer.callback_metrics.items()}
        self.values.append({k: v for k, v in named.items() if not k.startswith(("time/", "throughput/"))})
        self.kinds.append(set(batch.kinds.tolist()))
        if self.path is not None and trainer.global_step == 1:
            trainer.save_checkpoint(self.path)

    def on_train_end(self, trainer, pl_module):
        self.weights = {name: weight.detach().clone() for name, weight in adapter_weights(pl_module.model).items()}


def fit(folder, base, watch, *, recorded=None, data=None, ranks=1, ckpt_path=None, policy=None, **options):
    L.seed_everything(1, verbose=False)
    own = {"rank": 8, "dtype": "float32", "window": 96, "adapters": "by_role"} | (policy or {})
    sizes = SIZES | {"val_packs": 2, "max_new_tokens": 3} | (data or {})
    items = RecordedRollouts(WordWorld(), PlainContext(), TransformersEngine(), **sizes, seed=1)
    items.recorded = recorded
    module = GRPOModule(LoRAPolicy(str(base), **own), **({"lr": 1e-2, "reweight": None, "token_budget": 200} | options))
    more = {"strategy": "ddp", "devices": ranks} if ranks > 1 else {}
    quiet_trainer(folder, WeightSync(), watch, **more).fit(module, items, ckpt_path=ckpt_path, weights_only=True)
    return module


def of_role(tensors, role):
    return {name: tensor for name, tensor in tensors.items() if f".{role}." in name}


@pytest.mark.slow
def test_both_are_trained_and_sampled_from_and_a_run_goes_on_in_the_middle_of_a_rollout(tmp_path, base):
    path, watch = tmp_path / "one.ckpt", Watch(tmp_path / "one.ckpt")
    fit(tmp_path, base, watch, terms=[KL(coefficient=0.1)])
    assert all(values["engine/self_test_gap"] <= 1e-4 for values in watch.values)
    assert watch.values[2]["train/logprob_gap"] <= 1e-5, "the second rollout is sampled by adapters that differ"
    assert watch.values[0]["train/divergence"] == pytest.approx(0.0, abs=1e-9)
    assert watch.values[-1]["train/divergence"] > 1e-5
    for role in (PLAYER, WRITER):
        assert max(float(w.abs().max()) for n, w in of_role(watch.weights, role).items() if "lora_B" in n) > 1e-3
    rest = Watch()
    fit(tmp_path, base, rest, terms=[KL(coefficient=0.1)], ckpt_path=str(path))
    assert rest.values == watch.values[1:]
    assert all(torch.equal(rest.weights[name], weight) for name, weight in watch.weights.items())
    with pytest.raises(DataError, match=r"or others than model\.policy\.adapters has"):
        fit(tmp_path, base, Watch(), policy={"adapters": "shared"}, ckpt_path=str(path))


@pytest.mark.slow
def test_the_adapter_of_a_frozen_role_stays_as_it_was_and_the_other_is_trained(tmp_path, base):
    watch = Watch()
    fit(tmp_path, base, watch, data={"frozen": FrozenRole("solve")})
    moved = {
        role: max(float(w.abs().max()) for n, w in of_role(watch.weights, role).items() if "lora_B" in n)
        for role in (PLAYER, WRITER)
    }
    assert moved[PLAYER] == 0 < moved[WRITER]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLAYED)
def test_rows_of_one_kind_do_not_touch_the_other_kind_s_adapter(kind, tmp_path, base):
    watch = Watch()
    module = fit(tmp_path, base, watch, trained_kinds=[str(kind)], weight_decay=0.1)
    (other,) = set(PLAYED) - {kind}
    assert set().union(*watch.kinds) == {kind_id(one) for one in PLAYED}, "rows of both are in the batches"
    for gradients in watch.gradients:
        assert all(gradient is None for gradient in of_role(gradients, other.role).values())
        assert any(bool(gradient.any()) for gradient in of_role(gradients, kind.role).values())
    assert all(not w.any() for n, w in of_role(watch.weights, other.role).items() if "lora_B" in n)
    trained = {id(p) for group in module.optimizers().param_groups for p in group["params"]}
    assert trained == {id(weight) for weight in adapter_weights(module.model, kind.role).values()}


@pytest.mark.slow
def test_the_gradient_of_a_role_is_what_its_rows_give_when_they_are_alone(tmp_path, base):
    """Of the first update, whose weights are those of the beginning; both are divided by all action tokens of their update."""
    both, alone = Watch(), {kind: Watch() for kind in PLAYED}
    fit(tmp_path, base, both, gradient_clip_val=None)
    for kind, watch in alone.items():
        fit(tmp_path, base, watch, gradient_clip_val=None, trained_kinds=[str(kind)])
        pairs = [
            (gradient, of_role(both.gradients[0], kind.role)[name])
            for name, gradient in of_role(watch.gradients[0], kind.role).items()
        ]
        ours, theirs = (torch.cat([one.flatten() for one in side]) for side in zip(*pairs, strict=True))
        assert torch.cosine_similarity(ours, theirs, dim=0) == pytest.approx(1.0, abs=1e-5)
        assert 0 < theirs.norm() < ours.norm()


@pytest.mark.slow
def test_a_role_s_gradient_is_clipped_by_its_own_norm(tmp_path, base):
    watch = Watch()
    fit(tmp_path, base, watch, gradient_clip_val=1e-3)
    norms = [
        torch.stack([g.norm() for g in of_role(watch.gradients[0], role).values()]).norm() for role in (PLAYER, WRITER)
    ]
    assert norms == [pytest.approx(1e-3, rel=1e-2)] * 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*sync_dist=True.*")  # what is logged is the same on all ranks
def test_two_ranks_train_both_as_one_does_also_where_one_of_them_has_no_rows(tmp_path, base):
    recorded = tmp_path / "train.jsonl"

    def record():
        play = RecordedRollouts.groups

        def write(self, label, packs, **options):
            groups = play(self, label, packs, **options)
            if label == "train":
                transcript.write(recorded, [without_signal(g) if g.pack.id.endswith("/1") else g for g in groups])
            return groups

        RecordedRollouts.groups = write
        fit(tmp_path, base, Watch())

    def train(ranks):
        watch = Watch()
        fit(tmp_path, base, watch, recorded=recorded, ranks=ranks, gradient_clip_val=1e-2)
        return watch.gradients, watch.values, watch.weights

    on_ranks(1, record, tmp_path / "recording")
    ((gradients, values, weights),) = on_ranks(1, lambda: train(1), tmp_path / "one")
    for ours in on_ranks(2, lambda: train(2), tmp_path / "two"):
        for found, expected in zip(ours[0], gradients, strict=True):
            for role in (PLAYER, WRITER):
                assert max(float(g.abs().max()) for g in of_role(expected, role).values()) > 1e-4
            for name, gradient in expected.items():
                torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-5)
        for found, expected in zip(ours[1], values, strict=True):
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
        for name, weight in weights.items():
            torch.testing.assert_close(ours[2][name], weight, rtol=0, atol=1e-4)


def without_signal(group):
    """The group with the rewards of its first sibling throughout, so that no row has an advantage."""
    first = group.lifecycles[0].episodes
    lives = [
        structs.replace(
            life,
            episodes=tuple(structs.replace(e, reward=f.reward) for e, f in zip(life.episodes, first, strict=True)),
        )
        for life in group.lifecycles
    ]
    return structs.replace(group, lifecycles=tuple(lives))


# ------------------------------------------------------------------ what does not go together


def test_what_two_adapters_do_not_go_with_is_named_with_the_remedy(base):
    policy = LoRAPolicy(str(base), adapters="by_role")
    with pytest.raises(
        ConfigError, match=r"data\.engine is FunctionEngine; expected .* Choose engine=TransformersEngine"
    ):
        check_pair(FunctionEngine(lambda _: (2,)), policy)
    with pytest.raises(ConfigError, match=r"model\.policy\.adapters is by_role; expected shared in a warm start"):
        WarmStartModule(policy)
    with pytest.raises(ConfigError, match=r"trainer\.strategy is ModelParallelStrategy; expected ddp .*adapters"):
        GRPOModule(policy).check_strategy("ModelParallelStrategy")
    check_pair(TransformersEngine(), policy)
