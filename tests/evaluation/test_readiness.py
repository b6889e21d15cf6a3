"""A suite that cannot be played is refused by name, before anything is."""

from typing import Any

import pytest

from cod_lightning.byte_tokenizer import byte_tokenizer
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.envs.base import Players, Vocabulary, beside
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.controls import CONTROLS, DEFAULT_CONTROLS
from cod_lightning.evaluation.readiness import ready
from cod_lightning.evaluation.suite import Suite
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from tests.cases import each
from tests.evaluation.sessions import Sessions
from tests.stubs import PlainContext, WordWorld

LEVERS, COMPACT = Levers(protocol="compact"), HintContext("compact")


def settled(suite: Suite, world: Any = LEVERS, context: Any = COMPACT, chat: Chat | None = None) -> Suite:
    return ready(suite, world, 5, context, chat or Chat(byte_tokenizer()))


def tiny_chat() -> Chat:
    return Chat(TinyPolicy().tokenizer(beside(LEVERS, Vocabulary).words() + beside(COMPACT, Words).words()))


def test_what_a_suite_leaves_open_is_taken_from_the_training_and_controls_need_references() -> None:
    suite = settled(Suite(name="a", pack_size=None))
    assert (suite.env, suite.pack_size, suite.controls) == (LEVERS, 5, DEFAULT_CONTROLS)
    assert settled(Suite(name="a"), WordWorld(), PlainContext()).controls == (CONTROLS["blanked_context"],)


def test_the_copy_of_the_world_that_began_a_task_is_closed() -> None:
    world = Sessions()
    settled(Suite(name="a"), world)
    assert world.held == []


@each("controls", [None, ("oracle",)])
def test_a_world_whose_references_raise_is_refused_by_the_control_that_needs_them(controls: Any) -> None:
    class Raising(Players):
        def reference(self, kind: Any, pack: Any) -> Any:
            raise KeyError(kind)

    class Own(Levers):
        companions = (Raising, *Levers.companions)

    with pytest.raises(ConfigError, match=r"data\.suites\.a is ByReference; expected a control .* \(KeyError"):
        settled(Suite(name="a", controls=controls), Own(protocol="compact"))


def test_a_suite_wraps_the_world_of_the_training_or_its_own() -> None:
    looped = settled(Suite(name="a", wrap="ralph_loop")).env
    assert isinstance(looped, RalphLoop)
    assert looped.world is LEVERS
    own = Levers(max_turns=3, protocol="compact")
    changing = settled(Suite(name="a", change_at=2, env=own)).env
    assert isinstance(changing, NonStationary)
    assert (changing.world, changing.change_at) == (own, 2)
    elsewhere = settled(Suite(name="a", change_at=2, env=NonStationary(own, change_at=1))).env
    assert isinstance(elsewhere, NonStationary)
    assert (elsewhere.world, elsewhere.change_at) == (own, 2), "the rule changes once"
    both = settled(Suite(name="a", wrap="ralph_loop", change_at=2)).env
    assert isinstance(both, NonStationary)
    assert isinstance(both.world, RalphLoop)


@each(
    ("setting", "of", "said"),
    [
        *(
            (
                {"controls": (control,)},
                (WordWorld(), PlainContext()),
                f"mine.controls is {control}; expected a world w",
            )
            for control in ("random", "memoryless", "scripted", "oracle", "oracle_context")
        ),
        ({"pack_size": None, "change_at": 5}, (), "^data.suites.mine.change_at is 5"),
        ({"change_at": 1}, (WordWorld(), PlainContext()), "data.env is WordWorld; .*hidden rule can change"),
        ({"env": LEVERS}, (Levers(), HintContext()), "mine.env is Levers in single words"),
    ],
)
def test_a_control_a_change_or_a_world_that_cannot_be_played_is_refused(setting, of, said) -> None:
    with pytest.raises(ConfigError, match=said):
        settled(Suite(name="mine", **setting), *of)
    assert settled(Suite(name="mine", env=Levers()), Levers(), HintContext())


def test_a_world_in_words_that_a_tiny_policy_has_not_is_refused() -> None:
    assert settled(Suite(name="own"), chat=tiny_chat())
    for foreign in (Levers(), GridNavigation(side_min=4, side_max=4, protocol="compact")):
        with pytest.raises(ConfigError, match=r"data\.suites\.mine\.env .* words that the policy was made with"):
            settled(Suite(name="mine", env=foreign), chat=tiny_chat())
