"""An update against its roof: forward and backward of the same rows without padding, and nothing else.

    PYTHONPATH=. python tests/benchmarks/bench_training_roof.py [--lifecycles 32 256] [--repeats 7] [--threads 2]

Rows are those of a recorded rollout of the quick start. *Ours* is `training_step`: credit, choice of rows, micro-batches, loss,
backward, clipping, optimizer and schedule, figures to log. *Roof*: rows of one length together, at most as many tokens at once as
ours, the sum of action tokens' log-probs, backward; no optimizer. A repeat measures both.
"""

import argparse
import time
from collections import defaultdict
from typing import Any

import lightning as L
import torch
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.objective.batch import Batch, collate, credit_table
from cod_lightning.objective.returns import EpisodeCredit
from cod_lightning.rollout.segments import segments_of
from modules.grpo import GRPOModule
from tests.benchmarks.quick_start import QuickStart
from tests.benchmarks.recorded import train_on
from tests.benchmarks.results import Table, report, spread

SIBLINGS, BUDGET = 8, 8192


def alike(batch: Batch, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Ids and action masks of rows of one length, without padding."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for row in rows.tolist():
        by_length[int(batch.lengths[row])].append(row)
    return [
        (batch.token_ids[part, :length], batch.action_mask[part, :length])
        for length, members in sorted(by_length.items())
        for part in torch.tensor(members).split(max(1, BUDGET // length))
    ]


def roof(model: PreTrainedModel, parts: list[tuple[Tensor, Tensor]]) -> float:
    """Seconds of forward and backward."""
    begun = time.perf_counter()
    for ids, mask in parts:
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        predicting = mask[:, 1:]
        scores = model.get_output_embeddings()(hidden[:, :-1][predicting])
        torch.nn.functional.cross_entropy(scores, ids[:, 1:][predicting], reduction="sum").backward()
    model.zero_grad()
    return time.perf_counter() - begun


class Clock(L.Callback):
    """Seconds of ours and of the roof, update by update."""

    def __init__(self) -> None:
        self.ours: list[float] = []
        self.roofs: list[float] = []
        self.tokens = 0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Batch, batch_idx: int) -> None:
        self.begun = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.ours.append(time.perf_counter() - self.begun)
        advantages = pl_module.advantages(batch.credit).spread(batch)
        rows = advantages.abs().amax(dim=1).gt(1e-6).nonzero().squeeze(1)
        self.tokens = int(batch.lengths[rows].sum())
        assert self.tokens == pl_module.last_update.num_tokens, "the roof is measured on other rows"
        self.roofs.append(roof(pl_module.model, alike(batch, rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lifecycles", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    start, engine = QuickStart(args.threads), TransformersEngine(max_dialogues=1024)
    engine.bind(start.model, start.chat.stop_ids)
    rows = []
    for count in args.lifecycles:
        groups = start.play(engine, start.packs(count // SIBLINGS), SIBLINGS, seed=1)
        index = {group.pack.id: g for g, group in enumerate(groups)}
        batch = collate(segments_of(groups), credit_table(groups), index, pad_id=start.chat.pad_id)
        clock = Clock()
        module = GRPOModule(policy=start.policy, credit=EpisodeCredit(), lr=1e-6, token_budget=BUDGET)
        train_on(batch, start.chat, module, clock, args.repeats + 2)
        ours, roofs = clock.ours[2:], clock.roofs[2:]  # two warm up
        rows.append(
            {
                "lifecycles": count,
                "tokens": clock.tokens,
                "ours_tokens_s": spread([clock.tokens / s for s in ours]),
                "roof_tokens_s": spread([clock.tokens / s for s in roofs]),
                "ours_of_roof": spread([b / a for a, b in zip(ours, roofs, strict=True)]),
            }
        )
    report(Table(name="training against its roof", about=__doc__.splitlines()[0], rows=rows))


if __name__ == "__main__":
    main()
