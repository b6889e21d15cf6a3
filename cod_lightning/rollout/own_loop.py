"""A solve episode whose loop is a program's: it asks at the endpoint while it plays, and every answer is a turn."""

import asyncio
from functools import partial

from cod_lightning.envs.own_loop import OwnLoop
from cod_lightning.errors import EnvironmentFailure
from cod_lightning.rollout.boundaries import blame, check_reward, checked_text, crossing, see_known
from cod_lightning.rollout.deadlines import in_thread
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.endpoint import serving
from cod_lightning.rollout.recorder import Recorder
from cod_lightning.types import Message, Role, Task, Turn

_STOP_S = 10.0
"""In which a program has to be gone that was interrupted."""


async def play(
    env: OwnLoop, task: Task, system: str, sampler: Sampler, identity: str, turns: list[Turn]
) -> tuple[str, float | None]:
    """Feedback and reward; no reward where the program was ended because its turns or the policy's window were used up.

    The turns are put into `turns` as they come. Raises what ended the program from the policy's side, and `EnvironmentFailure`.
    """
    system = sampler.chat.prefixed((Message(Role.SYSTEM, system),))[0].content
    see = partial(see_known, chat=sampler.chat, who=env, method="program")
    most = env.max_turns if task.max_turns is None else min(env.max_turns, task.max_turns)
    recorder = Recorder(sampler, identity, "" if env.shows_context else system, most, see, turns)
    async with serving(recorder) as access:
        program = asyncio.ensure_future(
            in_thread(partial(crossing, EnvironmentFailure, partial(env.play, system, access)), bounded=True)
        )
        ended = asyncio.ensure_future(recorder.ended.wait())
        try:
            await asyncio.wait({program, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            if not program.done():
                crossing(EnvironmentFailure, env.interrupt)
                await asyncio.wait({program}, timeout=_STOP_S)
            # one that still waits for a thread would begin when its task is over
            if not program.cancel() and not program.cancelled():
                program.exception()  # seen
    if recorder.fault is not None:
        raise recorder.fault
    if recorder.limit:
        return recorder.limit, None
    try:
        feedback, reward = await program
        check_reward(float(reward), env)
        return checked_text(feedback, env), float(reward)
    except BaseException as error:
        blame(EnvironmentFailure, error)
