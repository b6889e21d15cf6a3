"""How long a run's rows of tokens can become, from its first prompts, before anything is played."""

import copy
from dataclasses import dataclass
from itertools import takewhile

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv, Tools, beside
from cod_lightning.rollout.asked import first_ids
from cod_lightning.rollout.chat import Chat
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Pack, StopReason, Turn

_ROOM = 1.5
"""For what is not counted: what the environment answers, and responses that take more tokens as a part of another prompt."""


@dataclass(frozen=True)
class RowLength:
    """Of the rows of one kind of episode."""

    longest: int
    """Tokens, about: the first prompt and responses of full length; at most the window."""
    alike: int
    """First tokens that are the same whatever the task."""

    def computed(self, budget: int) -> int:
        """Tokens of a full micro-batch that go through the model, its beginning once (`forward/shared_prefix.py`)."""
        rows = max(1, budget // self.longest)
        return rows * self.longest - (rows - 1) * self.alike


def row_lengths(
    env: TextEnv, context: ContextMechanism, pack: Pack, chat: Chat, window: int, max_new_tokens: int
) -> tuple[RowLength, ...]:
    """Of solve and update episodes, from the first prompts of two tasks with an empty context. Empty where one cannot be made."""
    solving: list[tuple[int, ...]] = []
    updating: list[tuple[int, ...]] = []
    try:
        for task in pack.tasks[:2]:
            world, state = copy.deepcopy(env), context.empty()
            observation, _ = world.reset(options={"task": task})
            rules = world.rules
            system, tools = context.prepare(state, rules, observation).system, beside(world, Tools).schemas
            solving.append(first_ids(chat, system, observation, tools))
            if context.updates:
                opening = next(context.update(state, rules, _unanswered(observation, state), chat))
                updating.append(chat.opening(chat.prefixed(list(opening) if not isinstance(opening, str) else [])))
            world.close()
    except Exception:  # rows may then be as long as the window
        return ()

    def length(prompts: list[tuple[int, ...]], responses: int) -> RowLength:
        full = max(map(len, prompts)) + responses * max_new_tokens
        alike = list(takewhile(lambda ids: len(set(ids)) == 1, zip(*prompts, strict=False)))
        return RowLength(min(window, int(_ROOM * full)), len(alike))

    solved = length(solving, env.max_turns + 1)  # and a context
    return (solved, length(updating, env.max_turns + 2)) if updating else (solved,)


def _unanswered(observation: str, state: object) -> Episode:
    """A solve episode of one turn without words."""
    turn = Turn(
        new_ids=(),
        extends=False,
        action_ids=(),
        behaviour_logprobs=(),
        stop=StopReason.LENGTH,
        policy_version=-1,
        prompt_digest=0,
        observation=observation,
    )
    return Episode(
        kind=EpisodeKind.SOLVE,
        position=0,
        status=EpisodeStatus.MALFORMED,
        turns=(turn,),
        reward=0.0,
        success=False,
        state_before=state,
        state_after=state,
    )
