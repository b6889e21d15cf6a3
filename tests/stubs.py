"""Small worlds, contexts and engines that tests share."""

import copy
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from cod_lightning.contexts.base import (
    ContextMechanism,
    ContextUpdate,
    Prepared,
    Scripted,
    TextState,
    TokenView,
    UpdateDialogue,
)
from cod_lightning.engines.base import Completion, Engine, Request, digest
from cod_lightning.envs.base import TextEnv, Vocabulary
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.types import Episode, EpisodeStatus, Message, Pack, Role, Split, StopReason, Task

WORDS = tuple(f"w{i}" for i in range(40))


def counted(world: Any) -> tuple[Any, list[TextEnv], list[TextEnv]]:
    """The class, the copies that are made of its worlds from now on, and those of them that are closed, each in their order."""
    made, closed = list[TextEnv](), list[TextEnv]()

    class Counted(world):
        def __deepcopy__(self, memo: Any) -> TextEnv:
            made.append(copy.copy(self))
            return made[-1]

        def close(self) -> None:
            closed.append(self)

    return Counted, made, closed


class WordVocabulary(Vocabulary["WordWorld"]):
    """What a `WordWorld` says."""

    def words(self) -> tuple[str, ...]:
        return self.env.words()


class WordWorld(TextEnv):
    """Shows random words for a fixed number of turns; the reward counts turns in which w1 was said."""

    companions = (WordVocabulary,)

    name = "words"

    def __init__(self, max_turns: int = 3, raise_in: str = "", bad_reward: bool = False) -> None:
        self.max_turns, self.raise_in, self.bad_reward = max_turns, raise_in, bad_reward
        self._hits, self._turn = 0, 0

    @property
    def rules(self) -> str:
        return "rules"

    @property
    def success(self) -> bool:
        return self._hits > 0

    @property
    def status(self) -> EpisodeStatus:
        return EpisodeStatus.COMPLETED

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        tasks = tuple(Task(id=f"{index}.{n}", seed=1000 * index + n, spec=None) for n in range(num_tasks))
        return Pack(id=f"words/{split}/{seed}/{index}", split=split, world_seed=index, tasks=tasks)

    def reset(self, *, seed=None, options=None):
        task = options["task"]
        if task.id.endswith(self.raise_in or "\0"):
            raise RuntimeError("the world is broken")
        self._random, self._turn, self._hits = random.Random(task.seed), 0, 0
        return " ".join(self._random.choices(WORDS, k=4)), {}

    def step(self, action):
        self._turn += 1
        self._hits += "w1" in action.split()
        reward = 7.0 if self.bad_reward else self._hits / self.max_turns
        return " ".join(self._random.choices(WORDS, k=2)), reward, self._turn == self.max_turns, False, {}

    def words(self) -> tuple[str, ...]:
        return ("rules", *WORDS)


class PlainScripted(Scripted):
    def adopt(self, note: str) -> TextState:
        return TextState(note)

    def asks(self, messages: Sequence[Message]) -> bool:
        return messages[0].content == "w2"

    def write(self, note: str, messages: Sequence[Message]) -> str:
        return note


class PlainContext(ContextMechanism):
    """Whatever the policy says becomes the context."""

    companions = (PlainScripted,)

    def empty(self) -> TextState:
        return TextState()

    def text(self, state: TextState) -> str:
        return state.text

    def prepare(self, state: TextState, rules: str, observation: str) -> Prepared:
        return Prepared(f"{rules} {state.text}".strip(), state)

    def update(self, state: TextState, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        response = (yield Message(Role.SYSTEM, "w2"), Message(Role.USER, episode.feedback)).response
        if tokens.control_token(response) or not response:
            return ContextUpdate(state=state, reward=-0.1, parsed=False, reason="control token")
        return ContextUpdate(state=TextState(response), reward=0.0, parsed=True)


PADDED_BY_0: Any = SimpleNamespace(mechanism=PlainContext(), sampler=SimpleNamespace(chat=SimpleNamespace(pad_id=0)))
"""All that rows, and sources that look at contexts, need of a `Setting`."""


class FunctionEngine(Engine):
    """Answers with the ids that a function gives; records its requests."""

    def __init__(self, answer: Callable[[Request], Sequence[int]], stop_id: int = 2) -> None:
        self.answer, self.stop_id = answer, stop_id
        self.requests: list[Request] = []
        self.prompts: list[tuple[int, ...]] = []
        self.released: list[str] = []

    async def generate(self, request: Request) -> Completion:
        self.requests.append(structs.replace(request, messages=tuple(request.messages)))
        self.prompts.append(tuple(request.prompt_ids))
        ids = tuple(self.answer(request))[: request.max_new_tokens]
        return Completion(
            action_ids=ids,
            behaviour_logprobs=(-1.0,) * len(ids),
            stop=StopReason.STOP if ids[-1:] == (self.stop_id,) else StopReason.LENGTH,
            policy_version=0,
            prompt_digest=digest(request.prompt_ids),
        )

    def release(self, dialogue: str) -> None:
        self.released.append(dialogue)


class Following(RolloutObserver):
    """Calls these functions."""

    def __init__(self, **functions: Callable[..., None]) -> None:
        vars(self).update(functions)


class Unrewarding(WordWorld):
    """In every other pack all rewards are 0."""

    def reset(self, *, seed=None, options=None):
        self.worthless = int(options["task"].id.partition(".")[0]) % 2 == 1
        return super().reset(options=options)

    def step(self, action):
        text, reward, *rest = super().step(action)
        return text, reward * (not self.worthless), *rest
