"""One solve episode and one update episode; whatever an engine or a world raises becomes the episode's status."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.engines.base import Engine
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import EngineFailure, EngineRefused, EnvironmentFailure
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Role, StopReason, Task, Turn


async def run_solve_episode(
    env: TextEnv,
    task: Task,
    context: str,
    *,
    mechanism: ContextMechanism,
    speaker: Speaker,
    identity: str,
    position: int,
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
            success=None if reward is None else env.success,
            feedback=feedback,
            context_before=context,
            context_after=context,
            error=error,
            repeat=task.repeat,
        )

    try:
        with _world_boundary():
            observation, _ = env.reset(options={"task": task})
            system = mechanism.inject(env.rules, context)
        dialogue = speaker.open(identity, (Message(Role.SYSTEM, system), Message(Role.USER, observation)))
        try:
            while True:
                with _engine_boundary(speaker.engine):
                    turn = await dialogue.turn()
                turns.append(turn)
                if turn.stop is StopReason.WINDOW:
                    return ended(EpisodeStatus.TRUNCATED, 0.0, "The policy's window is full.")
                with _world_boundary():
                    step = asyncio.to_thread(env.step, turn.response) if env.blocking else None
                    observation, reward, terminated, truncated, _ = await step if step else env.step(turn.response)
                    _check_reward(float(reward), env)
                if terminated or truncated:
                    return ended(env.status, float(reward), observation)
                dialogue.say(observation)
        finally:
            dialogue.close()
    except (EngineFailure, EnvironmentFailure) as error:
        return ended(EpisodeStatus.FAILED, None, error=f"{type(error).__name__}: {error}")


async def run_update_episode(
    rules: str, solved: Episode, *, mechanism: ContextMechanism, speaker: Speaker, identity: str
) -> Episode:
    """One rewrite of the context, given the solve episode that has just ended."""
    dialogue = speaker.open(identity, mechanism.ask(rules, solved))
    before = solved.context_before
    try:
        with _engine_boundary(speaker.engine):
            turn = await dialogue.turn()
    except EngineFailure as error:
        return Episode(
            kind=EpisodeKind.UPDATE,
            position=solved.position,
            status=EpisodeStatus.FAILED,
            context_before=before,
            context_after=before,
            error=f"{type(error).__name__}: {error}",
        )
    finally:
        dialogue.close()
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


def _check_reward(reward: float, env: TextEnv) -> None:
    low, high = env.reward_range
    if not (math.isfinite(reward) and low <= reward <= high):
        raise EnvironmentFailure(f"{type(env).__name__} gave reward {reward}, outside its range [{low}, {high}]")


@contextmanager
def _world_boundary() -> Iterator[None]:
    try:
        yield
    except EnvironmentFailure:
        raise
    except Exception as error:
        raise EnvironmentFailure(f"{type(error).__name__}: {error}") from error


@contextmanager
def _engine_boundary(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (EngineFailure, EngineRefused):
        raise
    except Exception as error:
        raise EngineFailure(f"{type(engine).__name__} raised {type(error).__name__}: {error}") from error
