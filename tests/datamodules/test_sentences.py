"""The sentences that a tokenizer is made of, and trainings with such a policy."""

import pytest
import torch

from cod_lightning.callbacks import WeightSync
from cod_lightning.contexts import HintContext
from cod_lightning.datamodules import DemonstrationDataModule, RolloutDataModule
from cod_lightning.datamodules.sentences import sentences
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs import code_labels
from cod_lightning.envs.facts import QuotingDials
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.models import SentencePolicy, TinyPolicy
from cod_lightning.modules import GRPOModule, WarmStartModule
from tests.cases import each
from tests.small_fit import Updates, quiet_trainer
from tests.stubs import WordWorld

SMALL = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "num_kv_heads": 2, "intermediate_size": 32, "window": 1024}


def trainer(*callbacks):
    return quiet_trainer(None, *callbacks, limit_val_batches=0)


def rollouts(**sizes):
    options = {"pack_size": 2, "group_size": 2, "packs_per_rollout": 2, "updates_per_rollout": 2, "val_packs": 2}
    options |= {"rollouts_per_epoch": 1, "max_new_tokens": 24}
    return RolloutDataModule(Levers(), HintContext(), TransformersEngine(), **options | sizes)


def demonstrations(**sizes):
    return DemonstrationDataModule(Levers(), HintContext(), **{"max_new_tokens": 64} | sizes)


def test_they_are_those_of_prompts_answers_and_notes():
    said = sentences(Levers(), HintContext())
    assert list(said) == sorted(set(said))
    for part in (
        "There are four levers",
        "Now rewrite the hints.",
        "I want red. <answer>",
        "- Lever 1: unknown",
        "in time",
    ):
        assert any(part in text for text in said) is (part != "in time")


@pytest.mark.slow
def test_neither_seed_nor_sizes_nor_the_quality_of_demonstrations_change_them():
    policy, teacher = SentencePolicy(), QuotingDials(note_accuracy=0.0)
    weaker = DemonstrationDataModule(Levers(teacher=teacher), HintContext(), seed=7, pack_size=2)
    assert weaker.words_for(policy) == rollouts(seed=3).words_for(policy) == sentences(Levers(), HintContext())
    assert sentences(Levers(max_turns=3), HintContext()) != sentences(Levers(), HintContext())


def test_other_policies_read_words():
    data = RolloutDataModule(Levers(protocol="compact"), HintContext(protocol="compact"), TransformersEngine())
    assert data.words_for(TinyPolicy()) == data.words
    assert rollouts().words_for(TinyPolicy()) == ()


@each(("protocol", "named"), [("compact", r"data\.env is Levers"), ("natural", r"data\.context is HintContext")])
def test_fused_words_are_refused_where_they_are(protocol, named):
    data = RolloutDataModule(Levers(protocol=protocol), HintContext(protocol="compact"), TransformersEngine())
    said = r"; expected one whose words\(\) is empty.*data\.env\.protocol and data\.context\.protocol to natural"
    with pytest.raises(ConfigError, match=named + said):
        data.words_for(SentencePolicy())


def test_a_world_without_reference_players_is_refused():
    with pytest.raises(ConfigError, match=r"data\.env is WordWorld"):
        sentences(WordWorld(), HintContext())


@pytest.mark.slow
def test_two_updates_of_a_small_fit_have_drift_0_and_equal_log_probs(monkeypatch):
    # a random model never answers in form: with the same reward for all there would be nothing to train
    monkeypatch.setattr(code_labels, "code_of", lambda response, noun, num: (1 + len(response) % num, ""))
    torch.manual_seed(0)
    data, updates = rollouts(group_size=4), Updates()
    trainer(updates, WeightSync()).fit(GRPOModule(SentencePolicy(**SMALL), lr=1e-3), data)
    assert len(updates.values) == 2
    assert max(update["train/logprob_gap"] for update in updates.values) < 1e-4
    assert [batch.figures["rollout/token_drift"] for batch in updates.batches] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("token_budget", [1500, pytest.param(8192, marks=pytest.mark.soak)])
def test_a_warm_start_in_micro_batches_is_the_same_training(token_budget):
    losses = []
    for budget in (None, token_budget):
        torch.manual_seed(0)
        updates = Updates("warm_start/loss")
        module = WarmStartModule(SentencePolicy(**SMALL), warmup_updates=1, token_budget=budget)
        trainer(updates).fit(module, demonstrations(num_updates=4, packs_per_update=2, num_packs=8))
        losses.append([update["warm_start/loss"] for update in updates.values])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[0][-1] < 0.9 * losses[0][0]
