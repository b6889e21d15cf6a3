"""A scripted policy and a context mechanism, joined; what they play together is in the tests of worlds and of references."""

import random

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Scripted, beside
from cod_lightning.envs.base import TextPolicy
from cod_lightning.rollout.player import Player
from tests.asked import answered, opened
from tests.cases import each
from tests.records import episode


class Silent(TextPolicy):
    def act(self, messages, rng):
        return "left"

    def note(self, messages, rng):
        return ""


@each("protocol", ["natural", "compact"])
def test_an_empty_note_is_said_as_it_is_and_does_not_parse(protocol):
    context = HintContext(protocol)
    response = Player(Silent(), context).reply(opened(context, "lake", episode(feedback="goal 1=up")), random.Random(0))
    found = answered(context, response, state=beside(context, Scripted).adopt("old"))
    assert (response, found.parsed, found.state.text) == ("", False, "old")
