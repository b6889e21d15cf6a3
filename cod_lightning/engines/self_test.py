"""Whether an engine really serves the weights that are trained: a fixed prompt, sampled by one, scored by the other.

Wrong weights do not raise. A projection that a sync left out, keys and values that belong to earlier weights, or another
precision give fluent text and a training that goes nowhere; here they give a number and a message.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.engines.base import Completion, Engine, Request
from cod_lightning.errors import EngineMismatch, unless_stopped
from cod_lightning.forward.last_layer import output_layer
from cod_lightning.ranks import gathered

Inside = Callable[[PreTrainedModel, Callable[[], Tensor]], Tensor]
"""Calls the function as the model's forward pass: where ranks share its parameters out, they have to be put together for it."""

NUM_PROMPT = 160
"""Tokens of a prompt, where the window has room for them; more than a block of any prefix cache."""
_NUM_NEW = 8
"""Tokens that are sampled and compared."""
_TEMPERATURES = (0.0, 2.0)
"""Greedy, and hot enough that even a peaked policy samples unlikely tokens, whose log-probs differ most."""


@dataclass(frozen=True)
class Gap:
    """Where the engine's log-prob (nats) is furthest from the training forward's, at the same temperature."""

    size: float
    """How far; in less than float32 the mean over the tokens, since rounding alone puts a single one .3 apart."""
    token: int
    engine: float
    training: float
    strict: bool
    """Whether both compute in float32."""


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """Compares engine and training forward after each weight sync, and stops the run where they differ."""

    tolerance: float | None = None
    """Largest difference of log-probabilities, in nats: of any token where engine and training both compute in float32, and null
    means 1e-3; else of the mean over the tokens, and 0.25. Of SmolLM2-135M in bfloat16 single tokens are .1 to .3 apart, means .03
    to .06."""

    def __call__(
        self,
        engine: Engine,
        model: PreTrainedModel,
        *,
        window: int,
        context: Callable[[], AbstractContextManager[object]] = nullcontext,
        inside: Inside = lambda _, function: function(),
    ) -> Gap:
        """The largest gap of all ranks and replicas. `context` gives what training computes in.

        Raises `EngineMismatch` beyond the tolerance.

        The prompt is the same each time, so that an engine which keeps prefixes over a sync is found out. All ranks have to ask,
        and raise together.
        """

        def worst(replica: Engine, seed: int) -> Gap:
            drawn = random.Random(seed)
            prompt = [drawn.randrange(vocabulary) for _ in range(length)]
            gap = largest_gap(replica, model, prompt, num_new, context, inside)
            return max(gathered(gap), key=lambda one: one.size)

        vocabulary = int(model.get_input_embeddings().weight.shape[0])  # pyright: ignore
        num_new = max(1, min(_NUM_NEW, window // 2))
        length = max(1, min(NUM_PROMPT, window - num_new))
        own = engine.replicas()
        gaps: list[Gap] = []
        indices = range(max(gathered(len(own))))  # where parameters are sharded, all ranks score equally often
        for index in indices:
            replica = own[min(index, len(own) - 1)]
            gap = worst(replica, 0)
            tolerance = self.tolerance if self.tolerance is not None else 1e-3 if gap.strict else 0.25
            if gap.size > tolerance:
                fresh = worst(replica, 1 + replica.policy_version)
                raise EngineMismatch(_message(replica, gap, tolerance, _cause(replica, fresh, tolerance)))
            gaps.append(gap)
        return max(gaps, key=lambda gap: gap.size)


def largest_gap(
    engine: Engine,
    model: PreTrainedModel,
    prompt: list[int],
    num_new: int,
    context: Callable[[], AbstractContextManager[object]],
    inside: Inside,
) -> Gap:
    """Between engine and model, on the prompt continued by the engine, greedily and at temperature 2; a NaN is infinite."""
    completions = sampled(engine, [(prompt, 0, temperature) for temperature in _TEMPERATURES], num_new)
    actions = [list(completion.action_ids) for completion in completions]
    rows = [[*prompt, *action, *[0] * (max(map(len, actions)) - len(action))] for action in actions]
    gaps: list[Gap] = []
    with context():
        logits = training_logits(model, rows, slice(len(prompt) - 1, -1), inside)
        strict = engine.precision == "float32" and logits.dtype == torch.float32
        for temperature, completion, action, own in zip(
            _TEMPERATURES, completions, actions, logits.float(), strict=True
        ):
            logprobs = torch.log_softmax(own[: len(action)] / (temperature or 1.0), dim=-1)
            ours = logprobs.gather(1, torch.tensor(action, device=logits.device)[:, None]).squeeze(1).tolist()
            for t, (theirs, our) in enumerate(zip(completion.behaviour_logprobs, ours, strict=True)):
                size = abs(theirs - our)
                gaps.append(Gap(size if size == size else float("inf"), t, theirs, our, strict))
    largest = max(gaps, key=lambda gap: gap.size)
    return largest if largest.strict else replace(largest, size=fmean(gap.size for gap in gaps))


def sampled(engine: Engine, asked: Sequence[tuple[list[int], int, float]], num_new: int) -> list[Completion]:
    """What the engine says after each prompt, by that noise seed and temperature; all at once, each in a dialogue of its own."""

    async def answer(number: int, prompt: list[int], seed: int, heat: float) -> Completion:
        name = f"self-test/{number}"
        request = Request(
            dialogue=name, prompt_ids=prompt, messages=(), max_new_tokens=num_new, noise_seed=seed, temperature=heat
        )
        try:
            return await engine.generate(request)
        finally:
            engine.release(name)

    async def all_answers() -> list[Completion]:
        asyncio.get_running_loop().set_exception_handler(unless_stopped)
        return await asyncio.gather(*(answer(number, *one) for number, one in enumerate(asked)))

    return asyncio.run(all_answers())


@torch.no_grad()
def training_logits(
    model: PreTrainedModel, rows: list[list[int]], columns: slice | list[int], inside: Inside
) -> Float[Tensor, "B C V"]:
    """What the training forward gives after the ids in these columns of each row, in its own precision and mode."""

    def forward() -> Tensor:
        ids = torch.tensor(rows, device=model.device)
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, columns]
        return output_layer(model)(hidden)

    return inside(model, forward)


def _cause(engine: Engine, fresh: Gap, tolerance: float) -> str:
    if math.isnan(fresh.training):
        return "The trained weights give no number themselves: lower model.lr, or choose another trainer.precision."
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
    apart = "at most" if gap.strict else f"the mean over all tokens is {gap.size:.2g}, and at most"
    return (
        f"after sync {engine.policy_version} {engine} does not sample from the policy that is trained: for token "
        f"{gap.token} of a fixed prompt its log-prob is {gap.engine:.4f}, the training forward's {gap.training:.4f}; {apart} "
        f"{tolerance:g} apart is tolerated. {cause}"
    )
