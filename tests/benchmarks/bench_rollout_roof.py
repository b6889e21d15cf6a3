"""Rollout against its roof: the same forward passes, replayed from a record, with nothing else around them.

    PYTHONPATH=. python tests/benchmarks/bench_rollout_roof.py [--lifecycles 8 32 256 1024] [--repeats 5] [--threads 2]

Whole lifecycles of the quick start's warm start on 3x3 lakes. *Roof*: a bare loop over the batches of ids that the engine fed,
prefills and ragged ends included, prepared beforehand: forward pass and output layer, no sampling, no dialogue, no world. *Packed*:
a plain decode of as many tokens with transformers' own cache, all rows alike, nothing ragged and nothing prefilled: what no
rollout of unequal dialogues can have. *Again every turn*: the other end, `model.generate` on the whole prompts. One repeat measures
each of them, on packs of its own; figures are generated tokens a second, shares are within a repeat.
"""

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from cod_lightning.engines.slots import SlotCache
from cod_lightning.engines.transformers import TransformersEngine, output_logits
from cod_lightning.forward.last_layer import read_only_at
from tests.benchmarks.generate_engine import GenerateEngine
from tests.benchmarks.quick_start import QuickStart, num_sampled
from tests.benchmarks.results import Table, spread, told

SIBLINGS = 8


@dataclass
class Pass:
    """One forward pass of the engine."""

    slots: np.ndarray
    starts: Tensor
    ids: Tensor
    positions: Tensor
    visible: Tensor
    used: int
    last: Tensor


class Recorder(TransformersEngine):
    """Writes down what it feeds to the model."""

    def __init__(self) -> None:
        super().__init__(max_dialogues=1024)
        self.passes: list[Pass] = []
        self.recording = False

    def _logits(self, slots: np.ndarray, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Tensor:
        if self.recording:
            first, used = torch.from_numpy(starts), int((starts + lengths).max())
            positions = first[:, None] + torch.arange(ids.shape[1])
            self.passes.append(
                Pass(
                    slots=slots,
                    starts=first,
                    ids=torch.from_numpy(ids),
                    positions=positions,
                    visible=torch.arange(used) <= positions[:, :, None],
                    used=used,
                    last=torch.from_numpy(lengths - 1),
                )
            )
        return super()._logits(slots, ids, starts, lengths)


@torch.inference_mode()
def replay(model: PreTrainedModel, passes: list[Pass], cache: SlotCache) -> float:
    """Seconds of the record."""
    begun = time.perf_counter()
    for one in passes:
        width = one.ids.shape[1]
        cache.reserve(1 + int(one.slots.max()), one.used + width)
        cache.aim(one.slots, one.starts, width, one.used)
        with read_only_at(model, torch.arange(width) == one.last[:, None]):
            hidden = model.base_model(
                input_ids=one.ids,
                position_ids=one.positions,
                attention_mask=one.visible[:, None],
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
        output_logits(model, hidden[torch.arange(len(one.slots)), one.last])
    return time.perf_counter() - begun


@torch.inference_mode()
def packed(model: PreTrainedModel, num_rows: int, num_tokens: int, prompt: int) -> float:
    """Seconds to decode as many tokens in rows that all have the same prompt length."""
    ids = torch.zeros((num_rows, prompt), dtype=torch.long)
    cache = DynamicCache()
    model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
    begun = time.perf_counter()
    for _ in range(max(1, num_tokens // num_rows)):
        hidden = model.base_model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True).last_hidden_state
        output_logits(model, hidden[:, -1])
        cache.crop(prompt + 24 if cache.get_seq_length() > prompt + 24 else cache.get_seq_length())
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lifecycles", type=int, nargs="+", default=[8, 32, 256, 1024])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    start = QuickStart(args.threads)
    engine = Recorder()
    engine.bind(start.model, start.chat.stop_ids)
    engine.update_weights(start.model.state_dict().items(), 0)
    again = GenerateEngine(start.model, start.chat.end_of_turn, start.chat.pad_id)
    own: Any = engine._model
    rows = []
    for count in args.lifecycles:
        found: dict[str, list[float]] = {"ours": [], "roof": [], "packed": [], "again": []}
        for repeat in range(args.repeats + 1):
            packs = start.packs(count // SIBLINGS, first=repeat * 1000)
            speed = {}
            for name, by in (("recorded", engine), ("ours", engine), ("again", again)):
                engine.recording, engine.passes = name == "recorded", [] if name == "recorded" else engine.passes
                begun = time.perf_counter()
                groups = start.play(by, packs, SIBLINGS, seed=repeat)
                seconds = time.perf_counter() - begun
                tokens = num_sampled(groups)
                speed[name] = tokens / seconds
                if name == "ours":
                    speed["roof"] = tokens / replay(own, engine.passes, SlotCache())
                    speed["packed"] = tokens / packed(own, count, tokens, 48)
            if repeat:  # the first pass warms up
                for name, values in found.items():
                    values.append(speed[name])
        middle = {name: spread(values) for name, values in found.items()}
        rows.append(
            {
                "lifecycles": count,
                **{f"{name}_tokens_s": value for name, value in middle.items()},
                **{
                    f"ours_of_{name}": spread([a / b for a, b in zip(found["ours"], found[name], strict=True)])
                    for name in ("roof", "packed", "again")
                },
            }
        )
    told(Table(name="rollout against its roof", about=__doc__.splitlines()[0], rows=rows))


if __name__ == "__main__":
    main()
