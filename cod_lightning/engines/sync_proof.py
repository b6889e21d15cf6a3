"""Proof that an engine serves the weights of a sync and not earlier ones, at any precision.

Digests say whether every tensor that the engine holds is the one that was sent; only an engine in this process can be asked for
them. Probes say it of any engine: the tokens that it samples are scored under the weights of now and under those of an earlier
sync, and an engine that is nearer to the earlier ones is stale, however coarsely it computes. One that is far from both, and not
behind a prompt that is new to it, goes on from keys and values of something else.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf, sqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_scales
from cod_lightning.engines.base import Completion, Engine
from cod_lightning.engines.self_test import NUM_PROMPT, Inside, sampled, training_logits
from cod_lightning.errors import EngineMismatch
from cod_lightning.ranks import gathered

Weights = Iterable[tuple[str, Tensor]]
_CHUNK = 2**22
_TEMPERATURE = 2.0
"""Hot enough that unlikely tokens are sampled, too, whose log-probs move most."""
_FRESH, _STALE, _PARTLY = 0.1, 0.5, 0.05
"""Bounds of the staleness; below `_FRESH`, its error included, an engine is proven to be fresh."""
_LEAST_APART, _TIMES_APART = 1e-3, 5.0
"""Nats, and how often the median behind a new prompt, from which on a known prompt's keys and values are not its own."""
_ERRORS = 6.0
"""Standard errors by which a staleness has to differ from 0."""
_MOST_NAMED, _NUM_PROBES, _IDS = 3, 32, 64
_FEW = 4
"""Every so many of the probes are asked first; the others only where these do not settle it, as in low precision."""


def digest(tensor: Tensor) -> int:
    """64 bits that tell a tensor from another by shape, precision and every bit at its place.

    >>> one = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> digest(one) == digest(one.clone()), digest(one) == digest(one.T)
    (True, False)
    """
    flat = tensor.detach().contiguous().flatten()
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    found = torch.zeros((), dtype=torch.int64, device=flat.device)
    for number, chunk in enumerate(flat.view(whole).split(_CHUNK)):
        place = torch.arange(number * _CHUNK, number * _CHUNK + len(chunk), device=flat.device)
        mixed = (chunk.long() + 0x9E3779B97F4A) * (2 * place + 0x2545F4914F6CDD1D)  # wraps around
        found += (mixed ^ (mixed >> 29)).sum()  # the device is waited for once a tensor
    return (hash((tuple(tensor.shape), flat.element_size())) + int(found)) & (2**64 - 1)


class Arrival:
    """Whether every tensor of a sync is the one that an engine holds afterwards."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}
        self._all = True
        """Whether the engine has asked for all of them."""

    def sending(self, weights: Weights, engine: Engine) -> Weights:
        """The same weights; digests are taken as they go by, in the precision in which the engine holds them."""
        self._sent, self._all = {}, False
        return self._noted(weights, engine.held())

    def _noted(self, weights: Weights, held: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in weights:
            if name in held:
                self._sent[name] = digest(tensor.to(held[name].dtype))
            yield name, tensor
        self._all = True

    def check(self, engine: Engine, model: PreTrainedModel, again: Callable[[], Weights]) -> None:
        """Raise `EngineMismatch`, on all ranks, that names what differs; `again` gives the weights of the sync once more."""
        held = engine.held()
        if held and not all(gathered(self._all)):  # it left some where they were
            for _ in self._noted(again(), held):
                pass
        wrong = [name for name in self._sent if digest(held[name]) != self._sent[name]]
        scales, acting = adapter_scales(model), engine.acting_scales()
        unlike = [] if acting is None else [name for name, scale in scales.items() if acting.get(name, 0.0) != scale]
        if not any(gathered(bool(wrong or unlike))):
            return
        sent = {name: tensor for name, tensor in again() if name in wrong[:_MOST_NAMED]}
        said = [
            f"{name} differs by up to {_largest_difference(held[name], sent[name]):.3g}" for name in wrong[:_MOST_NAMED]
        ]
        for name in unlike[:_MOST_NAMED]:
            said.append(
                f"the adapter of {name} acts {(acting or {}).get(name, 0.0):g} times in place of {scales[name]:g}"
            )
        more = len(wrong) + len(unlike) - len(said)
        raise EngineMismatch(
            f"after sync {engine.policy_version} {engine} does not hold what was sent: {'; '.join(said) or 'on another rank'}"
            f"{f'; and {more} more' if more > 0 else ''}"
        )


@torch.no_grad()
def _largest_difference(held: Tensor, sent: Tensor) -> float:
    return float((held.float() - sent.to(held.dtype).float()).abs().max())


@dataclass(frozen=True, slots=True)
class Lag:
    """Where an engine stands between the weights of now (0) and those of an earlier sync (1), by the log-probs of n tokens.

    With e, new and old the log-probs under the engine, the weights of now and the earlier ones, t = sum (e - new)(old - new) /
    sum (old - new)^2 is the least-squares share of the way back, and its standard error that of the regression's residual.
    """

    share: float
    error: float
    """Infinite where the two weights give the same."""

    @property
    def fresh(self) -> bool:
        """Whether it is shown that the engine has the weights of now."""
        return abs(self.share) + _ERRORS * self.error < 2 * _FRESH

    @property
    def stale(self) -> bool:
        """Whether it is shown that it has, in part at least, the earlier ones, or has left them further than it should."""
        return abs(self.share) > _PARTLY and abs(self.share) > _ERRORS * self.error

    @classmethod
    def of(cls, engine: Float[Tensor, " n"], new: Float[Tensor, " n"], old: Float[Tensor, " n"]) -> "Lag":
        """From the log-probs of the same tokens."""
        off, way = (engine - new).double(), (old - new).double()
        square = float(way.square().sum())
        if square == 0 or not torch.isfinite(off).all():
            return cls(0.0, inf)
        share = float((off * way).sum()) / square
        spread = float((off - share * way).square().sum()) / max(1, len(off) - 1)
        return cls(share, sqrt(spread / square))


@dataclass(frozen=True, slots=True)
class _Known:
    """What the weights of a sync gave the probes."""

    version: int
    logprobs: Float[Tensor, "P V"]


class Probes:
    """Prefixes of one fixed prompt, after each of which the engine samples a token that is scored under several weights.

    An earlier sync serves as reference until the engine is shown to have left it, so that steps too small for the engine's
    precision add up.
    """

    def __init__(self) -> None:
        self._left: _Known | None = None
        """The latest sync that every replica has been shown to have left, or is next to leave."""
        self._apart = inf
        """How far the engine was from the training forward at the last sync (median nats)."""
        self.last: Float[Tensor, "P I"] | None = None
        """Log-probs of some ids under the weights of the last sync; a checkpoint keeps them."""

    def __call__(
        self,
        engine: Engine,
        model: PreTrainedModel,
        *,
        window: int,
        new: bool,
        context: Callable[[], AbstractContextManager[object]],
        inside: Inside,
    ) -> float | None:
        """How far log-probs of some ids after each prefix moved since the last sync (mean nats, absolute); None after the first.

        `new` is False for a sync that only brings an engine what it should have had. Raises `EngineMismatch` on all ranks.
        """
        vocabulary = int(model.get_input_embeddings().weight.shape[0])  # pyright: ignore
        length = max(1, min(NUM_PROMPT, window - 1))
        drawn = random.Random(1)
        prompt = [drawn.randrange(vocabulary) for _ in range(length)]
        some = sorted(drawn.sample(range(vocabulary), min(_IDS, vocabulary)))
        ends = sorted({max(1, length * (i + 1) // _NUM_PROBES) for i in range(_NUM_PROBES)})
        own = engine.replicas()

        def known(prompt: list[int]) -> _Known:
            with context():
                logits = training_logits(model, [prompt], [end - 1 for end in ends], inside)[0]
            return _Known(engine.policy_version, torch.log_softmax(logits.float() / _TEMPERATURE, dim=-1).cpu())

        now, fresh, apart = known(prompt), True, [0.0]
        bound = max(_LEAST_APART, _TIMES_APART * self._apart)
        for index in range(max(gathered(len(own)))):
            replica = own[min(index, len(own) - 1)]
            for asked in (slice(None, None, _FEW), slice(None)):
                said = _answers(replica, prompt, ends[asked])
                lag, off = self._lag(said, now.logprobs[asked], asked), _apart(said, now.logprobs[asked])
                if lag.fresh and off <= bound:
                    break
            self._check_lag(replica, lag, len(said))
            fresh &= lag.fresh
            apart.append(off)
            if off > bound:
                unlike = random.Random(2 + engine.policy_version)
                other = [unlike.randrange(vocabulary) for _ in range(length)]
                _check_keys(replica, off, _apart(_answers(replica, other, ends), known(other).logprobs))
        self._apart = max(apart)
        if fresh or self._left is None:
            self._left = now
        moved = None if self.last is None else float((now.logprobs[:, some] - self.last).abs().mean())
        if new:
            self.last = now.logprobs[:, some]
        return moved

    def _lag(self, said: list[Completion], now: Float[Tensor, "S V"], asked: slice) -> Lag:
        """Of the replica that gave these answers, against the reference; none where there is no reference yet."""
        if self._left is None:
            return Lag(0.0, 0.0)
        ids, engine = _sampled(said)
        of = [logprobs[torch.arange(len(ids)), ids] for logprobs in (now, self._left.logprobs[asked])]
        return Lag.of(*map(torch.cat, zip(*gathered((engine, *of)), strict=True)))

    def _check_lag(self, replica: Engine, lag: Lag, num_tokens: int) -> None:
        """Raise where it is shown that the replica has not left the reference."""
        if not lag.stale or self._left is None:
            return
        what, why = "stale", "Weights, an adapter or cached keys of that sync are still served."
        where = "nearer to" if lag.share >= _STALE else f"{lag.share:.0%} on the way back to"
        if lag.share < 0:
            what, why, where = "beyond its weights", "Is an adapter scaled twice?", f"{-lag.share:.0%} too far from"
        raise EngineMismatch(
            f"after sync {replica.policy_version} {replica} is {what}: by the log-probs of {num_tokens} tokens it is {where} the "
            f"weights of sync {self._left.version} ({lag.share:.2f} +- {lag.error:.2f}; 0 is now, 1 is then). {why}"
        )


def _answers(engine: Engine, prompt: list[int], ends: list[int]) -> list[Completion]:
    """A token behind each of these beginnings of the prompt."""
    return sampled(engine, [(prompt[:end], end, _TEMPERATURE) for end in ends], 1)


def _check_keys(engine: Engine, apart: float, control: float) -> None:
    """Raise where behind a known prompt log-probs are that much further off than behind a new one."""
    if apart > _TIMES_APART * control:
        raise EngineMismatch(
            f"after sync {engine.policy_version} {engine} does not sample from the policy that is trained: behind beginnings of a "
            f"prompt that it met before log-probs are {apart:.1e} nats off (median), behind a new one {control:.1e}. It went on "
            "from keys and values that are not the prompt's; its prefix cache has to be emptied with every sync."
        )


def _sampled(said: list[Completion]) -> tuple[Int[Tensor, " P"], Float[Tensor, " P"]]:
    """The token of each, and its log-prob under the engine."""
    return torch.tensor([one.action_ids[0] for one in said]), torch.tensor([one.behaviour_logprobs[0] for one in said])


def _apart(said: list[Completion], now: Float[Tensor, "S V"]) -> float:
    """How far (median nats, of all ranks) the engine's log-probs are from those under the weights of now."""
    ids, engine = _sampled(said)
    return float(torch.cat(gathered((engine - now[torch.arange(len(ids)), ids]).abs())).median())
