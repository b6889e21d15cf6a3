"""A text for which a program asks before a task: an episode of one turn."""

from functools import partial
from typing import Any

from msgspec import structs

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ContextFailure, EnvironmentFailure, described, note_fault
from cod_lightning.lifecycles import Ask, Shown, Written
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
from cod_lightning.rollout.dialogue import close, sampled_turn
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, StopReason, Task


async def run_write_episode(
    ask: Ask,
    env: TextEnv,
    task: Task,
    state: Any,
    setting: Setting,
    identity: str,
    position: int,
    pack_ends: float | None = None,
    shown: Shown = Shown.OWN,
) -> Written:
    """The episode, with reward 0. The context stays as it is, and the mechanism does nothing within the turn."""
    mechanism, sampler = setting.mechanism, setting.sampler_of(EpisodeKind.WRITE)
    status = EpisodeStatus.SKIPPED
    episode = Episode(kind=EpisodeKind.WRITE, position=position, status=status, state_before=state, state_after=state)

    async def begun() -> tuple[str, str]:
        try:
            observation, _ = await answered(env, lambda: env.reset(options={"task": task}))
            message = checked_text(ask.message(env, observation), env)
            see_known(ask.request, sampler.chat, setting.program, "words()")
            see_known(message, sampler.chat, env, type(ask).__name__)
            return checked_text(env.rules, env), message
        except BaseException as error:
            blame(EnvironmentFailure, error)

    async def read(response: str) -> Any:
        try:
            return await answered(env, lambda: ask.read(env, response))
        except BaseException as error:
            blame(EnvironmentFailure, error, env)

    try:
        async with episode_limit(sampler.deadlines, pack_ends):
            sampler.liveness.at(identity, "environment")
            text = crossing(ContextFailure, partial(context_text, mechanism, state), mechanism)
            episode = structs.replace(episode, context_before=text, context_after=text)
            rules, message = await begun()
            system = rules
            if shown is not Shown.RULES:
                seen = state if shown is Shown.OWN else mechanism.empty()
                prepared = crossing(ContextFailure, partial(mechanism.prepare, seen, rules, message), mechanism)
                check_prepared(prepared, mechanism)
                system = prepared.system
            see_known(system, sampler.chat, mechanism, "prepare()")
            dialogue = opened(sampler, identity, system, message, ())
            try:
                turn = await sampled_turn(dialogue)
            finally:
                close(dialogue)
            turns = (turn,) if dialogue.thought is None else (dialogue.thought, turn)
            episode = structs.replace(episode, turns=turns)
            found = await read(dialogue.response)
    except FAULTS as error:
        note_fault(error)
        return Written(structs.replace(episode, status=EpisodeStatus.FAILED, error=described(error)), None)
    finally:
        sampler.liveness.over(identity)
    none = EpisodeStatus.MALFORMED if turn.stop is StopReason.STOP else EpisodeStatus.TRUNCATED
    status = none if found is None else EpisodeStatus.COMPLETED
    return Written(structs.replace(episode, status=status, reward=0.0, success=found is not None), found)
