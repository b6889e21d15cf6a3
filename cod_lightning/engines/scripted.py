"""Engines without a model, so that scripted policies and recorded episodes run through the very same rollout."""

import random
from collections.abc import Callable, Sequence
from itertools import takewhile

from cod_lightning.engines.base import Completion, Engine, Request, digest
from cod_lightning.errors import EngineFailure
from cod_lightning.types import Message, StopReason, Turn


class ScriptedEngine(Engine):
    """Answers with the text of `reply`.

    Args:
        reply: From the dialogue and a random generator (seeded by the request) to the response's text.
        encode: From text to token ids.
        stop_id: Ends every response that is not cut off; a response that spells it ends there, as a sampled one would.
    """

    takes_media = True

    def __init__(
        self,
        reply: Callable[[Sequence[Message], random.Random], str],
        encode: Callable[[str], Sequence[int]],
        stop_id: int,
    ) -> None:
        self._reply, self._encode, self._stop_id = reply, encode, stop_id

    async def generate(self, request: Request) -> Completion:
        """The reply as token ids, each with log-probability 0; cut at `max_new_tokens`."""
        try:
            encoded = self._encode(self._reply(request.messages, random.Random(request.noise_seed)))
        except Exception as error:
            raise EngineFailure(f"the scripted policy raised {type(error).__name__}: {error}") from error
        action = takewhile(lambda token_id: token_id != self._stop_id, encoded)
        ids = (*action, self._stop_id)[: request.max_new_tokens]
        return Completion(
            action_ids=ids,
            behaviour_logprobs=(0.0,) * len(ids),
            stop=StopReason.STOP if ids[-1:] == (self._stop_id,) else StopReason.LENGTH,
            policy_version=-1,
            prompt_digest=digest(request.prompt_ids),
        )


class Recorded(Engine):
    """Gives the turns of one episode again."""

    has_weights = False
    takes_media = True

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = iter(turns)

    async def generate(self, request: Request) -> Completion:
        """The next turn. Raises `EngineFailure` after the last."""
        turn = next(self._turns, None)
        if turn is None:
            raise EngineFailure("the recorded episode has ended")
        return Completion(
            action_ids=turn.action_ids,
            behaviour_logprobs=turn.behaviour_logprobs,
            stop=turn.stop,
            policy_version=turn.policy_version,
            prompt_digest=digest(request.prompt_ids),
        )
