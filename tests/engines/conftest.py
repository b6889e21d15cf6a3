"""A policy of the sizes that a module of tests names as `TINY`, and its tokenizer."""

import pytest
import torch

from cod_lightning.models import TinyPolicy
from tests.stubs import WordWorld


@pytest.fixture(scope="module")
def tokenizer(request):
    return TinyPolicy(**request.module.TINY).tokenizer(WordWorld().words())


@pytest.fixture(scope="module")
def model(request, tokenizer):
    torch.manual_seed(0)
    return TinyPolicy(**request.module.TINY).model(tokenizer)
