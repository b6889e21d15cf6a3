"""Decoding with a transformers model: continuous batching over all live dialogues, exact ids, in process.

Every iteration of `_pump` first lets all lifecycles that can go on hand in their next request, then feeds those requests' *new*
ids and the last token of every dialogue in flight in one forward pass, without padding. While few turns are over the others get a
token or two more, so that decoding and playing change places less often. No turn waits at a position; a dialogue's keys and values
stay in its slot until the episode releases it, and the beginning of its first prompt is copied where some slot has it.
"""

import asyncio
import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.beginnings import num_alike
from cod_lightning.engines.base import Completion, Request, digest
from cod_lightning.engines.turn_table import Slots, TurnTable
from cod_lightning.errors import EngineFailure
from cod_lightning.forward.last_layer import output_layer
from cod_lightning.forward.packed import PackedForward, Rows, packs, width_class
from cod_lightning.types import StopReason

if TYPE_CHECKING:
    from cod_lightning.forward.one_by_one import OneByOne

Ids = tuple[int, ...]
_WORTH_COPYING = 4
"""Fewest tokens that a dialogue takes over from another one's slot."""
_WORTH_ANSWERING = 1 / 3
"""Share of the turns in flight that is to be over before they are answered: changing between decoding and playing costs."""


class _Dialogue(Struct):
    """What the engine remembers of a dialogue: its slot and how many of its tokens are cached there."""

    slot: int
    num_cached: int = 0
    digest: int = 0
    """Of the cached ids: what the model really conditioned on."""


class _TurnInFlight(Struct, eq=False):
    """A request in flight."""

    request: Request
    dialogue: _Dialogue
    future: "asyncio.Future[Completion]"
    opening: Ids
    """Its prompt, where it opens the dialogue; empty later."""
    new_ids: Sequence[int] = ()
    """Of the prompt, what the cache lacks; known once it is fed."""
    prompt_digest: int = 0


class Openings:
    """Which slot of the cache begins with what, live or over: a new prompt goes on from the longest beginning computed before.

    Dialogues of one world begin with its rules, those of one lifecycle with its context, siblings with the same task. First prompts
    are kept in order, so that those most alike are neighbours.

    >>> openings = Openings()
    >>> openings.put(3, (5, 6, 7))
    >>> openings.put(0, (5, 6, 8, 9))
    >>> openings.longest((5, 6, 8, 1))
    (0, 3)
    """

    def __init__(self) -> None:
        self._in_order: list[tuple[Ids, int]] = []
        self._of: dict[int, Ids] = {}

    def put(self, slot: int, ids: Ids) -> None:
        """The slot holds these from its first column on."""
        self.drop(slot)
        self._of[slot] = ids
        insort(self._in_order, (ids, slot))

    def drop(self, slot: int) -> None:
        """The slot is about to be overwritten."""
        if (ids := self._of.pop(slot, None)) is not None:
            del self._in_order[bisect_left(self._in_order, (ids, slot))]

    def longest(self, ids: Ids) -> tuple[int, int]:
        """A slot that begins with as many of these ids as any, and how many; (0, 0) where no slot is in use."""
        at = bisect_left(self._in_order, (ids, -1))
        most, where = 0, 0
        for opening, slot in self._in_order[max(0, at - 1) : at + 1]:
            if (num := num_alike(opening, ids)) > most:
                most, where = num, slot
        return where, most


class Decoder:
    """Samples turns from one model.

    Args:
        model: A causal language model that no one else uses.
        stop_ids: Ids that end a turn.
        max_dialogues: Dialogues that hold a cache slot at a time; further ones wait for a free slot.
        prefill_tokens: New prompt tokens of one forward pass.
        window: Tokens of a dialogue at most; None: all positions of the model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        stop_ids: frozenset[int],
        max_dialogues: int,
        prefill_tokens: int,
        window: int | None,
    ) -> None:
        self.model, self.max_dialogues, self.prefill_tokens = model, max_dialogues, prefill_tokens
        self.forward: "PackedForward | OneByOne"
        if packs(model):
            self.forward = PackedForward(model)
        else:
            from cod_lightning.forward.one_by_one import OneByOne

            self.forward = OneByOne(model)
        self._stop_ids, self._window = stop_ids, window
        self.forget()

    def on(self, device: torch.device) -> "Decoder":
        """The same decoder on another device; not while dialogues are live."""
        model = self.model.to(device)  # pyright: ignore[reportArgumentType]
        return Decoder(model, self._stop_ids, self.max_dialogues, self.prefill_tokens, self._window)

    def forget(self) -> None:
        """Drop all dialogues: their caches belong to other weights, or to a loop that is gone."""
        self._table = TurnTable(self._stop_ids)
        self.dialogues: dict[str, _Dialogue] = {}
        """Those that are live."""
        self._begin_cache()
        self._free_slots: list[int] = list(range(self.max_dialogues))
        """A heap: live dialogues stay side by side, where the cache is read without a copy."""
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._joining: list[_TurnInFlight] = []
        self._decoding: dict[int, _TurnInFlight] = {}
        """By slot."""
        self._over: list[_TurnInFlight] = []
        self._pumping: asyncio.Task[None] | None = None

    def _begin_cache(self) -> None:
        """Nothing is cached; live dialogues are computed again from their beginning."""
        self._cache: Any = self.forward.new_cache(self.max_dialogues, self._window)
        self._openings = Openings()
        for dialogue in self.dialogues.values():
            dialogue.num_cached = dialogue.digest = 0

    def weights_changed(self) -> None:
        """What is cached is of other weights."""
        self._openings = Openings()

    async def sample(self, request: Request) -> Completion:
        """One turn, without its policy version; joins the batch after a few tokens of it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        self._waiting.append((request, future))
        self._keep_pumping(loop)
        return await future

    def release(self, dialogue: str) -> None:
        """Free the dialogue's slot for a waiting turn."""
        if known := self.dialogues.pop(dialogue, None):
            heapq.heappush(self._free_slots, known.slot)
            if self._waiting:
                self._keep_pumping(asyncio.get_running_loop())

    def _keep_pumping(self, loop: asyncio.AbstractEventLoop) -> None:
        last = self._pumping
        if last is None or last.get_loop() is not loop:
            self._openings = Openings()  # no rollout's rounding depends on what was played before it
        elif not last.done():
            return
        self._pumping = loop.create_task(self._pump())

    async def _pump(self) -> None:
        """Prefill and decode until no turn can go on; an exception reaches all waiting turns.

        Who waits for a slot while all are held by dialogues whose worlds take their time is woken by `release`.
        """
        try:
            while True:
                await asyncio.sleep(0)  # every lifecycle that can go on now hands in its next request
                if self._pumping is not asyncio.current_task():  # forgotten
                    return
                for slot in [slot for slot, turn in self._decoding.items() if turn.future.done()]:
                    del self._decoding[slot]  # cancelled: not its own any more
                self._joining = self._admit()
                if not self._joining and not self._decoding:
                    return
                opening = [turn for turn in self._joining if turn.opening]
                self._recall(opening)
                for in_flight, joining in self._passes():
                    self._advance(in_flight, joining)
                for turn in opening:
                    self._openings.put(turn.dialogue.slot, turn.opening)
                self._decoding |= {turn.dialogue.slot: turn for turn in self._joining}
                self._joining = []
                self._decode_on()
                self._deliver()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        failure = error if isinstance(error, EngineFailure) else EngineFailure(f"{type(error).__name__}: {error}")
        futures = [future for _, future in self._waiting]
        futures += [turn.future for turn in (*self._decoding.values(), *self._joining, *self._over)]
        self._waiting, self._decoding, self._joining, self._over = [], {}, [], []
        self._begin_cache()  # the pass that ended half-way, such as in want of memory, may have left anything there
        for future in futures:
            if not future.done():
                future.set_exception(failure)

    def _admit(self) -> list[_TurnInFlight]:
        """Waiting requests that have, or can get, a slot."""
        joined: list[_TurnInFlight] = []
        still_waiting = []
        for request, future in self._waiting:
            if future.done():  # cancelled by its caller, who has released the dialogue
                continue
            dialogue = self.dialogues.get(request.dialogue)
            if dialogue is None and self._free_slots:
                dialogue = self.dialogues[request.dialogue] = _Dialogue(slot=heapq.heappop(self._free_slots))
            if dialogue is None:
                still_waiting.append((request, future))
            else:
                opening = () if dialogue.num_cached else tuple(request.prompt_ids)
                joined.append(_TurnInFlight(request, dialogue, future, opening))
        self._waiting = still_waiting
        return joined

    @torch.inference_mode()
    def _recall(self, opening: list[_TurnInFlight]) -> None:
        """Copy what dialogues open with from the slots that begin most alike."""
        if not self._cache.takes_beginnings:
            return
        sources: list[int] = []
        begun: list[_Dialogue] = []
        for turn in opening:
            ids, dialogue = turn.opening, turn.dialogue
            slot, num = self._openings.longest(ids[:-1])  # the last one is fed: what follows it has to be predicted
            if num >= _WORTH_COPYING:
                dialogue.num_cached, dialogue.digest = num, digest(ids[:num])
                sources.append(slot)
                begun.append(dialogue)
        if begun:
            most = max(dialogue.num_cached for dialogue in begun)  # what is too much for others they overwrite
            self._cache.copy(np.array(sources), np.array([dialogue.slot for dialogue in begun]), most)
        for turn in opening:
            self._openings.drop(turn.dialogue.slot)

    def _passes(self) -> Iterable[tuple[Slots, list[_TurnInFlight]]]:
        """Turns to feed in one pass each: those in flight and the narrowest of those that join, then what is left of these."""

        def shape(turn: _TurnInFlight) -> tuple[int, int, int]:
            return width_class(len(turn.new_ids)), len(turn.request.prompt_ids), turn.dialogue.slot

        for turn in self._joining:
            turn.new_ids = turn.request.prompt_ids[turn.dialogue.num_cached :]
        joining: list[_TurnInFlight] = []
        in_flight, num_ids = self._in_flight(), 0
        for turn in sorted(self._joining, key=shape):
            num_new = len(turn.new_ids)
            num_ids += num_new
            if joining and num_ids > self.prefill_tokens:
                yield in_flight, joining
                joining, in_flight, num_ids = [], in_flight[:0], num_new
            joining.append(turn)
        yield in_flight, joining

    @torch.inference_mode()
    def _advance(self, slots: Slots, joining: list[_TurnInFlight]) -> None:
        """One more token for turns in flight, and the first for those that join, by their shape: whose caches get their prompts."""
        last_ids, columns = self._table.next_inputs(slots)
        order = columns.argsort(kind="stable")  # those alike stay side by side, where they are read without a copy
        slots, last_ids, columns = slots[order], last_ids[order], columns[order]
        if not joining:
            self._table.sample(slots, self._logits(Rows(slots, columns, np.ones_like(slots), last_ids)))
            return
        first, alike = _opened_alike(joining)
        joined, fed = _slots(joining), [joining[i] for i in first]
        starts = [turn.dialogue.num_cached for turn in fed]
        lengths = [len(turn.new_ids) for turn in fed]
        new_ids = list(chain.from_iterable(turn.new_ids for turn in fed))
        logits = self._logits(
            Rows(
                slots=np.concatenate([slots, joined[first]]),
                starts=np.concatenate([columns, np.array(starts, np.int64)]),
                lengths=np.concatenate([np.ones_like(slots), np.array(lengths, np.int64)]),
                ids=np.concatenate([last_ids, np.array(new_ids, np.int64)]),
            )
        )
        if len(first) < len(joining):
            again = [i for i, row in enumerate(alike) if first[row] != i]
            most = max(len(joining[i].opening) for i in again)
            self._cache.copy(joined[first][alike][again], joined[again], most)
            which = torch.tensor([*range(len(slots)), *(len(slots) + row for row in alike)], device=logits.device)
            logits = logits[which]
        for turn in joining:
            dialogue = turn.dialogue
            dialogue.num_cached += len(turn.new_ids)
            turn.prompt_digest = dialogue.digest = digest(turn.new_ids, dialogue.digest)
        self._table.begin(joined, [turn.request for turn in joining])
        self._table.sample(np.concatenate([slots, joined]), logits)

    def _logits(self, rows: Rows) -> Tensor:
        """Of what follows each row over the slots' caches: [b, V]."""
        return output_layer(self.model)(self.forward(rows, self._cache))

    def _decode_on(self) -> None:
        """Set aside what is over; while that is little, the others get some more tokens first."""
        slots = self._in_flight()
        for further in range(1 + self.forward.most_further):
            if further:
                self._advance(slots, [])
            over = self._table.over(slots)
            self._over += [self._decoding.pop(slot) for slot in slots[over].tolist()]
            slots = slots[~over]
            if len(self._over) >= _WORTH_ANSWERING * (len(self._over) + len(self._decoding)):
                return

    def _in_flight(self) -> Slots:
        """Slots of the turns in flight, in order."""
        return np.sort(np.fromiter(self._decoding, np.int64, len(self._decoding)))

    def _deliver(self) -> None:
        """Resolve the turns that are over."""
        sampled = self._table.sampled(_slots(self._over))
        for turn, (ids, logprobs) in zip(self._over, sampled, strict=True):
            dialogue = turn.dialogue
            if fed := ids[:-1]:
                dialogue.num_cached += len(fed)
                dialogue.digest = digest(fed, dialogue.digest)
            turn.future.set_result(
                Completion(
                    action_ids=ids,
                    behaviour_logprobs=logprobs,
                    stop=StopReason.STOP if ids[-1] in self._stop_ids else StopReason.LENGTH,
                    policy_version=-1,
                    prompt_digest=turn.prompt_digest,
                )
            )
        self._over = []


def _opened_alike(turns: Sequence[_TurnInFlight]) -> tuple[list[int], list[int]]:
    """Turns to compute, and for every turn which of those has its state: siblings open their first dialogue with one prompt."""
    known: dict[tuple[int, ...] | int, int] = {}
    first: list[int] = []
    alike: list[int] = []
    for i, turn in enumerate(turns):
        alike.append(known.setdefault(turn.opening or i, len(first)))
        if alike[-1] == len(first):
            first.append(i)
    return first, alike


def _slots(turns: Sequence[_TurnInFlight]) -> Slots:
    return np.array([turn.dialogue.slot for turn in turns], np.int64)
