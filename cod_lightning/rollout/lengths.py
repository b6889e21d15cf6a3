"""How long a run's rows of tokens become, from its first prompts, before anything is played."""

import copy
from contextlib import closing

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv, Tools, beside
from cod_lightning.rollout.asked import first_ids
from cod_lightning.rollout.boundaries import checked_opening
from cod_lightning.rollout.chat import Chat
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Pack, StopReason, Turn, text_of

_ROOM = 1.5
"""For what is not counted: what the environment answers, and responses that take more tokens as a part of another prompt."""


def longest_row(
    env: TextEnv, context: ContextMechanism, pack: Pack, chat: Chat, window: int, max_new_tokens: int
) -> int:
    """Tokens of the longest solve or update episode, about: the first prompt of two tasks with an empty context, and responses of
    full length. The window where such a prompt cannot be made.
    """
    solving: list[tuple[int, ...]] = []
    updating: list[tuple[int, ...]] = []
    try:
        for task in pack.tasks[:2]:
            state = context.empty()
            with closing(copy.deepcopy(env)) as world:
                begun, _ = world.reset(options={"task": task})
                observation, rules, tools = text_of(begun), world.rules, beside(world, Tools).schemas
            system = context.prepare(state, rules, observation).system
            solving.append(first_ids(chat, system, observation, tools))
            if context.updates:
                asking = context.update(state, rules, _unanswered(observation, state), chat)
                updating.append(chat.opening(chat.prefixed(checked_opening(next(asking), context))))
    except Exception:  # rows may then be as long as the window
        return window

    longest = 0
    for prompts, num_responses in ((solving, env.max_turns + 1), (updating, env.max_turns + 2)):  # and a context
        longest = max(longest, max(map(len, prompts), default=0) + num_responses * max_new_tokens * bool(prompts))
    return min(window, int(_ROOM * longest))


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
