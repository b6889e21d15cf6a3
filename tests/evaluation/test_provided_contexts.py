"""Contexts from another pack and from the oracle, in every world."""

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import TextState
from cod_lightning.envs.base import Players, TextPolicy
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.provided_contexts import (
    check_oracle,
    oracle_contexts,
    shuffled_contexts,
)
from cod_lightning.types import EpisodeKind, Lifecycle, Split
from tests.envs.cases import WORLDS, every_world
from tests.records import lifecycle, solve, update


@every_world
def test_the_oracle_of_every_world_writes_a_context_that_can_be_read(name: str) -> None:
    world, mechanism = WORLDS[name].make(), HintContext(WORLDS[name].protocol, response_limit=None)
    packs = [world.sample_pack(split=Split.TEST, index=0, num_tasks=3)]
    for contexts in oracle_contexts(world, packs, mechanism):
        assert contexts[0].text
        assert contexts == [contexts[0]] * 3


def test_the_first_context_of_a_changing_pack_speaks_of_the_first_rule_and_later_ones_of_the_second() -> None:
    world = NonStationary(Levers(protocol="compact"), change_at=1)
    pack = world.sample_pack(split=Split.TEST, index=0, num_tasks=4)
    (contexts,) = oracle_contexts(world, [pack], HintContext("compact"))
    assert len(contexts) == 4
    assert contexts[0] != contexts[1] == contexts[2] == contexts[3]
    for context, task in zip(contexts, pack.tasks, strict=True):
        facts = [f"{n}={colour}" for n, colour in enumerate(task.spec.colours, start=1)]  # pyright: ignore
        assert sorted(context.text.split()) == sorted(facts)


def test_an_oracle_that_writes_nothing_is_refused_by_name() -> None:
    class Silent(TextPolicy):
        def act(self, messages, rng):
            return "?"

        def note(self, messages, rng):
            return ""

    class SilentPlayers(Players):
        def reference(self, kind, pack):
            return Silent()

    class Mute(Levers):
        companions = (SilentPlayers, *Levers.companions)

    world = Mute()
    pack = world.sample_pack(split=Split.TEST, index=0, num_tasks=2)
    with pytest.raises(
        ConfigError, match=r"model\.scorers\.one is Privileged; expected a world whose oracle .*\. Remove it"
    ):
        check_oracle(world, pack, HintContext(), "model.scorers.one", "Privileged", "Remove it.")


def test_contexts_go_to_the_pack_before_and_the_last_pack_gets_the_first_one_s() -> None:
    lives = [lifecycle(name, (True, True, True), context=f"of {name}") for name in "abc"]
    found = [[state.text for state in states] for states in shuffled_contexts(lives)]
    assert found == [["", "of b", "of b"], ["", "of c", "of c"], ["", "of a", "of a"]]


def test_a_context_that_never_was_is_not_an_empty_one() -> None:
    whole = lifecycle("a", (True, True), context="x")
    episodes = (solve(0, True), update(0), lifecycle("c", (True, None)).episodes[-1])
    failed = Lifecycle(pack_id="b", sibling=0, episodes=episodes)
    assert shuffled_contexts([whole, failed])[0] == [TextState(), TextState()], "the failed episode saw its context"
    from cod_lightning.types import Episode, EpisodeStatus

    skipped = Episode(kind=EpisodeKind.SOLVE, position=1, status=EpisodeStatus.SKIPPED)
    broken = Lifecycle(pack_id="b", sibling=0, episodes=(solve(0, True), update(0), skipped))
    assert shuffled_contexts([whole, broken])[0] == [TextState(), None]


def test_a_single_pack_has_no_other_one_s_contexts() -> None:
    with pytest.raises(AssertionError, match="no other one"):
        shuffled_contexts([lifecycle("a", (True, True))])
