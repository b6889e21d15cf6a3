"""Forward and backward of an update's micro-batches without padding, against padded rows, on a CPU.

    PYTHONPATH=. python tests/benchmarks/unpadded.py [--repeats 5]

Rows have the lengths of `padding.py`, a sixteenth as long, drawn for 32 rows, in micro-batches of 1,024 tokens; a Qwen3 of 0.8
million parameters in float32, one thread, seconds of the processor. The beginnings that rows share are not there. A repeat
measures both.
"""

import argparse
import random
import statistics
import time
from types import SimpleNamespace
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cod_lightning.forward import unpadded
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.markdown import table
from cod_lightning.modules.policy import PolicyModule
from cod_lightning.training.update import split_by_token_budget
from tests.benchmarks.padding import LENGTHS

SIZES: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 384, "num_attention_heads": 4}
SHORTER, ROWS, BUDGET = 16, 32, 1024


def parts_of(lengths: list[int]) -> list[SimpleNamespace]:
    """Rows of made-up ids, a fifth of them sampled, in micro-batches."""
    found = []
    for part in split_by_token_budget(torch.tensor(lengths), torch.arange(len(lengths)), BUDGET):
        of_part = torch.tensor(lengths)[part]
        ids = torch.randint(1000, (len(part), int(of_part.max())))
        mask = (torch.rand(ids.shape) < 0.2) & (torch.arange(ids.shape[1]) < of_part[:, None])
        found.append(SimpleNamespace(token_ids=ids, action_mask=mask, lengths=of_part))
    return found


def seconds(model: Qwen3ForCausalLM, parts: list[SimpleNamespace], *, without: bool) -> float:
    """Of forward and backward."""
    setattr(model, unpadded._KNOWN, without)
    module = SimpleNamespace(trainer=SimpleNamespace(strategy=None))
    begun = time.process_time()
    for part in parts:
        PolicyModule._scored(module, model, part)[0].sum().backward()  # pyright: ignore
    model.zero_grad()
    return time.process_time() - begun


def _cell(ratios: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES, vocab_size=1000, num_key_value_heads=2, head_dim=32))
    use_grouped_attention(model)
    cells = []
    for name, length in LENGTHS.items():
        drawn = random.Random(0)
        parts = parts_of([max(2, int(length(drawn)) // SHORTER) for _ in range(ROWS)])
        num = [sum(int(p.lengths.sum()) for p in parts), sum(p.token_ids.numel() for p in parts)]
        ratios = []
        for repeat in range(1 + asked.repeats):
            without, padded = (seconds(model, parts, without=way) for way in (True, False))
            ratios += [without / padded] if repeat else []  # the first warms up
        cells.append([name, f"{100 * (1 - num[0] / num[1]):.1f} %", _cell(ratios)])
    print(table([f"tokens of a row, times {SHORTER}", "padding", "time without it, of the time with it"], cells))


if __name__ == "__main__":
    main()
