"""Freed memory: a tensor takes the place of the one before it without asking the system for pages."""

import os
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys, torch
from cod_lightning.forward.freed_memory import keep_freed_memory
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
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's switch")
def test_tensors_take_the_pages_of_those_that_were_freed():
    """Twenty of 8 MB; as a huge page counts as one fault, the other side is not bounded by their number."""
    assert 10 * _faults("kept") < _faults("as it is")
