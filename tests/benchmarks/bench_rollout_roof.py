"""Rollout against its roof: the same forward passes, replayed from a record, with nothing else around them.

    PYTHONPATH=. python tests/benchmarks/bench_rollout_roof.py [--lifecycles 8 32 256 1024] [--repeats 5] [--threads 2]

Whole lifecycles of the quick start's warm start on 3x3 lakes. *Roof*: a bare loop over the batches of ids that the engine fed,
prefills and ragged ends included, prepared beforehand: forward pass and output layer, no sampling, no dialogue, no world.
*Shared out*: the same packs played by as many processes as there are threads, a thread each, as ranks of `trainer.devices` share
them out, and the record of what those fed replayed likewise. *Packed*: a plain decode of as many tokens with transformers' own
cache, all rows alike, nothing ragged and nothing prefilled: what no rollout of unequal dialogues can have. *Again every turn*: the
other end, `model.generate` on the whole prompts. One repeat measures each of them, on packs of its own; figures are generated
tokens a second, shares are within a repeat.
"""

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from cod_lightning.engines.slots import SlotCache
from cod_lightning.engines.transformers import TransformersEngine, output_logits
from cod_lightning.forward.last_layer import read_only_at
from cod_lightning.types import Pack
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


class Job(NamedTuple):
    """A rollout, or what of it is measured."""

    what: str
    first: int
    packs: int
    seed: int


class Player:
    """The quick start's policy behind a recording engine, and behind one that does everything again."""

    def __init__(self, threads: int) -> None:
        self.start = QuickStart(threads)
        self.engine = Recorder()
        self.engine.bind(self.start.model, self.start.chat.stop_ids)
        self.engine.update_weights(self.start.model.state_dict().items(), 0)
        self.again = GenerateEngine(self.start.model, self.start.chat.end_of_turn, self.start.chat.pad_id)
        self.model: Any = self.engine._model
        self.packs: list[Pack] = []

    def do(self, job: Job) -> int:
        """Tokens generated."""
        if job.what == "roof":
            replay(self.model, self.engine.passes, SlotCache())
            return 0
        self.engine.recording = job.what == "record"
        if self.engine.recording:
            self.engine.passes, self.packs = [], self.start.packs(job.packs, first=job.first)
        engine = self.again if job.what == "again" else self.engine
        return num_sampled(self.start.play(engine, self.packs, SIBLINGS, job.seed))


def _serve(pipe: Connection) -> None:
    player = Player(1)
    pipe.send(0)
    while True:
        pipe.send(player.do(pipe.recv()))


class Shared:
    """Players in processes of their own, a thread each, which share a job's packs out."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for _ in range(count):
            own, other = context.Pipe()
            self.processes.append(context.Process(target=_serve, args=(other,), daemon=True))
            self.processes[-1].start()
            self.pipes.append(own)
        for pipe in self.pipes:
            pipe.recv()

    def do(self, job: Job) -> int:
        """Tokens generated by all of them; nobody is waited for but at the end."""
        ends = [job.packs * n // len(self.pipes) for n in range(len(self.pipes) + 1)]
        for pipe, begin, end in zip(self.pipes, ends[:-1], ends[1:], strict=True):
            pipe.send(job._replace(first=job.first + begin, packs=end - begin))
        return sum(pipe.recv() for pipe in self.pipes)

    def end(self) -> None:
        """They know nothing that is worth keeping."""
        for process in self.processes:
            process.kill()


def seconds(by: Player | Shared, job: Job) -> tuple[float, int]:
    """And tokens."""
    begun = time.perf_counter()
    tokens = by.do(job)
    return time.perf_counter() - begun, tokens


def measured(single: Player, shared: Shared, count: int, repeat: int) -> dict[str, float]:
    """Generated tokens a second of everybody, on packs of this repeat."""
    job = Job("record", repeat * 1000, count // SIBLINGS, repeat)
    single.do(job)
    shared.do(job)
    took, tokens = seconds(single, job._replace(what="ours"))
    speed = {"ours": tokens / took, "roof": tokens / seconds(single, job._replace(what="roof"))[0]}
    took, tokens_shared = seconds(shared, job._replace(what="ours"))
    speed["shared_out"] = tokens_shared / took
    speed["shared_out_roof"] = tokens_shared / seconds(shared, job._replace(what="roof"))[0]
    speed["packed"] = tokens / packed(single.model, count, tokens, 48)
    took, tokens = seconds(single, job._replace(what="again"))
    return speed | {"again": tokens / took}


SHARES: Sequence[tuple[str, str]] = (
    ("ours", "roof"),
    ("shared_out", "roof"),
    ("shared_out", "shared_out_roof"),
    ("ours", "packed"),
    ("ours", "again"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lifecycles", type=int, nargs="+", default=[8, 32, 256, 1024])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    single, shared = Player(args.threads), Shared(args.threads)
    rows = []
    for count in args.lifecycles:
        found = [measured(single, shared, count, repeat) for repeat in range(args.repeats + 1)][
            1:
        ]  # the first warms up
        shares = {f"{a}_of_{b}": spread([one[a] / one[b] for one in found]) for a, b in SHARES}
        rows.append(
            {
                "lifecycles": count,
                **{f"{name}_tokens_s": spread([one[name] for one in found]) for name in found[0]},
                **shares,
            }
        )
    shared.end()
    told(Table(name="rollout against its roof", about=(__doc__ or "").splitlines()[0], rows=rows))


if __name__ == "__main__":
    main()
