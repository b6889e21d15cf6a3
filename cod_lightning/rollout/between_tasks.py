"""What the policy writes between tasks: rewrites of its context, and texts for which a program asks."""

from contextlib import closing
from functools import partial
from typing import Any

from cod_lightning.contexts.base import Answer, ContextUpdate, UpdateDialogue
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ContextFailure, EnvironmentFailure
from cod_lightning.lifecycles import Ask, Written
from cod_lightning.rollout.boundaries import (
    answered,
    blame,
    checked_messages,
    checked_text,
    checked_update,
    context_text,
    crossing,
    see_known,
)
from cod_lightning.rollout.dialogue import Dialogue
from cod_lightning.rollout.episode import UnderWay, begun
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Role, StopReason, Task

MOST_UPDATE_TURNS = 32
"""Turns of an update episode; a mechanism that asks for more has failed."""


async def run_update_episode(env: TextEnv, solved: Episode, setting: Setting, identity: str) -> Episode:
    """One rewrite of the context, given the solve episode that has just ended."""
    state, mechanism = solved.state_after, setting.mechanism
    updating = UnderWay(EpisodeKind.UPDATE, solved.position, state, solved.context_after, setting, identity)

    async def play() -> Episode:
        rules = crossing(EnvironmentFailure, lambda: checked_text(env.rules, env))
        try:
            asking = mechanism.update(state, rules, solved, updating.chat)
            opening = checked_messages(next(asking), mechanism)
        except BaseException as error:
            blame(ContextFailure, error, mechanism)
        for message in opening:
            see_known(message.content, updating.chat, mechanism, "update()")
        with closing(Dialogue(updating.sampler, identity, opening)) as dialogue:
            found, cut_off = await _rewritten(asking, dialogue, updating)
        text = crossing(ContextFailure, partial(context_text, mechanism, found.state), mechanism)
        unparsed = EpisodeStatus.TRUNCATED if cut_off else EpisodeStatus.MALFORMED
        return updating.ended(
            EpisodeStatus.COMPLETED if found.parsed else unparsed,
            reward=found.reward,
            success=found.parsed,
            feedback=found.reason,
            context_after=text,
            state_after=found.state,
        )

    return await updating.run(play)


async def _rewritten(asking: UpdateDialogue, dialogue: Dialogue, updating: UnderWay) -> tuple[ContextUpdate, bool]:
    """What the mechanism makes of the policy's answers, and whether the last one was cut off. Raises one of `FAULTS`."""
    mechanism = updating.mechanism
    while True:
        turn = await updating.turn(dialogue)
        if len(updating.turns) > MOST_UPDATE_TURNS:
            raise ContextFailure(f"{type(mechanism).__name__} asks for more than {MOST_UPDATE_TURNS} turns")
        cut_off = turn.stop is not StopReason.STOP
        try:
            asked = asking.send(Answer(response=dialogue.response, cut_off=cut_off))
            asked = checked_text(asked, mechanism, ContextFailure)
        except StopIteration as stop:
            return crossing(ContextFailure, partial(checked_update, stop.value, mechanism), mechanism), cut_off
        except BaseException as error:
            blame(ContextFailure, error, mechanism)
        see_known(asked, updating.chat, mechanism, "update()")
        dialogue.say(asked)


async def run_write_episode(
    ask: Ask, env: TextEnv, task: Task, state: Any, setting: Setting, identity: str, position: int, shown: Any = None
) -> Written:
    """An episode of one turn, with reward 0. The context stays as it is, and the mechanism does nothing within the turn."""
    writing, value = UnderWay(EpisodeKind.WRITE, position, state, "", setting, identity), None

    async def play() -> Episode:
        nonlocal value
        observation, rules = await begun(env, task)
        asked = crossing(EnvironmentFailure, lambda: checked_text(ask.message(env, observation.content), env))
        see_known(ask.request, writing.chat, setting.program, "words()")
        see_known(asked, writing.chat, env, type(ask).__name__)
        system = writing.prepared(state, shown, rules, asked).system
        opening = (Message(Role.SYSTEM, system), Message(Role.USER, asked))
        with closing(Dialogue(writing.sampler, identity, opening)) as dialogue:
            turn = await writing.turn(dialogue)
        try:
            value = await answered(env, lambda: ask.read(env, dialogue.response))
        except BaseException as error:
            blame(EnvironmentFailure, error, env)
        none = EpisodeStatus.MALFORMED if turn.stop is StopReason.STOP else EpisodeStatus.TRUNCATED
        status = none if value is None else EpisodeStatus.COMPLETED
        return writing.ended(status, reward=0.0, success=value is not None)

    return Written(await writing.run(play), value)
