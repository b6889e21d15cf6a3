"""How long a run's rows of tokens become, from its first prompts, before anything is played."""

import copy
from contextlib import closing

from cod_lightning.contexts.base import Answer, ContextMechanism, UpdateDialogue
from cod_lightning.envs.base import TextEnv, Tools, beside
from cod_lightning.errors import ContextFailure
from cod_lightning.rollout.asked import first_ids
from cod_lightning.rollout.between_tasks import MOST_UPDATE_TURNS
from cod_lightning.rollout.boundaries import checked_messages, checked_text
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
    longest = 0
    try:
        for task in pack.tasks[:2]:
            state = context.empty()
            with closing(copy.deepcopy(env)) as world:
                begun, _ = world.reset(options={"task": task})
                observation, rules, tools = text_of(begun), world.rules, beside(world, Tools).schemas
            system = context.prepare(state, rules, observation).system
            prompt, num_responses = len(first_ids(chat, system, observation, tools)), env.max_turns + 1
            longest = max(longest, prompt + num_responses * max_new_tokens)
            if context.updates:
                asking = context.update(state, rules, _unanswered(observation, state), chat)
                prompt, num_answers = _asked(asking, context, chat)
                num_responses = num_answers * (env.max_turns + 2)  # the task's, its own, and a context
                longest = max(longest, prompt + num_responses * max_new_tokens)
    except Exception:  # rows may then be as long as the window
        return window
    return min(window, int(_ROOM * longest))


def _asked(asking: UpdateDialogue, context: ContextMechanism, chat: Chat) -> tuple[int, int]:
    """Tokens of all prompts of an update that is answered without a word, and its answers. Raises what the mechanism raises."""
    prompt = len(chat.opening(chat.prefixed(checked_messages(next(asking), context))))
    for num_answers in range(1, MOST_UPDATE_TURNS + 1):
        try:
            asked = asking.send(Answer(response="", cut_off=True))
        except StopIteration:
            return prompt, num_answers
        prompt += len(chat.continuation(checked_text(asked, context), None))
    raise ContextFailure("an update without end")


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
