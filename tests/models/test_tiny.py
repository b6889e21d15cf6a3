"""A policy from scratch over a closed vocabulary."""

import pytest
import torch

from cod_lightning.errors import CodLightningError, ConfigError, DataError
from cod_lightning.models import PretrainedPolicy, TinyPolicy

SMALL = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}


@pytest.fixture
def saved(tmp_path):
    """A policy of two words whose weights and tokenizer are in this folder: model and tokenizer."""
    policy = TinyPolicy(**SMALL)
    tokenizer = policy.tokenizer(["a", "b"])
    model = policy.model(tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return model, tokenizer


def test_every_word_is_one_token_and_others_are_unknown():
    tokenizer = TinyPolicy().tokenizer(["3=up", "<answer>Direction_3</answer>", "@(0,1)"])
    ids = tokenizer("3=up @(0,1) nonsense <answer>Direction_3</answer>", add_special_tokens=False)["input_ids"]
    assert len(ids) == 4
    assert ids[2] == tokenizer.unk_token_id
    assert tokenizer.decode([ids[0], ids[1], ids[3]]) == "3=up @(0,1) <answer>Direction_3</answer>"


def test_the_default_policy_has_a_third_of_a_million_weights_and_ties_its_embeddings():
    policy = TinyPolicy()
    model = policy.model(policy.tokenizer(["a", "b"]))
    assert 250_000 < sum(p.numel() for p in model.parameters()) < 350_000
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_a_saved_policy_is_loaded_as_it_was(saved, tmp_path):
    model, tokenizer = saved
    again = TinyPolicy(**SMALL, weights=str(tmp_path)).model(tokenizer)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


@pytest.mark.parametrize("words", [["a", "b", "c"], ["a", "c"], ["b", "a"]])
@pytest.mark.usefixtures("saved")
def test_weights_of_another_vocabulary_are_refused_also_where_it_is_as_large(words, tmp_path):
    other = TinyPolicy(**SMALL, weights=str(tmp_path))
    count = 6 + len(words)
    with pytest.raises(DataError, match=f"has 8 words, and those of this environment .* are {count} others"):
        other.model(other.tokenizer(words))
    other.model(other.tokenizer(["a", "b"]))


@pytest.mark.parametrize("size", ["hidden_size", "num_layers", "intermediate_size"])
def test_weights_of_other_sizes_are_refused_since_sizes_would_be_those_of_the_weights(size, saved, tmp_path):
    tokenizer = saved[1]
    other = TinyPolicy(**SMALL | {size: 2 * SMALL[size]}, weights=str(tmp_path))
    with pytest.raises(ConfigError, match=rf"model\.policy\.{size} is \d+; expected {SMALL[size]}, as the weights in"):
        other.model(tokenizer)
    assert TinyPolicy(weights=str(tmp_path)).model(tokenizer).config.hidden_size == SMALL["hidden_size"]


def test_what_is_not_there_is_named(tmp_path):
    policy = TinyPolicy(**SMALL, weights=str(tmp_path))
    for asked, said in (
        (lambda: policy.model(policy.tokenizer(["a"])), r"model\.policy\.weights is .*config\.json"),
        (lambda: policy.tokenizer([]), "protocol=compact"),
        (
            lambda: PretrainedPolicy(str(tmp_path / "nowhere")).tokenizer([]),
            r"model\.policy\.path is .*nowhere; expected a folder of a model",
        ),
    ):
        with pytest.raises(CodLightningError, match=said):
            asked()
