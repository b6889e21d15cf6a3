"""A scripted policy and a context mechanism, joined."""

import random
from collections.abc import Sequence

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Scripted, beside
from cod_lightning.envs.base import TextPolicy
from cod_lightning.rollout.player import Player
from cod_lightning.types import Message, Role
from tests.asked import answered, opened, shown
from tests.cases import each
from tests.records import episode

PROTOCOLS = each("protocol", ["natural", "compact"])


class Recorder(TextPolicy):
    """Acts and notes as scripted, and remembers what it was shown."""

    def __init__(self, note: str = "1=up") -> None:
        self.text = note
        self.shown: list[tuple[str, Sequence[Message], float]] = []

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        self.shown.append(("act", messages, rng.random()))
        return "left"

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        self.shown.append(("note", messages, rng.random()))
        return self.text


def update(context: HintContext) -> tuple[Message, ...]:
    return opened(context, "lake", episode(feedback="goal 1=up"))


def solve(context: HintContext) -> tuple[Message, ...]:
    return Message(Role.SYSTEM, shown(context, "lake", "1=up")), Message(Role.USER, "where to?")


@PROTOCOLS
def test_a_solve_episode_is_acted_and_an_update_noted_in_the_form_of_the_mechanism(protocol):
    context, policy = HintContext(protocol), Recorder()
    assert Player(policy, context).reply(solve(context), random.Random(0)) == "left"
    assert policy.shown == [("act", solve(context), random.Random(0).random())]
    context, policy = HintContext(protocol), Recorder()
    response = Player(policy, context).reply(update(context), random.Random(3))
    assert response == beside(context, Scripted).write("1=up", ())
    assert policy.shown == [("note", update(context), random.Random(3).random())]


@PROTOCOLS
def test_an_empty_note_is_said_as_it_is_and_does_not_parse(protocol):
    context = HintContext(protocol)
    response = Player(Recorder(note=""), context).reply(update(context), random.Random(0))
    found = answered(context, response, state=beside(context, Scripted).adopt("old"))
    assert (response, found.parsed, found.state.text) == ("", False, "old")
