"""Proof that an engine serves the weights of a sync and not earlier ones, at any precision.

Digests say whether every tensor that the engine holds is the one that was sent; only an engine in this process can be asked for
them. Probes say it of any engine: the tokens that it samples are scored under the weights of now and under those of an earlier
sync, and an engine that is nearer to the earlier ones is stale, however coarsely it computes. One that is far from both, and not
behind a prompt that is new to it, goes on from keys and values of something else.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf, sqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_scales, adapters_by_name, choose_adapter
from cod_lightning.engines.base import Completion, Engine, Request
from cod_lightning.engines.self_test import Inside, sampled, training_logits
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
_MOST_NAMED = 3
_IDS = 64


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
        self._before: dict[str, int] = {}
        self._all = True
        """Whether the engine has asked for all of them."""

    def sending(self, weights: Weights, engine: Engine) -> Weights:
        """The same weights; digests are taken as they go by, in the precision in which the engine holds them."""
        self._before, self._sent, self._all = self._sent, {}, False
        return self._noted(weights, {name: tensor.dtype for name, tensor in engine.held().items()})

    def _noted(self, weights: Weights, kept: dict[str, torch.dtype]) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in weights:
            if name in kept:
                self._sent[name] = digest(tensor.to(kept[name]))
            yield name, tensor
        self._all = True

    def check(self, engine: Engine, model: PreTrainedModel, again: Callable[[], Weights]) -> None:
        """Raise `EngineMismatch`, on all ranks, that names what differs; `again` gives the weights of the sync once more."""
        held = engine.held()
        if held and not all(gathered(self._all)):  # it left some where they were
            for _ in self._noted(again(), {name: tensor.dtype for name, tensor in held.items()}):
                pass
        wrong = [name for name in self._sent if digest(held[name]) != self._sent[name]]
        scales, acting = adapter_scales(model), engine.acting_scales()
        unlike = [] if acting is None else [name for name, scale in scales.items() if acting.get(name, 0.0) != scale]
        if not any(gathered(bool(wrong or unlike))):
            return
        sent = {name: tensor for name, tensor in again() if name in wrong[:_MOST_NAMED]}
        said = [f"{name} {self._difference(name, held[name], sent[name])}" for name in wrong[:_MOST_NAMED]]
        for name in unlike[:_MOST_NAMED]:
            said.append(
                f"the adapter of {name} acts {(acting or {}).get(name, 0.0):g} times in place of {scales[name]:g}"
            )
        more = len(wrong) + len(unlike) - len(said)
        raise EngineMismatch(
            f"after sync {engine.policy_version} {engine} does not hold what was sent: {'; '.join(said) or 'on another rank'}"
            f"{f'; and {more} more' if more > 0 else ''}"
        )

    def _difference(self, name: str, held: Tensor, sent: Tensor) -> str:
        """How the held tensor differs from the one that was sent."""
        held, sent = held.detach(), sent.detach()
        mark, meant = digest(held), sent.to(held.dtype)
        if mark == self._before.get(name):
            return "is that of the sync before (stale)"
        if others := [other for other, of in self._sent.items() if of == mark and other != name]:
            return f"holds {others[0]}"
        if meant.ndim == 2 and meant.shape[0] == meant.shape[1] and digest(meant.T) == mark:
            return "is transposed"
        for coarse in (torch.bfloat16, torch.float16):
            if coarse != held.dtype and torch.equal(meant.to(coarse).to(held.dtype), held):
                return f"was rounded to {str(coarse).removeprefix('torch.')}"
        apart = (held.float() - meant.float()).abs()
        if meant.ndim == 2 and 0 < (rows := int((apart.amax(dim=1) > 0).sum())) < len(meant):
            return f"differs in {rows:,} of {len(meant):,} rows"
        square = float(meant.float().square().sum())
        ratio = float((held.float() * meant.float()).sum()) / square if square else 0.0
        if float((held.float() - ratio * meant.float()).norm()) < 0.5 * abs(ratio - 1) * sqrt(square):
            return f"is {ratio:.4g} times what was sent"
        return f"differs by up to {float(apart.max()):.3g}"


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

    Args:
        num: Prefixes.
        num_prompt_tokens: Length of the prompt, where the window has room for it.
    """

    def __init__(self, num: int = 32, num_prompt_tokens: int = 160) -> None:
        self.num, self.num_prompt_tokens = num, num_prompt_tokens
        self._left: dict[str | None, _Known] = {}
        """By adapter, the latest sync that every replica has been shown to have left, or is next to leave."""
        self._apart: dict[str | None, float] = {}
        """By adapter, how far the engine was from the training forward at the last sync (median nats)."""
        self.last: dict[str | None, Float[Tensor, "P I"]] = {}
        """By adapter, log-probs of some ids under the weights of the last sync; a checkpoint keeps them."""

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
        length = max(1, min(self.num_prompt_tokens, window - 1))
        drawn = random.Random(1)
        prompt = [drawn.randrange(vocabulary) for _ in range(length)]
        some = sorted(drawn.sample(range(vocabulary), min(_IDS, vocabulary)))
        ends = sorted({max(1, length * (i + 1) // self.num) for i in range(self.num)})
        moved: list[float] = []
        own = engine.replicas()

        def known(prompt: list[int]) -> _Known:
            with context():
                logits = training_logits(model, [prompt], [end - 1 for end in ends], inside)[0]
            return _Known(engine.policy_version, torch.log_softmax(logits.float() / _TEMPERATURE, dim=-1).cpu())

        for adapter in adapters_by_name(model) or (None,):
            if adapter is not None:
                choose_adapter(model, adapter)
            now, fresh, apart = known(prompt), True, [0.0]
            for index in range(max(gathered(len(own)))):
                replica = own[min(index, len(own) - 1)]
                said = _answers(replica, prompt, ends, adapter)
                fresh &= self._see_fresh(replica, said, now, adapter)
                apart.append(_apart(said, now))
                if apart[-1] > max(_LEAST_APART, _TIMES_APART * self._apart.get(adapter, inf)):
                    unlike = random.Random(2 + engine.policy_version)
                    other = [unlike.randrange(vocabulary) for _ in range(length)]
                    _check_keys(replica, apart[-1], _apart(_answers(replica, other, ends, adapter), known(other)))
            self._apart[adapter] = max(apart)
            if fresh or adapter not in self._left:
                self._left[adapter] = now
            if (last := self.last.get(adapter)) is not None:
                moved.append(float((now.logprobs[:, some] - last).abs().mean()))
            if new:
                self.last[adapter] = now.logprobs[:, some]
        return max(moved, default=None)

    def _see_fresh(self, replica: Engine, said: list[Completion], now: _Known, adapter: str | None) -> bool:
        """Whether the replica is shown to have left the reference. Raises where it is shown that it has not."""
        if (left := self._left.get(adapter)) is None:
            return True
        ids, engine = _sampled(said)
        of = [known.logprobs[torch.arange(len(ids)), ids] for known in (now, left)]
        staleness = Lag.of(*map(torch.cat, zip(*gathered((engine, *of)), strict=True)))
        if staleness.stale:
            share, adapted = staleness.share, "" if adapter is None else f" of the adapter {adapter}"
            what, why = "stale", "Weights, an adapter or cached keys of that sync are still served."
            where = "nearer to" if share >= _STALE else f"{share:.0%} on the way back to"
            if share < 0:
                what, why, where = "beyond its weights", "Is an adapter scaled twice?", f"{-share:.0%} too far from"
            raise EngineMismatch(
                f"after sync {replica.policy_version} {replica} is {what}: by the log-probs of {len(ids)} tokens it is {where} the "
                f"weights{adapted} of sync {left.version} ({share:.2f} +- {staleness.error:.2f}; 0 is now, 1 is then). {why}"
            )
        return staleness.fresh


def _answers(engine: Engine, prompt: list[int], ends: list[int], adapter: str | None) -> list[Completion]:
    """A token behind each of these beginnings of the prompt."""
    requests = [
        Request(
            dialogue=f"sync-proof/{end}",
            prompt_ids=prompt[:end],
            messages=(),
            max_new_tokens=1,
            noise_seed=end,
            temperature=_TEMPERATURE,
            adapter=adapter,
        )
        for end in ends
    ]
    return asyncio.run(sampled(engine, requests))


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


def _apart(said: list[Completion], now: _Known) -> float:
    """How far (median nats, of all ranks) the engine's log-probs are from those under the weights of now."""
    ids, engine = _sampled(said)
    return float(torch.cat(gathered((engine - now.logprobs[torch.arange(len(ids)), ids]).abs())).median())
