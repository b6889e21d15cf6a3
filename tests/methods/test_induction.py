"""A policy that begins as a copier from context."""

import torch

from cod_lightning.methods.induction import InductionHeads
from cod_lightning.models import TinyPolicy

INDUCTION = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4, "start": InductionHeads()}


def test_with_induction_embeddings_stay_and_everything_else_is_trained_also_after_loading(tmp_path):
    tokenizer = TinyPolicy(**INDUCTION).tokenizer(["a", "b"])
    model = TinyPolicy(**INDUCTION).model(tokenizer)
    model.save_pretrained(tmp_path)
    again = TinyPolicy(**INDUCTION, weights=str(tmp_path)).model(tokenizer)
    for made in (model, again):
        assert {name for name, p in made.named_parameters() if not p.requires_grad} == {"model.embed_tokens.weight"}
    assert again.config.rope_parameters == model.config.rope_parameters
    assert all(
        p.requires_grad
        for p in TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1).model(tokenizer).parameters()
    )


def test_with_induction_an_untrained_model_goes_on_as_after_the_last_two_words_before_and_not_as_after_the_last_alone():
    """Half of the time; a guess would be right once in 200."""
    policy = TinyPolicy(**INDUCTION | {"hidden_size": 128})
    torch.manual_seed(0)
    model = policy.model(policy.tokenizer([f"word{i}" for i in range(200)])).eval()
    said = {"after both": 0, "after the last": 0}
    for _ in range(40):
        first, second, shared, one, other, *between = (torch.randperm(190) + 10)[:30].tolist()
        ids = [first, shared, one, *between[:12], second, shared, other, *between[12:], first, shared]
        with torch.no_grad():
            next_word = int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        said["after both"] += next_word == one
        said["after the last"] += next_word == other
    assert said["after both"] > 15
    assert said["after the last"] <= 1
