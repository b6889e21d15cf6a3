"""The engine that decodes with a transformers model: continuous batching over all live dialogues, exact ids, in process.

Every iteration of `_pump` first lets all lifecycles that can go on hand in their next request, then prefills those
requests' *new* ids in one padded forward pass, then decodes one token for every dialogue in flight. Nobody waits at a
position; a dialogue's keys and values stay in its slot until the episode releases it.
"""

import asyncio
import copy
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_weights, has_adapter, share_base
from cod_lightning.engines.base import Completion, Engine, Request, digest
from cod_lightning.engines.slots import SlotCache
from cod_lightning.engines.turn_table import TurnTable
from cod_lightning.errors import ConfigError, EngineFailure
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.last_layer import read_only_at
from cod_lightning.types import StopReason


@dataclass(slots=True)
class _Dialogue:
    """What the engine remembers of a dialogue: its slot and how many of its tokens are cached there."""

    slot: int
    num_cached: int = 0
    digest: int = 0
    """Of the cached ids: what the model really conditioned on."""


@dataclass(slots=True)
class _Turn:
    """A request in flight."""

    request: Request
    dialogue: _Dialogue
    future: "asyncio.Future[Completion]"
    prompt_digest: int = 0

    @property
    def new_ids(self) -> Sequence[int]:
        """Of the prompt, what the cache lacks."""
        return self.request.prompt_ids[self.dialogue.num_cached :]


class TransformersEngine(Engine):
    """Decodes from its own plain copy of a causal language model, never through sharded or wrapped modules.

    Of a model with an adapter the copy has its own adapter over the same base weights, 4-bit ones too: no second base takes
    memory, and nothing is merged or rounded, so log-probs are those of the training forward.

    Args:
        max_dialogues: Dialogues that hold a cache slot at a time; further ones wait for a free slot. Bounds memory.
        prefill_tokens: Padded prompt tokens of one prefill pass; larger joins are split, shortest prompts first.
    """

    takes_adapters = True

    def __init__(self, max_dialogues: int = 512, prefill_tokens: int = 8192) -> None:
        for key, value in {"max_dialogues": max_dialogues, "prefill_tokens": prefill_tokens}.items():
            if value < 1:
                raise ConfigError(f"data.engine.{key}", value, "at least 1", "Leave it out for the default.")
        self.max_dialogues = max_dialogues
        self.prefill_tokens = prefill_tokens
        self._model: PreTrainedModel | None = None
        self._stop_ids = np.zeros(0, np.int64)
        self._reset()

    def _reset(self) -> None:
        """Forget all dialogues (their caches belong to other weights, or to a loop that is gone)."""
        self._cache, self._table = SlotCache(), TurnTable()
        self._dialogues: dict[str, _Dialogue] = {}
        self._free_slots: list[int] = list(range(self.max_dialogues))
        """A heap: live dialogues stay side by side, where the cache is read without a copy."""
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._joining: list[_Turn] = []
        self._decoding: list[_Turn] = []
        self._pumping: asyncio.Task[None] | None = None

    def bind(self, model: nn.Module, stop_ids: Iterable[int], window: int | None = None) -> None:
        """Take a plain copy of the model's architecture and weights; `stop_ids` end a turn."""
        assert isinstance(model, PreTrainedModel), f"{type(model).__name__} is not a transformers model"
        memo = share_base(model) if has_adapter(model) else {}
        self._model = copy.deepcopy(model, memo).eval().requires_grad_(False)
        use_grouped_attention(self._model)
        self._stop_ids = np.array(sorted(stop_ids), np.int64)
        self.precision = str(model.dtype).removeprefix("torch.")
        self._reset()

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], policy_version: int) -> None:
        """Copy weights by name; every parameter must be given. Refused while turns are in flight."""
        model = self._bound_model()
        if self._dialogues:
            raise EngineFailure(f"{len(self._dialogues)} dialogues are live; weights change only between rollouts")
        own = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
        missing = set(adapter_weights(model)) or set(own) - _derived(model)
        with torch.no_grad():
            for name, tensor in weights:
                own[name].copy_(tensor)
                missing.discard(name)
        if missing:
            raise EngineFailure(f"weight sync left out {sorted(missing)}")
        self.policy_version = policy_version

    async def generate(self, request: Request) -> Completion:
        """Sample one turn; joins the batch at the next token."""
        self._bound_model()
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._keep_pumping()
        return await future

    def release(self, dialogue: str) -> None:
        """Free the dialogue's slot, for whoever waits for one."""
        if known := self._dialogues.pop(dialogue, None):
            heapq.heappush(self._free_slots, known.slot)
            if self._waiting:
                self._keep_pumping()

    def _keep_pumping(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pumping is None or self._pumping.done() or self._pumping.get_loop() is not loop:
            self._pumping = loop.create_task(self._pump())

    def _bound_model(self) -> PreTrainedModel:
        if self._model is None:
            raise EngineFailure("the engine has no model yet; call bind(model, stop_ids) first")
        return self._model

    async def _pump(self) -> None:
        """Prefill and decode until nobody can go on; whatever goes wrong reaches everybody who waits.

        Who waits for a slot while all are held by dialogues whose worlds take their time is woken by `release`.
        """
        try:
            while True:
                await asyncio.sleep(0)  # every lifecycle that can go on now hands in its next request
                self._decoding = [
                    turn for turn in self._decoding if not turn.future.done()
                ]  # cancelled: no slot any more
                self._joining = self._admit()
                if not self._joining and not self._decoding:
                    return
                for turns in self._prefill_batches(self._joining):
                    self._prefill(turns)
                if self._decoding:
                    self._decode()
                self._decoding = sorted(self._deliver(self._decoding + self._joining), key=_slot)
                self._joining = []
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        failure = error if isinstance(error, EngineFailure) else EngineFailure(f"{type(error).__name__}: {error}")
        futures = [future for _, future in self._waiting] + [turn.future for turn in self._decoding]
        futures += [turn.future for turn in self._joining]
        self._waiting, self._decoding, self._joining = [], [], []
        for future in futures:
            if not future.done():
                future.set_exception(failure)

    def _admit(self) -> list[_Turn]:
        """Waiting requests that have, or can get, a slot."""
        joined: list[_Turn] = []
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
                joined.append(_Turn(request, dialogue, future))
        self._waiting = still_waiting
        return joined

    def _prefill_batches(self, turns: list[_Turn]) -> Iterable[list[_Turn]]:
        """Turns of similar numbers of new ids together, each batch within `prefill_tokens` padded tokens and in order of slots."""
        batch: list[_Turn] = []
        for turn in sorted(turns, key=lambda turn: (_num_new_ids(turn), turn.dialogue.slot)):
            width = _num_new_ids(turn)
            shortest = _num_new_ids(batch[0]) if batch else width
            if batch and ((len(batch) + 1) * width > self.prefill_tokens or width > 2 * shortest + 8):
                yield sorted(batch, key=_slot)
                batch = []
            batch.append(turn)
        if batch:
            yield sorted(batch, key=_slot)

    @torch.inference_mode()
    def _prefill(self, turns: Sequence[_Turn]) -> None:
        """Feed each turn the ids of its prompt that its cache lacks, and sample its first token."""
        chunks = [turn.new_ids for turn in turns]
        first, alike = _opened_alike(turns, chunks)
        slots = _slots(turns)
        lengths = np.array([len(chunks[i]) for i in first])
        ids = np.zeros((len(first), lengths.max()), np.int64)
        for row, i in enumerate(first):
            ids[row, : lengths[row]] = chunks[i]
        starts = np.array([turns[i].dialogue.num_cached for i in first])
        logits = self._logits(slots[first], ids, starts, lengths)
        if len(first) < len(turns):
            self._cache.copy(slots[first][alike], slots, int(lengths.max()))
            logits = logits[torch.tensor(alike, device=logits.device)]
        for turn, chunk in zip(turns, chunks, strict=True):
            dialogue = turn.dialogue
            dialogue.num_cached += len(chunk)
            turn.prompt_digest = dialogue.digest = digest(chunk, dialogue.digest)
        self._table.begin(slots, [turn.request for turn in turns])
        self._table.sample(slots, logits)

    @torch.inference_mode()
    def _decode(self) -> None:
        """One more token for every turn in flight."""
        slots = _slots(self._decoding)
        ids, columns = self._table.next_inputs(slots)
        self._table.sample(slots, self._logits(slots, ids[:, None], columns, np.ones_like(slots)))

    def _logits(self, slots: np.ndarray, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Tensor:
        """Of what follows each row of new ids [b, W], right-padded from its length [b] on, over the slots' caches: [b, V]."""
        model = self._bound_model()
        device, width, used = model.device, ids.shape[1], int((starts + lengths).max())
        first = torch.from_numpy(starts).to(device)
        positions = first[:, None] + torch.arange(width, device=device)
        self._cache.reserve(1 + int(slots.max()), used + width)
        self._cache.aim(slots, first, width, used)
        visible = torch.arange(used, device=device) <= positions[:, :, None]  # padded queries see themselves: no NaN
        last = torch.from_numpy(lengths - 1).to(device)
        with read_only_at(model, torch.arange(width, device=device) == last[:, None]):
            hidden = model.base_model(
                input_ids=torch.from_numpy(ids).to(device),
                position_ids=positions,
                attention_mask=visible[:, None],
                past_key_values=self._cache,
                use_cache=True,
            ).last_hidden_state
        return output_logits(model, hidden[torch.arange(len(slots), device=device), last])

    def _deliver(self, turns: list[_Turn]) -> list[_Turn]:
        """Resolve the turns that have ended; the others go on."""
        going_on = []
        over, stopped = self._table.ended(_slots(turns), self._stop_ids)
        for turn, is_over, has_stopped in zip(turns, over.tolist(), stopped.tolist(), strict=True):
            if not is_over:
                going_on.append(turn)
                continue
            ids, logprobs = self._table.said(turn.dialogue.slot)
            fed = ids[:-1]
            turn.dialogue.num_cached += len(fed)
            turn.dialogue.digest = digest(fed, turn.dialogue.digest)
            turn.future.set_result(
                Completion(
                    action_ids=ids,
                    behaviour_logprobs=logprobs,
                    stop=StopReason.STOP if has_stopped else StopReason.LENGTH,
                    policy_version=self.policy_version,
                    prompt_digest=turn.prompt_digest,
                )
            )
        return going_on


def output_logits(model: nn.Module, hidden: Tensor) -> Tensor:
    """Vocabulary logits of hidden states, by the model's own output layer."""
    return model.get_output_embeddings()(hidden)  # type: ignore[operator]


def _opened_alike(turns: Sequence[_Turn], chunks: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Turns to compute, and for every turn which of those has its state: siblings open their first dialogue with one prompt."""
    if any(turn.dialogue.num_cached for turn in turns):
        everyone = list(range(len(turns)))
        return everyone, everyone
    known: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    for i, chunk in enumerate(chunks):
        if known.setdefault(tuple(chunk), len(first)) == len(first):
            first.append(i)
    return first, [known[tuple(chunk)] for chunk in chunks]


def _slot(turn: _Turn) -> int:
    return turn.dialogue.slot


def _slots(turns: Sequence[_Turn]) -> np.ndarray:
    return np.array([turn.dialogue.slot for turn in turns])


def _num_new_ids(turn: _Turn) -> int:
    return len(turn.request.prompt_ids) - turn.dialogue.num_cached


def _derived(model: nn.Module) -> set[str]:
    """Names of parameters and buffers that a state dict leaves out or that alias another (tied weights)."""
    in_state = model.state_dict(keep_vars=True)
    tied = {name for name, _ in model.named_parameters(remove_duplicate=False)} - {
        n for n, _ in model.named_parameters()
    }
    return ({name for name, _ in model.named_buffers()} - set(in_state)) | tied
