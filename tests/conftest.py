"""One torch thread (two spinning ones collapse when another process is busy), few random examples, and a cache of its own."""

import os

import pytest
import torch
from hypothesis import settings

os.environ["JSONARGPARSE_DEPRECATION_WARNINGS"] = "off"  # LightningCLI 2.6 calls what jsonargparse 4.53 has renamed
torch.set_num_threads(1)
settings.register_profile("quick", max_examples=15, deadline=None)
settings.register_profile("full", max_examples=300, deadline=None)  # make soak
settings.load_profile("quick")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Warm starts of tests are not the user's; CI may name a cache to share between its steps."""
    os.environ.setdefault("COD_LIGHTNING_CACHE", str(tmp_path_factory.mktemp("cache")))
