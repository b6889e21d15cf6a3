"""Episodes of one turn before a task: the agent proposes a task, which may be none, or writes a text, such as a plan."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from msgspec import structs

from cod_lightning.envs.base import Proposals, TextEnv, beside
from cod_lightning.errors import ContextFailure, EnvironmentFailure, described, note_fault
from cod_lightning.lifecycles import Shown
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

T = TypeVar("T")


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

    `task` is the pack's own at that position: the agent is shown rules, context and what may be proposed.
    """

    def made(response: str) -> Task | None:
        found = beside(env, Proposals).proposed(response, task)
        if not isinstance(found, Task | None):
            raise EnvironmentFailure(f"{type(env).__name__}.proposed gave a {type(found).__name__}, not a Task or None")
        return found

    def offered(_: str) -> str:
        offer = checked_text(beside(env, Proposals).offer, env)
        see_known(offer, setting.sampler_of(EpisodeKind.PROPOSE).chat, env, "offer")
        return offer

    return await _one_turn(EpisodeKind.PROPOSE, offered, made, env, task, state, setting, identity, position, pack_ends)


async def run_write_episode(
    request: str,
    env: TextEnv,
    task: Task,
    state: Any,
    setting: Setting,
    identity: str,
    position: int,
    pack_ends: float | None = None,
    shown: Shown = Shown.OWN,
) -> tuple[Episode, str | None]:
    """The episode, with reward 0, and its text; None where there is none. It is shown the task's beginning, then the request."""

    def asked(observation: str) -> str:
        see_known(f"{observation}{request}", setting.sampler_of(EpisodeKind.WRITE).chat, setting.program, "words()")
        return f"{observation}{request}"

    def made(response: str) -> str | None:
        return response.strip() or None

    where = (env, task, state, setting, identity, position, pack_ends)
    return await _one_turn(EpisodeKind.WRITE, asked, made, *where, shown)


async def _one_turn(
    kind: EpisodeKind,
    asked: Callable[[str], str],
    made: Callable[[str], T | None],
    env: TextEnv,
    task: Task,
    state: Any,
    setting: Setting,
    identity: str,
    position: int,
    pack_ends: float | None,
    shown: Shown = Shown.OWN,
) -> tuple[Episode, T | None]:
    """The episode, and what was made of its response. The context stays as it is, and the mechanism does nothing within the turn.

    Args:
        asked: From the task's first observation to the user's message.
        made: From a response to what it stands for, or None.
    """
    mechanism, sampler = setting.mechanism, setting.sampler_of(kind)
    episode = Episode(kind=kind, position=position, status=EpisodeStatus.SKIPPED, state_before=state, state_after=state)

    async def begun() -> tuple[str, str]:
        try:
            observation, _ = await answered(env, lambda: env.reset(options={"task": task}))
            return checked_text(env.rules, env), asked(observation)
        except BaseException as error:
            blame(EnvironmentFailure, error)

    async def read(response: str) -> T | None:
        try:
            return await answered(env, lambda: made(response))
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
        return structs.replace(episode, status=EpisodeStatus.FAILED, error=described(error)), None
    finally:
        sampler.liveness.over(identity)
    none = EpisodeStatus.MALFORMED if turn.stop is StopReason.STOP else EpisodeStatus.TRUNCATED
    status = none if found is None else EpisodeStatus.COMPLETED
    return structs.replace(episode, status=status, reward=0.0, success=found is not None), found
