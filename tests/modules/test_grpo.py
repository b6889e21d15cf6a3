"""The objective inside Lightning, on a stub world and a policy of a few thousand weights."""

import math
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.credit.returns import TrajectoryCredit
from cod_lightning.errors import NonFiniteLoss
from cod_lightning.methods.jsd import JSD
from cod_lightning.methods.privileged import PrivilegedScorer, after
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.objective.terms import KL, EntropyBonus
from cod_lightning.training.scorers import Played, Scorer
from cod_lightning.training.update import plan_update, split_by_token_budget
from tests.credit_tables import advantage
from tests.loss_inputs import LOSSES
from tests.small_fit import small_fit
from tests.stubs import Unrewarding, WordWorld


def fit(tmp_path, max_steps=4, seed=3, world=None, **module):
    """Of two updates a rollout."""
    trainer, module = {"max_steps": max_steps, "limit_val_batches": 0}, {"lr": 1e-3} | module
    return small_fit(tmp_path, WeightSync(), world=world, module=module, trainer=trainer, val_packs=4, seed=seed)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("usual"))


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.model.parameters()])


def test_engine_and_training_agree_on_every_rollout_and_an_update_is_of_one_policy_version(usual):
    gaps = [values["train/logprob_gap"] for values in usual.updates.values[0::2]]
    assert max(gaps) < 1e-5
    versions = [set(batch.policy_version.tolist()) for batch in usual.updates.batches]
    assert all(len(v) == 1 for v in versions)
    assert versions[0] == versions[1]
    assert max(versions[1]) < min(versions[2])


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(usual, tmp_path):
    first, second, other = (weights(of.module) for of in (usual, *(fit(tmp_path, seed=s) for s in (3, 4))))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_rewards_become_advantages_before_they_come_to_the_module(tmp_path):
    files = set()

    @dataclass(frozen=True)
    class Watched(TrajectoryCredit):
        def weights(self, kinds):
            files.update(Path(frame.filename).name for frame in traceback.extract_stack())
            return super().weights(kinds)

    fit(tmp_path, max_steps=1, credit=Watched())
    assert {"rollouts.py", "credited.py"} < files
    assert "grpo.py" not in files


def test_a_run_of_no_updates_ends_before_its_first(tmp_path):
    run = fit(tmp_path, max_steps=0)
    assert run.trainer.global_step == 0
    assert run.updates.batches == []


def test_an_update_whose_packs_all_failed_changes_nothing_and_the_run_goes_on(tmp_path):
    class Broken(WordWorld):
        def reset(self, *, seed=None, options=None):
            if options["task"].id in ("2.0", "3.0"):
                raise RuntimeError("broken")
            return super().reset(options=options)

    module, _, updates, *_ = fit(tmp_path, max_steps=2, world=Broken())
    assert len(updates.batches[1]) == 0 < len(updates.batches[0])
    assert updates.values[1]["train/gradient_norm"] == 0 < updates.values[0]["train/gradient_norm"]
    assert weights(module).isfinite().all()
    assert module.num_moved == 1, "only the first has moved the weights"


def test_a_loss_that_is_not_finite_stops_the_run_and_saves_the_batch(tmp_path, monkeypatch):
    def poisoned(self, model, part):
        logprobs, entropy = logprobs_of(self, model, part)
        return logprobs * float("nan"), entropy

    logprobs_of = GRPOModule._logprobs
    monkeypatch.setattr(GRPOModule, "_logprobs", poisoned)
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "nonfinite_step0.pt").symlink_to(tmp_path / "precious")
    with pytest.raises(NonFiniteLoss, match=r"update 0; its micro-batch is saved in .*nonfinite_step0\.pt"):
        fit(tmp_path)
    assert (tmp_path / "precious").read_text() == "precious"
    saved = torch.load(tmp_path / "nonfinite_step0.pt")
    assert saved["token_ids"].shape == saved["action_mask"].shape


def test_a_gradient_that_is_not_finite_stops_the_run_before_it_is_in_the_weights(tmp_path, monkeypatch):
    def poisoned(self, model, part):
        logprobs, entropy = logprobs_of(self, model, part)
        logprobs.register_hook(lambda gradient: gradient * math.inf)
        seen.append(self)
        return logprobs, entropy

    logprobs_of, seen = GRPOModule._logprobs, []
    monkeypatch.setattr(GRPOModule, "_logprobs", poisoned)
    with pytest.raises(NonFiniteLoss, match=r"(nan|inf) at optimizer update 0; the weights are as before"):
        fit(tmp_path)
    assert weights(seen[0]).isfinite().all()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A module some updates away from what sampled the batch, in which some episodes have two rows."""
    module, _, updates, *_ = fit(
        tmp_path_factory.mktemp("trained"), lr=3e-2, reweight=None, terms=[KL(coefficient=0.1)]
    )
    batch = updates.batches[0]
    changed = {name: getattr(batch, name).clone() for name in ("episode", "siblings", "advantages", "place")}
    for of in changed.values():
        of[1::6] = of[0::6][: len(of[1::6])]
    return module, replace(batch, **changed), updates


def accumulated(module, batch, budget):
    """Loss gradient of a whole update, and its number of micro-batches."""
    module.model.zero_grad()
    update = plan_update(batch, module.loss, every_row=True)
    parts = split_by_token_budget(batch.lengths[update.rows], update.together[update.rows], budget)
    for part in parts:
        module._loss_of(batch, update, [], update.rows[part]).backward()
    return torch.cat([p.grad.flatten() for p in module.model.parameters()]), len(parts)


def test_replayed_rows_say_nothing_of_how_far_the_engine_is_from_the_policy(trained):
    module, batch, _ = trained
    batch = replace(batch, is_replayed=torch.arange(len(batch)) % 3 == 0)
    update = plan_update(batch, module.loss, every_row=True)
    module._loss_of(batch, update, found := [], update.rows)
    assert found[0]["mismatch"]["tokens"] == int(batch.action_mask[~batch.is_replayed].sum())


OF_EACH_KIND = ("rec", "dapo", "loop turn", "nft", "sdpo")
"""Of losses: by token, by turn, by what becomes of an episode, over pairs."""


@pytest.mark.parametrize(
    "terms",
    [{}, pytest.param({"terms": [EntropyBonus(coefficient=0.1)]}, marks=pytest.mark.slow)],
    ids=["alone", "with terms"],
)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in OF_EACH_KIND)) for name in LOSSES]
)
def test_the_token_budget_does_not_change_the_gradient_of_any_loss(trained, name, terms, monkeypatch):
    module, batch, _ = trained
    for key, value in ({"loss": LOSSES[name][0]} | terms).items():
        monkeypatch.setattr(module, key, value)
    (whole, one), (split, many) = (accumulated(module, batch, budget) for budget in (100_000, 64))
    assert many > one == 1
    assert whole.abs().max() > 1e-4
    torch.testing.assert_close(split, whole, atol=1e-6, rtol=1e-4)


def test_the_share_of_packs_without_signal_is_logged_and_filtering_takes_them_out_of_the_mean(tmp_path):
    own = {"max_steps": 1, "reweight": None, "credit": TrajectoryCredit(), "gradient_clip_val": None}
    plain, filtered = (fit(tmp_path, world=Unrewarding(), filter_packs=f, **own) for f in (False, True))
    batch, logged = plain.updates.batches[0], plain.updates.values[0]
    rewards = plain.credits[0].table.solved()[0].sum(-1)
    silent = (rewards == rewards[:, :1]).all(dim=1)
    assert silent[1::2].all()
    assert not silent.all()
    assert logged["train/zero_variance_packs"] == pytest.approx(float(silent.float().mean()))
    kept = batch.action_mask[~silent[batch.place[:, 0]]].sum().item()
    num_tokens = int(batch.action_mask.sum())
    assert 0 < kept < num_tokens
    ratio = filtered.updates.values[0]["train/gradient_norm"] / logged["train/gradient_norm"]
    assert ratio == pytest.approx(num_tokens / kept, rel=1e-4)


TERMS = {
    **{f"kl {k}": [KL(coefficient=0.3, estimator=k)] for k in ("k1", "k3")},
    "both": [KL(coefficient=0.3), EntropyBonus(coefficient=0.2)],
}


@pytest.mark.parametrize("name", [n if n == "kl k3" else pytest.param(n, marks=pytest.mark.slow) for n in TERMS])
def test_the_terms_beside_the_loss_are_means_over_all_tokens_of_the_update_by_their_definition(tmp_path, name):
    """The second update of a rollout: the policy has left its reference, and some rows have no advantage."""
    own = {"loss": LOSSES["rloo"][0], "lr": 1e-2, "gradient_clip_val": None, "reweight": None} | {"terms": TERMS[name]}
    module, run = fit(tmp_path, max_steps=1, **own).module, fit(tmp_path, max_steps=2, **own)
    batch, logged, (credit,) = run.updates.batches[1], run.updates.values[1], run.credits
    assert (batch.advantages == 0).any()
    module.model.zero_grad()
    episodes = len({tuple(place) for place in batch.place.tolist()})
    total, divergence, entropy, tokens = torch.zeros(()), 0.0, 0.0, int(batch.action_mask.sum())
    bonus = next((term.coefficient for term in TERMS[name] if isinstance(term, EntropyBonus)), 0.0)
    kl = next((term for term in TERMS[name] if isinstance(term, KL)), None)
    for row in range(len(batch)):
        ids = batch.token_ids[row, : batch.lengths[row]]
        scores = torch.log_softmax(module.model(ids[None]).logits[0], dim=-1)
        frozen = None if module.reference is None else torch.log_softmax(module.reference(ids[None]).logits[0], dim=-1)
        for t in batch.action_mask[row].nonzero().flatten().tolist():
            logprob = scores[t - 1, ids[t]]
            total = total - advantage(credit, batch, row) * logprob / episodes
            spread = -(scores[t - 1].exp() * scores[t - 1]).sum()
            total = total - bonus * spread / tokens
            entropy += spread.item() / tokens
            if frozen is not None and kl is not None:
                d = logprob - frozen[t - 1, ids[t]].detach()
                value = {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() - 1 + d}[kl.estimator]
                trained = d**2 / 2 if kl.estimator == "k1" else value
                total = total + kl.coefficient * trained / tokens
                divergence += value.item() / tokens
    total.backward()
    expected = math.sqrt(sum(float((p.grad**2).sum()) for p in module.model.parameters()))
    assert logged["train/gradient_norm"] == pytest.approx(expected, rel=1e-4)
    assert logged["train/entropy"] == pytest.approx(entropy, rel=1e-4)
    if module.reference is not None:
        assert abs(divergence) > 1e-6
        assert logged["train/divergence"] == pytest.approx(divergence, rel=1e-3)


def test_the_reference_stays_the_policy_that_training_began_with(trained):
    module, _, updates = trained
    batch = updates.batches[2]  # of the second rollout
    for row in range(3):
        ids = batch.token_ids[row, : batch.lengths[row]]
        logprobs = torch.log_softmax(module.reference(ids[None]).logits[0], dim=-1).detach()
        for t in batch.action_mask[row].nonzero().flatten().tolist():
            assert float(batch.scores["reference"][row, t]) == pytest.approx(float(logprobs[t - 1, ids[t]]), abs=1e-5)
    apart = (batch.scores["reference"] - batch.behaviour_logprobs)[batch.action_mask]
    assert apart.abs().max() > 1e-3


class Asked(Scorer):
    """Notes whether gradients were on; every token is as likely as any, and every third one has no score."""

    def __init__(self):
        self.with_gradient = []

    def score(self, rows, forward):
        self.with_gradient.append(torch.is_grad_enabled())
        return torch.full(rows.token_ids.shape, -1.0).masked_fill(rows.token_ids % 3 == 0, math.nan)


def test_other_models_score_without_gradients_and_tokens_without_a_score_count_once_and_in_no_mean(tmp_path):
    asked = Asked()
    terms = [KL(to="teacher", estimator="k1"), JSD()]
    updates = fit(tmp_path, max_steps=1, terms=terms, scorers={"teacher": asked}).updates
    assert asked.with_gradient
    assert not any(asked.with_gradient)
    batch, logged = updates.batches[0], updates.values[0]
    scored = batch.action_mask & batch.scores["teacher"].isfinite()
    assert logged["train/teacher_missing"] == pytest.approx(1 - float(scored.sum() / batch.action_mask.sum()))
    gap = (batch.behaviour_logprobs - batch.scores["teacher"])[scored]
    assert logged["train/divergence_teacher"] == pytest.approx(float(gap.mean()), abs=1e-3)


def test_an_update_none_of_whose_tokens_has_a_score_has_no_figure_of_the_term(tmp_path, monkeypatch):
    monkeypatch.setattr("cod_lightning.training.scorers.MOST_MISSING", 1.0)

    class FallsSilent(Asked):
        num_rollouts = 0

        def rows(self, batch, played):
            self.num_rollouts += 1
            return super().rows(batch, played)

        def score(self, rows, forward):
            return super().score(rows, forward).masked_fill(torch.tensor(self.num_rollouts > 1), math.nan)

    module, *_ = fit(tmp_path, max_steps=3, terms=[KL(to="teacher")], scorers={"teacher": FallsSilent()})
    assert module.latest["teacher_missing"] == 1.0
    assert "divergence_teacher" not in module.latest, "that of the rollout before says nothing of this update"


def test_scores_go_back_to_the_tokens_that_they_belong_to_and_rows_without_another_prompt_have_none(tmp_path):
    module, _, updates, *_ = fit(tmp_path, max_steps=1, token_budget=60)
    batch = updates.batches[0]
    module.terms, module.needs = [KL(to="teacher")], ("teacher",)
    without = tuple(batch.place[1].tolist())

    def prompt(g, k, e, *_):
        return None if (g, k, e) == without else [5, 6, 7 + k][: 1 + (g + e) % 3]

    class SeesMore(PrivilegedScorer):
        def rows(self, rows, played):
            return after(rows, prompt)

    module.scorers = {"teacher": SeesMore()}
    scores = module.score(batch, Played({}, setting=None)).scores["teacher"]
    for row, place in enumerate(batch.place.tolist()):
        mask, ids = batch.action_mask[row], batch.token_ids[row, : batch.lengths[row]].tolist()
        at = int(mask.int().argmax())
        if tuple(place) == without:
            assert scores[row].isnan().all()
            continue
        begin = prompt(*place)
        logits = module.model(torch.tensor([begin + ids[at:]])).logits[0].detach()
        for t in mask.nonzero().flatten().tolist():
            here = t - at + len(begin)
            expected = torch.log_softmax(logits[here - 1], dim=-1)[ids[t]]
            assert float(scores[row, t]) == pytest.approx(float(expected), abs=1e-4)


def test_a_checkpoint_keeps_what_the_engine_has_not_seen_and_the_figures_that_not_every_update_has(tmp_path):
    module, *_ = fit(tmp_path, max_steps=1)
    assert module.updates_since_sync == 1
    checkpoint = {"state_dict": {}}
    module.on_save_checkpoint(checkpoint)
    other = GRPOModule(module.policy)
    other.on_load_checkpoint(checkpoint)
    assert (other.updates_since_sync, other.latest) == (1, module.latest)
    assert "mismatch_kl" in other.latest


def test_what_a_policy_draws_goes_by_run_update_and_rank():
    def drawn(seed, step, rank):
        fake = SimpleNamespace(seed=seed, global_step=step, global_rank=rank)
        with torch.random.fork_rng(devices=[]):
            GRPOModule.on_train_batch_start(fake, None, 0)
            return float(torch.rand(()))

    places = [(seed, step, rank) for seed in (1, 2) for step in (0, 1) for rank in (0, 1)]
    assert len({drawn(*place) for place in places}) == len(places)
    assert drawn(1, 1, 1) == drawn(1, 1, 1)


def test_what_an_update_freed_is_given_back_before_the_next_one(tmp_path, monkeypatch):
    grads = []
    monkeypatch.setattr("cod_lightning.modules.policy.give_back", lambda: grads.append("before its gradient"))
    fit(tmp_path, max_steps=2)
    assert len(grads) == 2
