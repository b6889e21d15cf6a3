import ctypes
import os
import subprocess
import sys

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


_FAULTS = """
import resource, sys, torch
from cod_lightning.process_memory import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def use():
    first = [torch.ones(2_000_000) for _ in range(20)]
    return sum(float(t[0]) for t in first)
use(), use()
counts = []
for _ in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    use()
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(counts))
"""


def _faults(how: str) -> int:
    returned_at_once = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _FAULTS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=returned_at_once).stdout)


@pytest.mark.slow
def test_tensors_take_the_pages_of_those_that_were_freed():
    """Twenty of 8 MB; as a huge page counts as one fault, the other side is not bounded by their number."""
    assert 10 * _faults("kept") < _faults("as it is")
