"""The engine that decodes with a transformers model: continuous batching over all live dialogues, exact ids, in process.

Every iteration of `_pump` first lets all lifecycles that can go on hand in their next request, then feeds those requests' *new*
ids and the last token of every dialogue in flight in one forward pass, without padding. While few turns are over the others get a
token or two more, so that decoding and playing change places less often. No turn waits at a position; a dialogue's keys and values
stay in its slot until the episode releases it, and the beginning of its first prompt is copied where some slot has it.
"""

import asyncio
import copy
import heapq
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool
from msgspec import Struct
from torch import Tensor, nn
from transformers import PreTrainedModel

from cod_lightning.adapters import (
    adapter_scales,
    adapter_weights,
    adapters_by_name,
    choose_adapter,
    has_adapter,
    share_base,
)
from cod_lightning.engines.base import NO_MODEL, Completion, Engine, Request, digest
from cod_lightning.engines.openings import Openings
from cod_lightning.engines.turn_table import Slots, TurnTable
from cod_lightning.errors import EngineFailure, check_at_least
from cod_lightning.forward.last_layer import output_layer
from cod_lightning.forward.packed import PackedForward, Rows, packs, width_class
from cod_lightning.forward.rms_norm import use_rms_norm
from cod_lightning.types import StopReason

if TYPE_CHECKING:
    from cod_lightning.forward.one_by_one import OneByOne

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
    opening: tuple[int, ...]
    """Its prompt, where it opens the dialogue; empty later."""
    new_ids: Sequence[int] = ()
    """Of the prompt, what the cache lacks; known once it is fed."""
    prompt_digest: int = 0


class TransformersEngine(Engine):
    """Decodes from its own plain copy of a causal language model, never through sharded or wrapped modules.

    Of a model with an adapter the copy has its own adapter over the same base weights, 4-bit ones too: no second base takes
    memory, and nothing is merged or rounded, so log-probs are those of the training forward. Of several adapters each has such an
    engine of its own, with its dialogues and their cache, over the same base.

    Args:
        max_dialogues: Dialogues that hold a cache slot at a time; further ones wait for a free slot. Bounds memory.
        prefill_tokens: New prompt tokens of one forward pass; larger joins are split, short prompts first.
        dtype: What its own copy of whole weights is rounded to, such as bfloat16 beside a training in bf16-mixed; null: as they are
            trained. An adapter's base is never copied, and stays as it is.
    """

    takes_adapters = True
    serves_several_adapters = True

    def __init__(
        self, max_dialogues: int = 512, prefill_tokens: int = 8192, dtype: Literal["bfloat16", "float32"] | None = None
    ) -> None:
        for key, value in {"max_dialogues": max_dialogues, "prefill_tokens": prefill_tokens}.items():
            check_at_least(f"data.engine.{key}", value, 1, "Leave it out for the default.")
        self.max_dialogues = max_dialogues
        self.prefill_tokens = prefill_tokens
        self.dtype: torch.dtype | None = dtype and getattr(torch, dtype)
        self._forward: "PackedForward | OneByOne | None" = None
        self._stop_ids: frozenset[int] = frozenset()
        self._window: int | None = None
        """Tokens of a dialogue at most."""
        self._by_adapter: dict[str | None, TransformersEngine] = {None: self}
        """Engines over the very same weights, each with another adapter that acts; this one is among them."""
        self._reset()

    def _reset(self) -> None:
        """Forget all dialogues (their caches belong to other weights, or to a loop that is gone)."""
        self._cache: Any = None
        if self._forward is not None:
            self._cache = self._forward.new_cache(self.max_dialogues, self._window)
        self._table, self._openings = TurnTable(self._stop_ids), Openings()
        self._dialogues: dict[str, _Dialogue] = {}
        self._free_slots: list[int] = list(range(self.max_dialogues))
        """A heap: live dialogues stay side by side, where the cache is read without a copy."""
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._joining: list[_TurnInFlight] = []
        self._decoding: dict[int, _TurnInFlight] = {}
        """By slot."""
        self._over: list[_TurnInFlight] = []
        self._pumping: asyncio.Task[None] | None = None

    def bind(self, model: nn.Module, stop_ids: Iterable[int], window: int | None = None) -> None:
        """Take a plain copy of the model's architecture and weights; `stop_ids` end a turn."""
        assert isinstance(model, PreTrainedModel), f"{type(model).__name__} is not a transformers model"
        memo = share_base(model) if has_adapter(model) else {}
        own = copy.deepcopy(model, memo).eval().requires_grad_(False)
        if self.dtype is not None and not has_adapter(model):
            for weight in own.parameters():
                weight.data = weight.data.to(self.dtype)  # rotary frequencies, which are buffers, keep their digits
        self._window = window
        names, ends = adapters_by_name(own), frozenset(stop_ids)
        self._by_adapter = {name: TransformersEngine(self.max_dialogues, self.prefill_tokens) for name in names[1:]}
        for name, other in self._by_adapter.items():
            other._window = window
            other._serve(copy.deepcopy(own, share_base(own, adapters=True)), ends, name)
        self._serve(own, ends, names[0] if names else None)
        self._by_adapter[names[0] if names else None] = self

    def _serve(self, model: PreTrainedModel, stop_ids: frozenset[int], adapter: str | None) -> None:
        """Decode with this model from here on."""
        if adapter is not None:
            choose_adapter(model, adapter)
        use_rms_norm(model)
        if packs(model):
            self._forward = PackedForward(model)
        else:
            from cod_lightning.forward.one_by_one import OneByOne

            self._forward = OneByOne(model)
        self._stop_ids = stop_ids
        self.precision = str(model.dtype).removeprefix("torch.")
        self._reset()

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], policy_version: int) -> None:
        """Copy weights by name; every parameter must be there. Refused while turns are in flight."""
        if live := sum(len(engine._dialogues) for engine in self._by_adapter.values()):
            raise EngineFailure(f"{live} dialogues are live; weights change only between rollouts")
        own, missing = self._tensors(), set(self.synced())
        with torch.no_grad():
            for name, tensor in weights:
                own[name].copy_(tensor)
                missing.discard(name)
        if missing:
            raise EngineFailure(f"weight sync left out {sorted(missing)}")
        for engine in self._by_adapter.values():
            engine._openings = Openings()  # of other weights
            engine.policy_version = policy_version

    def held(self) -> dict[str, Tensor]:
        """All parameters and buffers of the model that decodes, those of its adapters included."""
        return self._tensors()

    def synced(self) -> dict[str, Tensor]:
        """Adapters alone, where there are any."""
        model, own = self._bound().model, self._tensors()
        return {name: own[name] for name in adapter_weights(model) or set(own) - _derived(model)}

    def forget(self) -> None:
        for engine in self._by_adapter.values():
            engine._reset()

    def acting_scales(self) -> dict[str, float]:
        """Of every adapter in the engine that samples by it."""
        return {
            name: scale
            for adapter, engine in self._by_adapter.items()
            for name, scale in adapter_scales(engine._bound().model, acting=True).items()
            if adapter is None or name.endswith(f".{adapter}")
        }

    async def generate(self, request: Request) -> Completion:
        """Sample one turn; joins the batch after three tokens of it at the latest."""
        self._bound()
        engine = self._by_adapter.get(request.adapter)
        if engine is None:
            raise EngineFailure(
                f"a request names the adapter {request.adapter}; there is {', '.join(map(str, self._by_adapter))}"
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        engine._waiting.append((request, future))
        engine._keep_pumping(loop)
        return await future

    def release(self, dialogue: str) -> None:
        """Free the dialogue's slot for a waiting turn."""
        for engine in self._by_adapter.values():
            if known := engine._dialogues.pop(dialogue, None):
                heapq.heappush(engine._free_slots, known.slot)
                if engine._waiting:
                    engine._keep_pumping(asyncio.get_running_loop())

    def _tensors(self) -> dict[str, Tensor]:
        model = self._bound().model
        return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())

    def _keep_pumping(self, loop: asyncio.AbstractEventLoop) -> None:
        last = self._pumping
        if last is None or last.get_loop() is not loop:
            self._openings = Openings()  # no rollout's rounding depends on what was played before it
        elif not last.done():
            return
        self._pumping = loop.create_task(self._pump())

    def _bound(self) -> "PackedForward | OneByOne":
        if self._forward is None:
            raise EngineFailure(NO_MODEL)
        return self._forward

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
            dialogue = self._dialogues.get(request.dialogue)
            if dialogue is None and self._free_slots:
                dialogue = self._dialogues[request.dialogue] = _Dialogue(slot=heapq.heappop(self._free_slots))
            if dialogue is None:
                still_waiting.append((request, future))
            else:
                joined.append(
                    _TurnInFlight(request, dialogue, future, () if dialogue.num_cached else tuple(request.prompt_ids))
                )
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
        forward = self._bound()
        return output_layer(forward.model)(forward(rows, self._cache))

    def _decode_on(self) -> None:
        """Set aside what is over; while that is little, the others get some more tokens first."""
        slots = self._in_flight()
        for further in range(1 + self._bound().most_further):
            if further:
                self._advance(slots, [])
            over = self._table.over(slots) | self._ended(slots)
            self._over += [self._decoding.pop(slot) for slot in slots[over].tolist()]
            slots = slots[~over]
            if len(self._over) >= _WORTH_ANSWERING * (len(self._over) + len(self._decoding)):
                return

    def _ended(self, slots: Slots) -> Bool[np.ndarray, " b"]:
        """Which of these turns have completed a string that ends them."""
        asked = self._table.may_end[slots]
        if asked.any():
            some = slots[asked]
            for at, slot, (ids, _) in zip(asked.nonzero()[0], some.tolist(), self._table.sampled(some), strict=True):
                ends = self._decoding[slot].request.ends
                asked[at] = ends is not None and ends(ids)
        return asked

    def _in_flight(self) -> Slots:
        """Slots of the turns in flight, in order."""
        return np.sort(np.fromiter(self._decoding, np.int64, len(self._decoding)))

    def _deliver(self) -> None:
        """Resolve the turns that are over."""
        sampled = self._table.sampled(_slots(self._over))
        for turn, (ids, logprobs) in zip(self._over, sampled, strict=True):
            dialogue, ends = turn.dialogue, turn.request.ends
            if fed := ids[:-1]:
                dialogue.num_cached += len(fed)
                dialogue.digest = digest(fed, dialogue.digest)
            stopped = ids[-1] in self._stop_ids or (ends is not None and ends(ids))
            turn.future.set_result(
                Completion(
                    action_ids=ids,
                    behaviour_logprobs=logprobs,
                    stop=StopReason.STOP if stopped else StopReason.LENGTH,
                    policy_version=self.policy_version,
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


def _derived(model: nn.Module) -> set[str]:
    """Names of parameters and buffers that a state dict leaves out or that alias another (tied weights)."""
    in_state = model.state_dict(keep_vars=True)
    tied = {name for name, _ in model.named_parameters(remove_duplicate=False)} - {
        n for n, _ in model.named_parameters()
    }
    return ({name for name, _ in model.named_buffers()} - set(in_state)) | tied
