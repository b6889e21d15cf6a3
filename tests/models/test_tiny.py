"""A policy from scratch over a closed vocabulary."""

from typing import Any

import pytest
import torch

from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models import PretrainedPolicy, TinyPolicy

SMALL = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}


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


def test_a_saved_policy_is_loaded_as_it_was(tmp_path):
    policy = TinyPolicy(**SMALL)
    tokenizer = policy.tokenizer(["a", "b"])
    model = policy.model(tokenizer)
    model.save_pretrained(tmp_path)
    again = TinyPolicy(**SMALL, weights=str(tmp_path)).model(tokenizer)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_fixed_embeddings_are_not_trained_and_everything_else_is_also_after_loading(tmp_path):
    policy = TinyPolicy(**SMALL, fixed_embeddings=True)
    tokenizer = policy.tokenizer(["a", "b"])
    model = policy.model(tokenizer)
    model.save_pretrained(tmp_path)
    for made in (model, TinyPolicy(**SMALL, fixed_embeddings=True, weights=str(tmp_path)).model(tokenizer)):
        assert {name for name, p in made.named_parameters() if not p.requires_grad} == {"model.embed_tokens.weight"}
    assert all(p.requires_grad for p in TinyPolicy(**SMALL).model(tokenizer).parameters())


def test_with_fixed_embeddings_heads_begin_by_looking_for_the_same_word_and_copying_it():
    policy = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=2, fixed_embeddings=True)
    model: Any = policy.model(policy.tokenizer(["a"]))
    attention = model.model.layers[0].self_attn
    assert torch.equal(attention.q_proj.weight, attention.k_proj.weight)
    plain: Any = TinyPolicy(**SMALL).model(TinyPolicy().tokenizer(["a"])).model.layers[0].self_attn
    assert torch.trace(attention.o_proj.weight @ attention.v_proj.weight) > 4
    assert abs(torch.trace(plain.o_proj.weight[:, :8] @ plain.v_proj.weight)) < 2


@pytest.mark.parametrize("words", [["a", "b", "c"], ["a", "c"], ["b", "a"]])
def test_weights_of_another_vocabulary_are_refused_also_where_it_is_as_large(words, tmp_path):
    policy = TinyPolicy(**SMALL)
    tokenizer = policy.tokenizer(["a", "b"])
    policy.model(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    other = TinyPolicy(**SMALL, weights=str(tmp_path))
    count = 6 + len(words)
    with pytest.raises(
        DataError, match=f"its vocabulary has 8 words, and those of this environment .* are {count} others"
    ):
        other.model(other.tokenizer(words))
    other.model(other.tokenizer(["a", "b"]))


def test_a_folder_without_weights_is_named(tmp_path):
    policy = TinyPolicy(**SMALL, weights=str(tmp_path))
    tokenizer = policy.tokenizer(["a"])
    with pytest.raises(DataError, match=r"model\.policy\.weights is .*config\.json"):
        policy.model(tokenizer)


def test_without_words_the_remedy_is_the_compact_protocol():
    with pytest.raises(ConfigError, match="protocol=compact"):
        TinyPolicy().tokenizer([])


@pytest.mark.parametrize("sizes", [{"hidden_size": 50}, {"num_kv_heads": 3}, {"num_heads": 0}, {"window": 0}])
def test_sizes_that_do_not_divide_are_refused_with_one_that_does(sizes):
    with pytest.raises(ConfigError, match="Set it to"):
        TinyPolicy(**sizes)


def test_a_checkpoint_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"model\.policy\.path is .*nowhere"):
        PretrainedPolicy(str(tmp_path / "nowhere")).tokenizer([])
