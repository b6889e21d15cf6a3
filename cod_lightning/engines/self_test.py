"""Whether an engine really serves the weights that are trained: a fixed prompt, sampled by one, scored by the other.

Wrong weights do not raise. A projection that a sync left out, keys and values that belong to earlier weights, or another
precision give fluent text and a training that goes nowhere; here they give a number and a message.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from cod_lightning.engines.base import Completion, Engine, Request
from cod_lightning.errors import EngineMismatch

_TEMPERATURES = (0.0, 2.0)
"""Greedy, and hot enough that a policy which is sure of itself still says unlikely tokens, whose log-probs tell most."""


@dataclass(frozen=True)
class Gap:
    """Where the engine's log-prob (nats) is furthest from the training forward's, at the same temperature."""

    size: float
    token: int
    engine: float
    training: float
    strict: bool
    """Whether both compute in float32."""


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """Compares engine and training forward after each weight sync, and stops the run where they differ."""

    tolerance: float | None = None
    """Largest difference of a token's log-probability, in nats. Null means 1e-3 where engine and training both compute in float32,
    else 0.25."""
    num_prompt_tokens: int = 160
    """Length of the prompt, where the window has room for it; more than a block of any prefix cache."""
    num_new_tokens: int = 8
    """Tokens that are sampled and compared."""

    def __call__(
        self,
        engine: Engine,
        model: PreTrainedModel,
        *,
        window: int,
        context: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Gap:
        """The largest gap of all replicas. `context` gives what training computes in. Raises `EngineMismatch` beyond the tolerance.

        The prompt is the same each time, so that an engine which keeps prefixes over a sync is found out.
        """
        num_new = max(1, min(self.num_new_tokens, window // 2))
        length = max(1, min(self.num_prompt_tokens, window - num_new))
        prompt = _prompt(model, length, seed=0)
        gaps: list[Gap] = []
        for replica in engine.replicas():
            gap = largest_gap(replica, model, prompt, num_new, context)
            tolerance = self._allowed(gap)
            if gap.size > tolerance:
                other = _prompt(model, length, seed=1 + replica.policy_version)
                fresh = largest_gap(replica, model, other, num_new, context)
                raise EngineMismatch(_message(replica, gap, tolerance, _cause(replica, fresh, tolerance)))
            gaps.append(gap)
        return max(gaps, key=lambda gap: gap.size)

    def _allowed(self, gap: Gap) -> float:
        return self.tolerance if self.tolerance is not None else 1e-3 if gap.strict else 0.25


def largest_gap(
    engine: Engine,
    model: PreTrainedModel,
    prompt: list[int],
    num_new: int,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Gap:
    """The prompt continued by the engine, greedily and at temperature 2, each token scored by the model; a NaN is infinite."""
    completions = asyncio.run(_continue(engine, prompt, num_new))
    gaps: list[Gap] = []
    for temperature, said in zip(_TEMPERATURES, completions, strict=True):
        with context():
            scored, half = _score(model, prompt, said.action_ids, temperature or 1.0)
        strict = engine.precision == "float32" and not half
        for t, (theirs, ours) in enumerate(zip(said.behaviour_logprobs, scored, strict=True)):
            size = abs(theirs - ours)
            gaps.append(Gap(size if size == size else float("inf"), t, theirs, ours, strict))
    return max(gaps, key=lambda gap: gap.size)


async def _continue(engine: Engine, prompt: list[int], num_new: int) -> list[Completion]:
    requests = [
        Request(
            dialogue=f"self-test/{temperature}",
            prompt_ids=prompt,
            messages=(),
            max_new_tokens=num_new,
            noise_seed=0,
            temperature=temperature,
        )
        for temperature in _TEMPERATURES
    ]
    try:
        return await asyncio.gather(*(engine.generate(request) for request in requests))
    finally:
        for request in requests:
            engine.release(request.dialogue)


@torch.no_grad()
def _score(
    model: PreTrainedModel, prompt: list[int], action: tuple[int, ...], temperature: float
) -> tuple[list[float], bool]:
    """Log-probs of the action's tokens by the training forward, and whether it computes in less than float32."""
    training = model.training
    model.eval()
    try:
        ids = torch.tensor([[*prompt, *action]], device=model.device)
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, len(prompt) - 1 : -1]
        logits = model.get_output_embeddings()(hidden)  # pyright: ignore[reportOptionalCall]
    finally:
        model.train(training)
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    chosen = logprobs.gather(1, torch.tensor(action, device=logits.device)[:, None]).squeeze(1)
    return chosen.tolist(), logits.dtype != torch.float32


def _prompt(model: PreTrainedModel, length: int, seed: int) -> list[int]:
    """Token ids drawn over the whole vocabulary, the same for the same seed."""
    size = int(model.get_input_embeddings().weight.shape[0])  # pyright: ignore
    drawn = random.Random(seed)
    return [drawn.randrange(size) for _ in range(length)]


def _cause(engine: Engine, fresh: Gap, tolerance: float) -> str:
    if fresh.size <= tolerance:
        return (
            f"With a prompt that the engine cannot have cached the difference is {fresh.size:.1e}: it went on from keys and values "
            "of earlier weights. Its prefix cache has to be emptied with every sync."
        )
    return (
        f"With a prompt that the engine cannot have cached it is {fresh.size:.1e}, so its weights are not the trained ones (one "
        f"left out of the sync?) or it computes otherwise (the engine in {engine.precision}, training in "
        f"{'float32' if fresh.strict else 'less than float32, or the engine does'})."
    )


def _message(engine: Engine, gap: Gap, tolerance: float, cause: str) -> str:
    return (
        f"after sync {engine.policy_version} {engine} does not sample from the policy that is trained: for token "
        f"{gap.token} of a fixed prompt its log-prob is {gap.engine:.4f}, the training forward's {gap.training:.4f}; at most "
        f"{tolerance:g} apart is tolerated. {cause}"
    )
