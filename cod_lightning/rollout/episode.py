"""One solve episode and one update episode; whatever an engine or a world raises becomes the episode's status."""

import asyncio
import math
from collections.abc import Coroutine
from functools import partial
from typing import Any, NoReturn

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.engines.base import Engine
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import EngineFailure, EngineRefused, EnvironmentFailure, OutOfTime, TurnTimeout
from cod_lightning.rollout.deadlines import episode_limit
from cod_lightning.rollout.dialogue import Dialogue, Speaker
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Role, StopReason, Task, Turn

_FAULTS = (EngineFailure, EnvironmentFailure, OutOfTime)
"""They cost their lifecycle; anything else ends the run."""


async def run_solve_episode(
    env: TextEnv,
    task: Task,
    context: str,
    *,
    mechanism: ContextMechanism,
    speaker: Speaker,
    identity: str,
    position: int,
    pack_ends: float | None = None,
) -> Episode:
    """All turns of one task, given the context that earlier tasks left."""
    turns: list[Turn] = []

    def ended(status: EpisodeStatus, reward: float | None, feedback: str = "", error: str = "") -> Episode:
        return Episode(
            kind=EpisodeKind.SOLVE,
            position=position,
            status=status,
            turns=tuple(turns),
            reward=reward,
            success=None if reward is None else bool(env.success),
            feedback=feedback,
            context_before=context,
            context_after=context,
            error=error,
            repeat=task.repeat,
        )

    try:
        async with episode_limit(speaker.deadlines, pack_ends):
            speaker.pulse.at(identity, "world")
            try:
                begin = partial(env.reset, options={"task": task})
                observation, _ = await asyncio.to_thread(begin) if env.blocking else begin()
                _check_text(observation, env)
                system = mechanism.inject(env.rules, context)
            except Exception as error:
                _blame_world(error)
            dialogue = speaker.open(identity, (Message(Role.SYSTEM, system), Message(Role.USER, observation)))
            try:
                while True:
                    turn = await _turn(dialogue)
                    turns.append(turn)
                    try:
                        if turn.stop is StopReason.WINDOW:
                            return ended(EpisodeStatus.TRUNCATED, 0.0, "The policy's window is full.")
                        done = (
                            await asyncio.to_thread(env.step, turn.response)
                            if env.blocking
                            else env.step(turn.response)
                        )
                        observation, reward, terminated, truncated, _ = done
                        _check_reward(float(reward), env)
                        _check_text(observation, env)
                        if terminated or truncated:
                            return ended(EpisodeStatus(env.status), float(reward), observation)
                    except Exception as error:
                        _blame_world(error)
                    dialogue.say(observation)
            finally:
                _close(dialogue)
    except _FAULTS as error:
        return ended(EpisodeStatus.FAILED, None, error=f"{type(error).__name__}: {error}")
    finally:
        speaker.pulse.over(identity)


async def run_update_episode(
    rules: str,
    solved: Episode,
    *,
    mechanism: ContextMechanism,
    speaker: Speaker,
    identity: str,
    pack_ends: float | None = None,
) -> Episode:
    """One rewrite of the context, given the solve episode that has just ended."""
    before = solved.context_before
    try:
        async with episode_limit(speaker.deadlines, pack_ends):
            dialogue = speaker.open(identity, mechanism.ask(rules, solved))
            try:
                turn = await _turn(dialogue)
            finally:
                _close(dialogue)
    except _FAULTS as error:
        return Episode(
            kind=EpisodeKind.UPDATE,
            position=solved.position,
            status=EpisodeStatus.FAILED,
            context_before=before,
            context_after=before,
            error=f"{type(error).__name__}: {error}",
        )
    finally:
        speaker.pulse.over(identity)
    read = mechanism.read(
        turn.response,
        num_tokens=len(turn.action_ids),
        context_before=before,
        special_tokens=speaker.chat.special_tokens,
    )
    cut_off = turn.stop is not StopReason.STOP
    unparsed = EpisodeStatus.TRUNCATED if cut_off else EpisodeStatus.MALFORMED
    return Episode(
        kind=EpisodeKind.UPDATE,
        position=solved.position,
        status=EpisodeStatus.COMPLETED if read.parsed else unparsed,
        turns=(turn,),
        reward=read.reward,
        success=read.parsed,
        feedback=read.reason,
        context_before=before,
        context_after=read.context,
    )


def _turn(dialogue: Dialogue) -> Coroutine[Any, Any, Turn]:
    """The policy's next words, within the time that a turn may take."""
    limit_s = dialogue.speaker.deadlines.turn_s
    return _spoken(dialogue) if limit_s is None else _spoken_within(limit_s, dialogue)


async def _spoken_within(limit_s: float, dialogue: Dialogue) -> Turn:
    try:
        async with asyncio.timeout(limit_s):
            return await _spoken(dialogue)
    except TimeoutError:
        engine = type(dialogue.speaker.engine).__name__
        raise TurnTimeout(f"{engine} did not answer in data.deadlines.turn_s={limit_s:g} s") from None


async def _spoken(dialogue: Dialogue) -> Turn:
    speaker = dialogue.speaker
    speaker.pulse.at(dialogue.identity, "engine")
    try:
        turn = await dialogue.turn()
    except Exception as error:
        _blame_engine(speaker.engine, error)
    speaker.pulse.at(dialogue.identity, "world")
    return turn


def _check_reward(reward: float, env: TextEnv) -> None:
    low, high = env.reward_range
    if not (math.isfinite(reward) and low <= reward <= high):
        raise EnvironmentFailure(f"{type(env).__name__} gave reward {reward}, outside its range [{low}, {high}]")


def _check_text(observation: object, env: TextEnv) -> None:
    if not isinstance(observation, str):
        raise EnvironmentFailure(f"{type(env).__name__} showed a {type(observation).__name__}, not a string")
    observation.encode()  # half of a surrogate pair is no text, and no tokenizer takes it


def _blame_world(error: Exception) -> NoReturn:
    """Whatever a world raises is an `EnvironmentFailure`, unless its judge was refused."""
    if isinstance(error, EnvironmentFailure | EngineRefused):
        raise error
    raise EnvironmentFailure(f"{type(error).__name__}: {error}") from error


def _blame_engine(engine: Engine, error: Exception) -> NoReturn:
    """Whatever an engine raises is an `EngineFailure` that names it, or else says that the request was refused."""
    if isinstance(error, EngineFailure | EngineRefused):
        raise error
    raise EngineFailure(f"{type(engine).__name__} raised {type(error).__name__}: {error}") from error


def _close(dialogue: Dialogue) -> None:
    """Give the engine's place back."""
    try:
        dialogue.close()
    except Exception as error:
        _blame_engine(dialogue.speaker.engine, error)
