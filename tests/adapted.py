"""A tiny random Qwen3 in a folder, and policies with an adapter over it, that tests share."""

from collections.abc import Sequence
from pathlib import Path

import torch

from cod_lightning.adapters import adapter_weights
from cod_lightning.contexts.base import Words, beside
from cod_lightning.models import LoRAPolicy, TinyPolicy
from tests.stubs import PlainContext, WordWorld

TINY = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 128, "window": 256}


def write_base(folder: Path, seed: int = 0, words: Sequence[str] | None = None) -> Path:
    """Model and tokenizer of these words; None: of `WordWorld`'s."""
    torch.manual_seed(seed)
    policy = TinyPolicy(**TINY)
    tokenizer = policy.tokenizer(
        WordWorld().words() + beside(PlainContext(), Words).words() if words is None else words
    )
    policy.model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def adapted(kind: type[LoRAPolicy], folder: Path, **options):
    """The policy's model, in float32 unless said otherwise, with an adapter that does something."""
    settings = {"path": str(folder), "rank": 4, "alpha": 8, "dtype": "float32", "window": 256} | options
    torch.manual_seed(0)  # of A, which is drawn
    policy = kind(**settings)
    model = policy.model(policy.tokenizer(()))
    step(model)
    return model


def step(model, seed: int = 0, size: float = 0.03) -> None:
    """What an optimizer would have done."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in adapter_weights(model).values():
            weight.add_(size * torch.randn(weight.shape, generator=noise))
