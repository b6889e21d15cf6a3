"""Rollout against its roof: a bare batched decode loop that replays the ids of the same rollout and does nothing else.

    PYTHONPATH=. python examples/studies/speed/bench_rollout_roof.py [--lifecycles 8 32 256 1024] [--repeats 5] [--threads 2]

Whole lifecycles of the quick start's warm start on 3x3 lakes. *Roof*: every dialogue's ids from the first one on, at the engine's
steps, in the rectangles that a batched loop has: tokens in flight in one pass, prompts of similar length in another, padded on the
right and prepared beforehand; forward pass and output layer, no sampling, no dialogue, no world. It has the engine's own layers:
attention written out, another RMSNorm, the last layer only where it is read. *Plain roof*: the same loop over the model as
transformers makes it, which shows what these layers give the roof. The engine itself packs rows into one pass without padding, and
copies what dialogues begin with from others that begin alike. *Own passes*: those very passes of the engine with nothing around
them; *own in rectangles*: what they feed, as the roof would feed it.
*Shared out*: the same packs played by as many processes as there are threads, a thread each, as ranks of `trainer.devices` share
them out, and the record of what those fed replayed likewise. *Even*: a plain decode of as many tokens with transformers' own
cache, all rows alike, nothing ragged and nothing prefilled: what no rollout of unequal dialogues can have. *Again every turn*: the
other end, `model.generate` on the whole prompts. One repeat measures each of them, on packs of its own; figures are generated
tokens a second, shares are within a repeat.
"""

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from cod_lightning.engines.decoder import Decoder
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.forward.last_layer import output_layer
from cod_lightning.forward.packed import Rows
from cod_lightning.types import Pack
from examples.studies.speed.generate_engine import GenerateEngine
from examples.studies.speed.quick_start import QuickStart, num_sampled
from examples.studies.speed.rectangles import RectangleCache, feed, rectangle
from examples.studies.speed.results import Table, report, spread

SIBLINGS = 8


class Recorder(Decoder):
    """Writes down what it feeds to the model, and what a loop would that takes over nothing from other dialogues."""

    recording = False

    def begin_record(self) -> None:
        """Nothing has been fed."""
        self.fed: list[Rows] = []
        self.whole: list[Rows] = []

    def _advance(self, slots: np.ndarray, joining: list[Any]) -> None:
        if self.recording:
            self.whole.append(self._rows(slots, joining))
        super()._advance(slots, joining)

    def _rows(self, slots: np.ndarray, joining: list[Any]) -> Rows:
        """Of this step, with the whole prompts of dialogues that begin."""
        last_ids, columns = self._table.next_inputs(slots)
        rows = [(slot, start, [last]) for slot, start, last in zip(slots, columns, last_ids, strict=True)]
        for turn in joining:
            start = 0 if turn.opening else turn.dialogue.num_cached
            rows.append((turn.dialogue.slot, start, list(turn.request.prompt_ids[start:])))
        rows.sort(key=lambda row: len(row[2]))
        places, starts, ids = zip(*rows, strict=True)
        lengths = np.array([len(row) for row in ids])
        return Rows(np.array(places), np.array(starts), lengths, np.array([i for row in ids for i in row]))

    def _logits(self, rows: Rows) -> Tensor:
        if self.recording:
            self.fed.append(rows)
        return super()._logits(rows)

    @torch.inference_mode()
    def feed_again(self) -> float:
        """Seconds of the same passes."""
        begun = time.perf_counter()
        for rows in self.fed:
            super()._logits(rows)
        return time.perf_counter() - begun


@torch.inference_mode()
def replay(model: PreTrainedModel, fed: list[Rows], whole: bool = False) -> float:
    """Seconds of the record in rectangles; `whole`: also of what is not read."""
    cache, passes = RectangleCache(), [rectangle(rows[part]) for rows in fed for part in rows.similar()]
    begun = time.perf_counter()
    for one in passes:
        feed(model, cache, one, whole)
    return time.perf_counter() - begun


@torch.inference_mode()
def even(model: PreTrainedModel, num_rows: int, num_tokens: int, prompt: int) -> float:
    """Seconds to decode as many tokens in rows that all have the same prompt length."""
    ids = torch.zeros((num_rows, prompt), dtype=torch.long)
    cache = DynamicCache()
    model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
    begun = time.perf_counter()
    for _ in range(max(1, num_tokens // num_rows)):
        hidden = model.base_model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True).last_hidden_state
        output_layer(model)(hidden[:, -1])
        cache.crop(prompt + 24 if cache.get_seq_length() > prompt + 24 else cache.get_seq_length())
    return time.perf_counter() - begun


class Job(NamedTuple):
    """What is done: *ours* plays a rollout of packs never seen before, *record* the same once more; the rest follows the record."""

    what: str
    first: int
    packs: int
    seed: int


class Done(NamedTuple):
    """How long it took, and how many tokens were generated (a replay: those of the rollout before it)."""

    seconds: float
    tokens: int

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


class Player:
    """The quick start's policy behind a recording engine, and behind one that does everything again."""

    def __init__(self, threads: int) -> None:
        self.start = QuickStart(threads)
        self.engine = TransformersEngine(max_dialogues=1024)
        self.engine.bind(self.start.model, self.start.chat.stop_ids)
        self.recorder: Any = self.engine.decoder
        self.recorder.__class__ = Recorder
        self.recorder.begin_record()
        self.engine.update_weights(self.start.model.state_dict().items(), 0)
        self.again = GenerateEngine(self.start.model, self.start.chat.end_of_turn, self.start.chat.pad_id)
        self.model: Any = self.recorder.model
        self.plain = self.start.policy.model(self.start.chat.tokenizer).eval()
        self.packs: list[Pack] = []
        self.tokens = 0

    def do(self, job: Job) -> Done:
        if job.what in ("roof", "own in rectangles"):
            return Done(
                replay(self.model, self.recorder.whole if job.what == "roof" else self.recorder.fed), self.tokens
            )
        if job.what == "plain roof":
            return Done(replay(self.plain, self.recorder.whole, whole=True), self.tokens)
        if job.what == "own passes":
            return Done(self.recorder.feed_again(), self.tokens)
        if job.what == "ours":
            self.packs = self.start.packs(job.packs, first=job.first)
        self.recorder.recording = job.what == "record"
        if self.recorder.recording:
            self.recorder.begin_record()
        engine = self.again if job.what == "again" else self.engine
        begun = time.perf_counter()
        groups = self.start.play(engine, self.packs, SIBLINGS, job.seed)
        took = time.perf_counter() - begun
        self.tokens = num_sampled(groups)
        return Done(took, self.tokens)


def _serve(pipe: Connection) -> None:
    player = Player(1)
    pipe.send(None)
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

    def do(self, job: Job) -> Done:
        """Begun together; the last one counts."""
        ends = [job.packs * n // len(self.pipes) for n in range(len(self.pipes) + 1)]
        for pipe, begin, end in zip(self.pipes, ends[:-1], ends[1:], strict=True):
            pipe.send(job._replace(first=job.first + begin, packs=end - begin))
        done = [pipe.recv() for pipe in self.pipes]
        return Done(max(one.seconds for one in done), sum(one.tokens for one in done))

    def end(self) -> None:
        """They know nothing that is worth keeping."""
        for process in self.processes:
            process.kill()


def measured(single: Player, shared: Shared, count: int, repeat: int) -> dict[str, float]:
    """Generated tokens a second of everybody, on packs of this repeat."""
    job = Job("ours", repeat * 1000, count // SIBLINGS, repeat)
    whats = ("ours", "record", "roof", "plain roof", "own in rectangles", "own passes")
    ours, _, roof, plain, rectangles, passes = (single.do(job._replace(what=what)) for what in whats)
    shared_out, _, shared_roof, shared_plain = (shared.do(job._replace(what=what)) for what in whats[:4])
    return {
        "ours": ours.speed,
        "roof": roof.speed,
        "plain_roof": plain.speed,
        "own_in_rectangles": rectangles.speed,
        "own_passes": passes.speed,
        "shared_out": shared_out.speed,
        "shared_out_roof": shared_roof.speed,
        "shared_out_plain_roof": shared_plain.speed,
        "even": ours.tokens / even(single.model, count, ours.tokens, 48),
        "again": single.do(job._replace(what="again")).speed,
    }


SHARES: Sequence[tuple[str, str]] = (
    ("ours", "roof"),
    ("ours", "plain_roof"),
    ("ours", "own_in_rectangles"),
    ("ours", "own_passes"),
    ("shared_out", "roof"),
    ("shared_out", "shared_out_roof"),
    ("shared_out", "shared_out_plain_roof"),
    ("ours", "even"),
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
        found = [measured(single, shared, count, repeat) for repeat in range(args.repeats + 1)][1:]  # one warms up
        shares = {f"{a}_of_{b}": spread([one[a] / one[b] for one in found]) for a, b in SHARES}
        rows.append(
            {
                "lifecycles": count,
                **{f"{name}_tokens_s": spread([one[name] for one in found]) for name in found[0]},
                **shares,
            }
        )
    shared.end()
    report(Table(name="rollout against its roof", about=(__doc__ or "").splitlines()[0], rows=rows))


if __name__ == "__main__":
    main()
