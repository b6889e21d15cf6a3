"""The contract of an engine: token ids in, token ids and their log-probabilities out.

An engine knows no reward and no episode. `generate` is a coroutine; a lifecycle simply awaits it, and the engine batches
whatever waits. Sampling noise is a value carried by the request, so a result does not depend on who shares the batch.
"""

import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from cod_lightning.types import Message, StopReason

if TYPE_CHECKING:
    import torch
    from torch import nn


class Request(Struct, frozen=True, kw_only=True):
    """One turn to be sampled."""

    dialogue: str
    """Identity of the dialogue. A later request of the same dialogue extends the earlier prompt and action."""
    prompt_ids: Sequence[int]
    """The whole prompt so far. Shared with the dialogue, not copied; engines must not change it."""
    messages: Sequence[Message]
    """The same prompt as text, for engines that speak text (scripted policies, chat endpoints)."""
    max_new_tokens: int
    noise_seed: int
    """Seed of this turn's sampling noise."""
    temperature: float = 1.0
    """0 is greedy."""


class Completion(Struct, frozen=True, kw_only=True):
    """The response of the policy."""

    action_ids: tuple[int, ...]
    """Sampled ids, the stop token included."""
    behaviour_logprobs: tuple[float, ...]
    """Log-probability (nats) of each id under the distribution it was sampled from (after temperature)."""
    stop: StopReason
    policy_version: int
    """Of its oldest token, where weights change in flight."""
    prompt_digest: int
    """`digest` of the ids that were really conditioned on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What an engine is to serve, as far as it matters to one."""

    adapter_rank: int = 0
    """Of the adapter; 0 without one."""
    four_bit: bool = False
    """Whether the base is kept in 4 bits."""
    dtype: str = "float32"
    """Of the other weights, by torch's name."""
    config: Any = None
    """Of the model, as transformers has it; None where it is not known yet."""


NO_MODEL = (
    "the engine has no model yet; add the callback WeightSync to the Trainer (cod_lightning.callbacks.WeightSync()), or without a "
    "Trainer call bind(model, stop_ids) first"
)


class Engine(ABC):
    """Samples turns. Raises `EngineFailure` for what it cannot serve; the rollout records it."""

    policy_version: int = -1
    """Number of the last weight sync; -1 while the engine has no trained weights."""
    has_weights: bool = True
    """False for an engine whose model is somewhere else: what it samples can be evaluated, not trained on."""
    sleeps: bool = False
    """Whether it gives memory back while training goes on, and serves nothing then."""
    takes_adapters: bool = False
    """Whether an adapter is synced as it is; else the sync brings all weights with the adapter merged in."""
    takes_media: bool = False
    """Whether it reads the parts of messages; else it reads token ids or text alone, and refuses images."""
    precision: str = "float32"
    """What it computes in, by torch's name; known once it is bound."""
    num_interrupted_turns: int = 0
    """Turns so far in which the weights changed: some of their tokens are by newer ones than the others."""
    max_staleness: int = 0
    """`data.max_staleness`, which the DataModule names."""
    num_ranks: int = 1
    """Processes of the run, each with an engine of its own; the command line names them before they are there."""
    log_folder: Path | None = None
    """Where an engine that keeps logs writes them; the DataModule names the run's folder."""

    @property
    def in_flight(self) -> bool:
        """Whether weights change while turns are under way, which then go on with the new ones; else turns end first."""
        return False

    @abstractmethod
    async def generate(self, request: Request) -> Completion:
        """Sample one turn."""

    def release(self, dialogue: str) -> None:
        """The dialogue is over; whatever is kept for it may go."""

    def check(self, served: Served) -> None:
        """Raise `ConfigError` or `EngineFailure` for what can be seen to be wrong before there is a model."""

    def replicas(self) -> "Sequence[Engine]":
        """The parts that could differ, each to be tested on its own after a sync."""
        return (self,)

    def __str__(self) -> str:
        return type(self).__name__

    def bind(self, model: "nn.Module", stop_ids: Iterable[int], window: int | None = None) -> None:
        """Make ready to serve copies of this model. Called once, before the first sync.

        `stop_ids` end a turn; no prompt and its response together will be longer than `window`, by default all the positions
        that the model was made for.
        """

    def sleep(self) -> None:
        """Training begins: give the device's memory back, if the engine was asked to. Until it is woken it serves nothing."""

    def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """Take memory again, if it was released: first for weights, which a sync then brings, then for the cache."""

    def update_weights(self, weights: Iterable[tuple[str, "torch.Tensor"]], policy_version: int) -> None:
        """Take new weights; every token sampled from here on carries `policy_version`."""
        self.policy_version = policy_version

    def held(self) -> "Mapping[str, torch.Tensor]":
        """The tensors that it serves, by their names in a sync, of an engine in this process whose tensors are those; else none."""
        return {}

    def acting_scales(self) -> Mapping[str, float] | None:
        """By layer, how many times an adapter's product is added; None where that cannot be looked at."""
        return None

    def report(self) -> str:
        """The cost of serving so far, as a line for the person who runs it; may be empty."""
        return ""


def digest(ids: Iterable[int], previous: int = 0) -> int:
    """Running CRC-32 of token ids; `digest(a + b) == digest(b, digest(a))`.

    >>> digest([1, 2, 3]) == digest([3], digest([1, 2]))
    True
    """
    return zlib.crc32(array("i", ids), previous)
