"""A suite says what is played (whose turns, with which control, at which temperature), and refuses what cannot be."""

from dataclasses import replace
from typing import Any

import pytest
from jsonargparse import ArgumentParser

from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.suite import Suite
from cod_lightning.types import Pack, Split
from tests.cases import each


def test_the_command_line_reads_and_reprints_a_suite() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--suites", type=list[Suite])
    easy = {"name": "easy", "split": "validation", "pack_size": 8, "controls": ["oracle"], "wrap": "ralph_loop"}
    parsed = parser.parse_object({"suites": [easy]})
    (suite,) = parser.instantiate(parser.parse_string(parser.dump(parsed))).suites
    assert (suite.split, suite.pack_size, suite.num_packs) == (Split.VALIDATION, 8, 2048)
    assert (suite.controls, suite.wrap) == (("oracle",), "ralph_loop")


@each(
    ("pack_id", "said"),
    [("levers", r"a\.num_packs is 2"), ("\ud800", r"a is Odd; .* that draws packs \(Unicode")],
)
def test_packs_of_one_id_or_none_are_refused_by_suite_since_figures_are_paired_by_it(pack_id: str, said: str) -> None:
    class Odd(Levers):
        def sample_pack(self, **options: Any) -> Pack:
            return replace(super().sample_pack(**options), id=pack_id)

    with pytest.raises(ConfigError, match=rf"data\.suites\.{said}"):
        Suite(name="a", num_packs=2, pack_size=4).packs(Odd())


def test_packs_go_by_identity() -> None:
    suite, world = Suite(name="a", num_packs=3, pack_size=4), Levers()
    assert suite.packs(world) == Suite(name="b", num_packs=5, pack_size=4).packs(Levers())[:3]
    assert suite.packs(world) != Suite(name="a", num_packs=3, pack_size=4, seed=1).packs(world)


def test_a_suite_is_played_by_the_trained_policy_then_blanked_then_by_the_warm_start_from_cold_to_hot_then_by_references() -> (
    None
):
    suite = Suite(name="heldout", num_packs=2)
    found = suite.conditions()
    assert [c.name for c in found] == [
        "trained", "blanked_context", "warm_start_t0.0", "warm_start_t0.3", "warm_start_t0.5", "warm_start_t0.7", "warm_start",
        "warm_start_blanked", "random", "memoryless", "scripted", "oracle",
    ]  # fmt: skip
    assert [suite.temperature_of(c) for c in found] == [1.0, 1.0, 0.0, 0.3, 0.5, 0.7, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert suite.label(found[1]) == "test_heldout_blanked_context"


def test_the_suite_s_own_temperature_is_always_among_the_warm_start_s_and_controls_can_be_left_out() -> None:
    names = [c.name for c in Suite(name="a", temperature=0.4, warm_start_temperatures=(1.0,), controls=()).conditions()]
    assert names == ["trained", "warm_start", "warm_start_t1.0"]
    assert len(Suite(name="a", controls=(), warm_start_temperatures=()).conditions()) == 1
    names = [c.name for c in Suite(name="a", controls=("no_context",)).conditions()]
    assert "no_context" in names
    assert not {"blanked_context", "warm_start_blanked"} & set(names)
