"""One torch thread (two spinning ones collapse when another process is busy), few random examples, and a cache of its own."""

import gc
import os

import pytest
from hypothesis import settings

os.environ["JSONARGPARSE_DEPRECATION_WARNINGS"] = "off"  # LightningCLI 2.6 calls what jsonargparse 4.53 has renamed
os.environ.setdefault("MKL_CBWR", "AUTO")  # as commands set it, which tests fork off this process, where MKL has begun
settings.register_profile("quick", max_examples=15, deadline=None)
settings.register_profile("full", max_examples=300, deadline=None)  # make soak
settings.load_profile("quick")
gc.disable()  # until all is imported and collected, a fifth of whose time goes into searches for garbage


def pytest_collection_finish() -> None:
    """What is imported and collected stays: no later search for garbage walks through its million objects."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _one_thread_and_a_cache_of_its_own(tmp_path_factory):
    """Warm starts of tests are not the user's; CI may name a cache to share between its steps."""
    import torch  # not by the process that only hands tests out to others

    torch.set_num_threads(1)
    os.environ.setdefault("COD_LIGHTNING_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def base(request, tmp_path_factory):
    """The folder of a tiny language model with the `BASE_WORDS` of the module, where it has some."""
    from tests.adapted import write_base

    return write_base(tmp_path_factory.mktemp("base"), words=getattr(request.module, "BASE_WORDS", None))
