"""How long something takes, on machines that also do other things."""

import time
from collections.abc import Callable

FAST_S = 0.12
"""Of the yardstick of `slowness`, on the machine whose seconds the README has."""


def quickest(function: Callable[[], object], times: int = 4) -> float:
    """The least CPU time of so many runs, in seconds."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        function()
        taken.append(time.process_time() - begun)
    return min(taken)


def slowness(clock: Callable[[], float] = time.perf_counter) -> float:
    """How many times as long as on a machine of 3 GHz a fixed piece of Python takes here and now by this clock, at least 1."""
    begun = clock()
    sum(k * k for k in range(2_000_000))
    return max(1.0, (clock() - begun) / FAST_S)
