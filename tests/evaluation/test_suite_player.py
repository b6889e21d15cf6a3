"""Conditions of a suite are played one after another, with what they share and with what each pack hides."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import HiddenRules, Reference
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation import suite_player
from cod_lightning.evaluation.controls import Control
from cod_lightning.evaluation.references import play_reference
from cod_lightning.evaluation.results import suite_record
from cod_lightning.evaluation.suite import Suite
from cod_lightning.evaluation.suite_player import SuitePlayer, play
from cod_lightning.rollout.runner import RolloutPart
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group, Pack
from tests.evaluation.echoes import MECHANISM, Echo, scripted_sampler

WORLD = Levers(protocol="compact")
SUITE = Suite(name="own", num_packs=40, pack_size=3, controls=("blanked_context",), warm_start_temperatures=(0.3, 0.7))


class Direct:
    """A runner that only plays."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def run(self, label: str, play: Any) -> RolloutPart:
        return RolloutPart(groups=play(), seconds=0.0, replacing=False)


@pytest.mark.slow
def test_the_warm_start_is_blanked_at_the_temperature_at_which_it_solves_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the policy knows the rule at 0.7, in an earlier suite at 0.9, and guesses elsewhere."""
    heat: dict[str, float] = {}

    def by_heat(suite, condition, packs, setting, trained=()):
        heat[condition.name] = setting.sampler.temperature
        kind = Reference.ORACLE if setting.sampler.temperature in (0.7, 0.9) else Reference.RANDOM
        lives = play_reference(WORLD, packs, kind, HintContext("compact"))
        return [Group(pack=pack, lifecycles=(life,)) for pack, life in zip(packs, lives, strict=True)]

    monkeypatch.setattr(suite_player, "play", by_heat)
    player = SuitePlayer(Direct())  # pyright: ignore[reportArgumentType]
    here = Setting(env=WORLD, mechanism=MECHANISM, sampler=scripted_sampler(Echo(), MECHANISM))
    found = {}
    for suite in (replace(SUITE, name="earlier", num_packs=4, warm_start_temperatures=(0.9,)), SUITE):
        for condition in suite.conditions():
            found[condition.name] = player.play(suite, condition, here)
    assert heat["warm_start_blanked"] == found["warm_start_blanked"].temperature == 0.7
    outcomes = found["trained"].outcomes
    rules = dict(zip(outcomes.pack_ids, outcomes.rules, strict=True))
    assert outcomes.num_rules < outcomes.num_packs, "24 orders of four colours, and 40 packs"
    by_colours: dict[Any, set[str]] = {}
    for pack in SUITE.packs(WORLD):
        by_colours.setdefault(pack.tasks[0].spec.colours, set()).add(rules[pack.id])  # pyright: ignore
    assert all(len(same) == 1 for same in by_colours.values())
    assert len(by_colours) == outcomes.num_rules
    assert found["warm_start"].outcomes.rules == outcomes.rules


def test_a_control_gets_what_the_trained_policy_played_in_its_own_suite() -> None:
    """Also where other suites came in between, since what plays without its weights comes after all of them."""
    seen: dict[str, set[str]] = {}

    class After(Control):
        name, weights, after_trained = "after", "none", True

        def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
            assert {pack.id for pack in packs} == {group.pack.id for group in trained}
            return setting

    player = SuitePlayer(Direct())  # pyright: ignore[reportArgumentType]
    setting = Setting(env=WORLD, mechanism=MECHANISM, sampler=scripted_sampler(Echo(), MECHANISM))
    suites = [
        replace(SUITE, name=f"of_{n}", num_packs=2, split=of, controls=(After(),))
        for n, of in enumerate(("train", "test"))
    ]
    for weights in ("trained", "none"):
        for suite in suites:
            for condition in suite.conditions():
                if condition.weights == weights:
                    seen.setdefault(condition.name, set()).add(player.play(suite, condition, setting).suite.name)
    assert seen == {name: {"of_0", "of_1"} for name in ("trained", "after")}


def test_a_world_that_cannot_say_what_a_pack_hides_is_refused_before_anything_is_played() -> None:
    class Secret(HiddenRules):
        def hidden_rule(self, pack: Pack) -> str:
            raise KeyError("rule")

    class Own(Levers):
        companions = (Secret, *Levers.companions)

    class Unasked(Direct):
        def run(self, label: str, play: Any) -> RolloutPart:
            raise AssertionError("played")

    (trained, *_) = SUITE.conditions()
    here = Setting(env=Own(protocol="compact"), mechanism=MECHANISM, sampler=scripted_sampler(Echo(), MECHANISM))
    with pytest.raises(ConfigError, match=r"data\.suites\.own is Own; .* says what a pack hides \(KeyError"):
        SuitePlayer(Unasked()).play(SUITE, trained, here)  # pyright: ignore[reportArgumentType]


def test_of_packs_of_a_mixture_those_of_some_worlds_change_and_others_do_not() -> None:
    world = Mixture({"changing": NonStationary(WORLD, 1), "other": WORLD})
    suite = replace(SUITE, num_packs=8, env=world)
    (trained, *_) = suite.conditions()
    setting = Setting(env=WORLD, mechanism=MECHANISM, sampler=scripted_sampler(Echo(), MECHANISM))
    found = SuitePlayer(Direct()).play(suite, trained, setting)  # pyright: ignore[reportArgumentType]
    expected = [1 if "changing" in name else None for name in found.outcomes.pack_ids]
    assert found.changes == tuple(expected)
    recovery = suite_record([found]).get("figures", {}).get("recovery")
    assert recovery is not None
    assert recovery["offsets"] == [-1, 0, 1]
    assert recovery["rows"]["trained"][1]["n"] == expected.count(1) < 8


def test_a_blanked_warm_start_sees_no_context() -> None:
    (condition,) = [c for c in SUITE.conditions() if c.name == "warm_start_blanked"]
    setting = Setting(env=WORLD, mechanism=MECHANISM, sampler=scripted_sampler(Echo(), MECHANISM))
    for group in play(SUITE, condition, SUITE.packs(WORLD)[:3], setting):
        first, *others = [solve.turns[0].response for solve in group.lifecycles[0].solves]
        assert others == [first] * 2
        assert group.lifecycles[0].updates[0].context_after, "it writes"


def test_an_answer_that_does_not_parse_is_malformed_and_is_counted() -> None:
    (trained, *_) = SUITE.conditions()
    setting = Setting(env=WORLD, mechanism=MECHANISM, sampler=scripted_sampler(Echo(), MECHANISM))
    found = SuitePlayer(Direct()).play(SUITE, trained, setting).outcomes  # pyright: ignore[reportArgumentType]
    assert found.malformed is not None
    assert found.malformed.mean() == 1, "an echo of the rules is no answer"
