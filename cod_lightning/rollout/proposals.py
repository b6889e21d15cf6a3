"""One proposal: the agent is shown rules, context and what may be proposed, and its answer is made into a task, or is none."""

from functools import partial
from typing import Any

from msgspec import structs

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ContextFailure, EnvironmentFailure, described, note_fault
from cod_lightning.rollout.asked import opened
from cod_lightning.rollout.boundaries import (
    FAULTS,
    answered,
    blame,
    check_prepared,
    checked_text,
    context_text,
    crossing,
    see_known,
)
from cod_lightning.rollout.deadlines import episode_limit
from cod_lightning.rollout.sampled import close, sampled_turn
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, StopReason, Task


async def run_propose_episode(
    env: TextEnv,
    task: Task,
    state: Any,
    setting: Setting,
    identity: str,
    position: int,
    pack_ends: float | None = None,
) -> tuple[Episode, Task | None]:
    """The episode, with reward 0 until its solve episodes are known, and the task; None where the answer proposes none.

    `task` is the pack's own at that position. The context stays as it is, and the mechanism does nothing within the one turn.
    """
    mechanism, sampler = setting.mechanism, setting.sampler_of(EpisodeKind.PROPOSE)
    episode = Episode(
        kind=EpisodeKind.PROPOSE,
        position=position,
        status=EpisodeStatus.SKIPPED,
        state_before=state,
        state_after=state,
    )

    try:
        async with episode_limit(sampler.deadlines, pack_ends):
            sampler.liveness.at(identity, "environment")
            text = crossing(ContextFailure, partial(context_text, mechanism, state), mechanism)
            episode = structs.replace(episode, context_before=text, context_after=text)
            rules, offer = await _offered(env, task)
            see_known(offer, sampler.chat, env, "offer")
            prepared = crossing(ContextFailure, partial(mechanism.prepare, state, rules, offer), mechanism)
            check_prepared(prepared, mechanism)
            see_known(prepared.system, sampler.chat, mechanism, "prepare()")
            dialogue = opened(sampler, identity, prepared.system, offer, ())
            try:
                turn = await sampled_turn(dialogue)
            finally:
                close(dialogue)
            turns = (turn,) if dialogue.thought is None else (dialogue.thought, turn)
            episode = structs.replace(episode, turns=turns)
            made = await _made(env, task, dialogue.response)
    except FAULTS as error:
        note_fault(error)
        return structs.replace(episode, status=EpisodeStatus.FAILED, error=described(error)), None
    finally:
        sampler.liveness.over(identity)
    none = EpisodeStatus.MALFORMED if turn.stop is StopReason.STOP else EpisodeStatus.TRUNCATED
    status = none if made is None else EpisodeStatus.COMPLETED
    return structs.replace(episode, status=status, reward=0.0, success=made is not None), made


async def _offered(env: TextEnv, task: Task) -> tuple[str, str]:
    """Rules and offer. Raises `EnvironmentFailure`."""
    try:
        await answered(env, lambda: env.reset(options={"task": task}))
        return checked_text(env.rules, env), checked_text(env.offer, env)
    except BaseException as error:
        blame(EnvironmentFailure, error)


async def _made(env: TextEnv, task: Task, response: str) -> Task | None:
    """The task that the response proposes. Raises `EnvironmentFailure`."""
    try:
        made = await answered(env, lambda: env.proposed(response, task))
    except BaseException as error:
        blame(EnvironmentFailure, error, env)
    if not isinstance(made, Task | None):
        raise EnvironmentFailure(f"{type(env).__name__}.proposed gave a {type(made).__name__}, not a Task or None")
    return made
