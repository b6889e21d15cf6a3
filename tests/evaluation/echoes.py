"""An agent that answers with the system text that it sees and writes a new note every time: what was shown is on record."""

import itertools
import random
from collections.abc import Sequence

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv, TextPolicy
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.evaluation.suite import Suite
from cod_lightning.evaluation.suite_player import play
from cod_lightning.rollout.setting import RolloutMonitor, Setting
from cod_lightning.types import Group, Message

MECHANISM = HintContext(response_limit=77)


class Echo(TextPolicy):
    def __init__(self) -> None:
        self.count = itertools.count()

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return messages[0].content

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return f"note number {next(self.count)}."


def echoed(
    suite: Suite,
    control: str,
    world: TextEnv,
    *,
    policy: TextPolicy | None = None,
    mechanism: ContextMechanism = MECHANISM,
    trained: Sequence[Group] = (),
) -> list[Group]:
    """The suite as the echo plays it under one control."""
    (one,) = [c for c in suite.conditions() if c.name == control]
    sampler = scripted_sampler(policy or Echo(), mechanism)
    packs = suite.packs(world)
    setting = Setting(env=world, mechanism=mechanism, sampler=sampler, monitor=RolloutMonitor())
    return play(suite, one, packs, setting, trained)


def shown(group: Group) -> list[str]:
    """The system text at each position."""
    return [solve.turns[0].response for solve in group.lifecycles[0].solves]
