"""Peak extra memory and time of log-probs with gradient at a vocabulary of 152k: dense, in chunks that are kept, recomputed.

Each way runs in a process of its own; its memory is how far the peak resident size rises above that before it, with an
allocator that gives freed arrays back (glibc otherwise keeps holes of 0.3 GiB and more).

    PYTHONPATH=. python examples/studies/speed/bench_logprobs.py [--num_tokens 4096]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from cod_lightning.objective.logprobs import action_logprobs
from examples.studies.speed.results import Table, report
from tests.dense_logprobs import token_logprobs

VOCABULARY, WIDTH = 151_936, 64
WAYS = ("dense", "kept", "recomputed")


def case(num_tokens: int) -> tuple[torch.Tensor, torch.nn.Linear, torch.Tensor, torch.Tensor]:
    """Hidden states, output layer, ids and action mask of one row."""
    torch.manual_seed(0)
    hidden = torch.randn(1, num_tokens + 1, WIDTH, requires_grad=True)
    ids = torch.randint(0, VOCABULARY, (1, num_tokens + 1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    return hidden, torch.nn.Linear(WIDTH, VOCABULARY, bias=False), ids, mask


def run(way: str, num_tokens: int) -> None:
    """Forward and backward."""
    logprobs_of(way, *case(num_tokens)).sum().backward()


def logprobs_of(
    way: str, hidden: torch.Tensor, layer: torch.nn.Linear, ids: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """By that way."""
    if way == "dense":
        return token_logprobs(layer(hidden), ids)
    return action_logprobs(hidden, layer, ids, mask, recompute=way == "recomputed")[0]


def measure(way: str, num_tokens: int) -> dict[str, float]:
    """Peak extra GiB and seconds, in a child process."""
    command = [sys.executable, __file__, "--way", way, "--num_tokens", str(num_tokens)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


def _child(way: str, num_tokens: int) -> None:
    torch.set_num_threads(1)
    run("recomputed", 16)  # whatever torch loads on first use
    before, begun = peak_kib(), time.perf_counter()
    run(way, num_tokens)
    print(json.dumps({"extra_gib": (peak_kib() - before) / 2**20, "time_s": time.perf_counter() - begun}))


def peak_kib() -> int:
    """Of this program; the kernel's `ru_maxrss` would begin with the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    """A row for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--num_tokens", type=int, default=4096)
    asked = parser.parse_args()
    if asked.way is not None:
        return _child(asked.way, asked.num_tokens)
    rows = [{"way": way, **measure(way, asked.num_tokens)} for way in WAYS]
    note = f"{VOCABULARY:,} words, {asked.num_tokens:,} tokens, width {WIDTH}, float32, one thread."
    return report(Table(name="log-probs at a large vocabulary", about=__doc__.splitlines()[0], note=note, rows=rows))


if __name__ == "__main__":
    main()
