"""One dialogue with the engine in exact tokens: a turn's prompt is the previous ids plus new ids.

Only where the chat follows a template that rewrites history, or the context mechanism replaces it, is it rendered again, and a new
segment begins: the engine knows it as another dialogue, and its turn does not extend the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from cod_lightning.engines.base import Engine, Request, digest
from cod_lightning.errors import ConfigError, EngineFailure, TurnTimeout
from cod_lightning.rollout.boundaries import blame, check_completion, crossing
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.deadlines import Deadlines, Limited, Liveness
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Message, Part, Role, StopReason, Turn


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """A policy as the rollout meets it: an engine, how to talk to it, and how to sample."""

    engine: Engine
    chat: Chat
    window: int
    """Most tokens of a prompt and its response together."""
    max_new_tokens: int
    """Most tokens of one response."""
    temperature: float = 1.0
    seed: int = 0
    """Run seed of the sampling noise."""
    policy_version: int = 0
    num_ids: int | None = None
    """Size of the vocabulary that the engine samples from; None: the tokenizer's."""
    deadlines: Deadlines = Deadlines()  # noqa: RUF009  (frozen)
    """How long to wait for the engine, the environment and the reward."""
    liveness: Liveness = field(default_factory=Liveness)
    """Where its live episodes are."""

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below it."""
        return self.num_ids or self.chat.num_ids


class Dialogue:
    """The growing prompt of one episode. Close it, so that the engine can drop its cache.

    Args:
        sampler: The policy.
        identity: Of the episode (pack, sibling, episode); it keys the noise.
        messages: What is asked first; empty where `put` is to come before the first turn.
    """

    def __init__(self, sampler: Sampler, identity: str, messages: Sequence[Message] = ()) -> None:
        self.sampler, self.identity = sampler, identity
        self.response = ""
        """All of the policy's latest response."""
        self._ids: list[int] = []
        self._num_turns = self._num_rewrites = 0
        self._name = identity
        """The engine's key for the dialogue: within one name, prompts extend each other."""
        self._begin(sampler.chat.prefixed(messages))

    @property
    def ids(self) -> Sequence[int]:
        """The prompt so far, with the latest action at its end."""
        return self._ids

    async def turn(self, most_tokens: int | None = None) -> Turn:
        """The policy's next turn, within the time that one may take, of no more than `most_tokens`. Without room for a single token
        it is empty and stops with WINDOW. Raises `EngineFailure`."""
        sampler, limit_s = self.sampler, self.sampler.deadlines.turn_s
        wanted = sampler.max_new_tokens
        if most_tokens is not None:
            wanted = max(1, min(most_tokens, wanted))
        sampler.liveness.at(self.identity, "engine")
        who = type(sampler.engine).__name__
        try:
            async with Limited(
                limit_s, lambda: TurnTimeout(f"{who} did not answer in data.deadlines.turn_s={limit_s:g} s")
            ):
                turn = await self._sampled(wanted)
        except ConfigError:
            raise
        except BaseException as error:
            blame(EngineFailure, error, sampler.engine)
        sampler.liveness.at(self.identity, "environment")
        return turn

    async def _sampled(self, wanted: int) -> Turn:
        """One call of the engine, of no more tokens than that, whose text is the next message."""
        sampler = self.sampler
        if self._new_parts and not sampler.engine.takes_media:
            raise EngineFailure(f"{sampler.engine} was shown an image, and reads text alone")
        self._digest = digest(self._ids[self._num_digested :], self._digest)
        self._num_digested = len(self._ids)
        room = sampler.window - len(self._ids)
        if room < 1:
            self.response = ""
            turn = self._turn((), (), StopReason.WINDOW, sampler.policy_version)
            self.messages.append(Message(Role.ASSISTANT, ""))  # a template may want roles to alternate
            return turn
        noise_seed = derive_seed(sampler.seed, sampler.policy_version, self.identity, self._num_turns)
        most = min(room, wanted)
        completion = await sampler.engine.generate(
            Request(
                dialogue=self._name,
                prompt_ids=self._ids,
                messages=self.messages,
                max_new_tokens=most,
                noise_seed=noise_seed,
                temperature=sampler.temperature,
            )
        )
        completion = check_completion(
            completion,
            max_new_tokens=most if sampler.engine.has_weights else None,
            num_ids=sampler.vocabulary_size,
            prompt_digest=self._digest,
        )
        cut_by_window = completion.stop is StopReason.LENGTH and room < wanted
        self.response = sampler.chat.decode(completion.action_ids)
        stop = StopReason.WINDOW if cut_by_window else completion.stop
        turn = self._turn(completion.action_ids, completion.behaviour_logprobs, stop, completion.policy_version)
        self.messages.append(Message(Role.ASSISTANT, self.response))
        self._ids.extend(completion.action_ids)
        self._num_turns += 1
        self._extends = True
        return turn

    def _turn(self, ids: tuple[int, ...], logprobs: tuple[float, ...], stop: StopReason, version: int) -> Turn:
        """The record of this response to the prompt so far."""
        return Turn(
            new_ids=self._new_ids,
            extends=self._extends,
            action_ids=ids,
            behaviour_logprobs=logprobs,
            stop=stop,
            policy_version=version,
            prompt_digest=self._digest,
            observation=self.messages[-1].content,
            parts=self._new_parts,
            response=self.response,
        )

    def say(self, text: str, parts: tuple[Part, ...] = ()) -> None:
        """Append the user's next message, as text and as parts where it shows images."""
        chat, response = self.sampler.chat, self.messages[-1].content
        self.messages.append(Message(Role.USER, text, parts))
        if chat.rewrite_history:
            kept, self._prompt = chat.extended(self._prompt, response, text), chat.rendered(self.messages)
            if kept != self._prompt:
                self._begin_again(chat.encode(self._prompt))
                return
        self._new_ids = chat.continuation(text, self._ids[-1] if self._num_turns else None)
        self._new_parts = parts
        self._ids.extend(self._new_ids)

    def go_on(self, messages: Sequence[Message]) -> None:
        """Make this the dialogue, its last message the user's; what it only adds to what was said extends the prompt."""
        messages = self.sampler.chat.prefixed(messages)
        if list(messages[:-1]) == self.messages:
            self.say(messages[-1].content, messages[-1].parts)
            return
        self._begin(messages)

    def put(self, messages: Sequence[Message], ids: tuple[int, ...], *, extends: bool) -> None:
        """Ask these messages next, in text, whose ids another than the chat has made: those after the prompt so far, or all of a
        prompt."""
        self.messages = list(messages)
        if not extends:
            self._begin_again(ids)
            return
        self._new_ids, self._new_parts = ids, ()
        self._ids.extend(ids)

    def close(self) -> None:
        """Give the engine's place back. Raises `EngineFailure`."""
        crossing(EngineFailure, partial(self.sampler.engine.release, self._name), self.sampler.engine)

    def _begin(self, messages: Sequence[Message]) -> None:
        """Begin with these messages; without any the prompt is empty."""
        chat, self.messages = self.sampler.chat, list(messages)
        self._prompt = chat.rendered(messages) if chat.rewrite_history and messages else ""
        """As text, where it may be rewritten."""
        self._begin_again(chat.opening(messages) if messages else ())

    def _begin_again(self, ids: tuple[int, ...]) -> None:
        """Begin a new segment with this prompt, of which the ids so far are no prefix."""
        if self._ids:
            self.close()
            self._num_rewrites += 1
            self._name = f"{self.identity}#{self._num_rewrites}"
        self._extends = False
        self._new_ids, self._ids = ids, list(ids)
        self._new_parts = tuple(chain.from_iterable(message.parts for message in self.messages))
        """Of the messages within the new ids."""
        self._digest = self._num_digested = 0
        """Of the first so many ids."""
