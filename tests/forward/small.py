"""Sizes of the models that these tests make."""

SMALL = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 16,
    "head_dim": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
