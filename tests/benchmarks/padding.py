"""How much of an update is padding: tokens of its micro-batches, over tokens of its rows. Nothing is computed but that.

    PYTHONPATH=. python tests/benchmarks/padding.py

Episodes of one row each, whose lengths are drawn: all alike within a tenth, uniform, with a long tail, or of two kinds (solve
episodes of 2,000 tokens and updates of 300). The beginnings that rows share, computed once, are not taken into account. In brackets
what is left where a model takes rows without padding: that of micro-batches with too little to leave it out.
"""

import random
from collections.abc import Callable

import torch

from cod_lightning.forward.unpadded import Unpadded
from cod_lightning.markdown import table
from cod_lightning.training.update import split_by_token_budget

LENGTHS: dict[str, Callable[[random.Random], float]] = {
    "1,800 to 2,200": lambda drawn: drawn.uniform(1800, 2200),
    "500 to 4,000": lambda drawn: drawn.uniform(500, 4000),
    "lognormal, median 1,000, spread 0.8": lambda drawn: min(12_000, drawn.lognormvariate(0.0, 0.8) * 1000),
    "2,000 and 300, a tenth up or down": lambda drawn: drawn.uniform(0.9, 1.1) * drawn.choice((2000, 300)),
}
BUDGETS = (8192, 16_384, 65_536)


def padding(lengths: list[int], budget: int) -> tuple[float, float]:
    """Share of the tokens that go through the model which are padding: where rows are padded, and where it is left out."""
    rows = torch.tensor(lengths)
    parts = [rows[part] for part in split_by_token_budget(rows, torch.arange(len(rows)), budget)]
    padded = [len(part) * int(part.max()) for part in parts]
    unpadded = [
        int(part.sum()) if Unpadded(part, int(part.max())).pays else tokens
        for part, tokens in zip(parts, padded, strict=True)
    ]
    return 1 - sum(lengths) / sum(padded), 1 - sum(lengths) / sum(unpadded)


def main() -> None:
    cells = []
    for name, length in LENGTHS.items():
        for count in (32, 64, 128, 256, 1024):
            drawn = random.Random(0)
            runs = [[int(length(drawn)) for _ in range(count)] for _ in range(5)]
            shares = [torch.tensor([padding(run, budget) for run in runs]).mean(dim=0).tolist() for budget in BUDGETS]
            cells.append([name, f"{count:,}", *(f"{100 * both:.1f} ({100 * left:.1f}) %" for both, left in shares)])
    head = ["tokens of a row", "rows of an update", *(f"budget {budget:,}" for budget in BUDGETS)]
    print(table(head, cells))


if __name__ == "__main__":
    main()
