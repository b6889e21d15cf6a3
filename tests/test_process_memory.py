import ctypes

import pytest

from cod_lightning import process_memory
from cod_lightning.process_memory import give_back, resident
from cod_lightning.rollout.group import collected_by_growth

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")


@pytest.fixture
def gaps():
    """256 MiB that are freed but for pieces, which keep the heap as long as it is."""
    pieces = [bytes(2**16) for _ in range(4_096)]
    return pieces[::64]


def test_freed_memory_between_pieces_is_given_back_and_a_small_process_keeps_it(gaps):
    before = resident()
    give_back(least=2 * before)
    assert resident() > before - 2**27
    assert len(gaps) == 64
    before = resident()
    give_back(least=0)
    assert resident() < before - 2**27
    assert len(gaps) == 64


def test_a_rollout_begins_without_it(gaps, monkeypatch):
    monkeypatch.setattr(process_memory.give_back, "__defaults__", (0,))
    before = resident()
    with collected_by_growth():
        assert resident() < before - 2**27
    assert len(gaps) == 64
