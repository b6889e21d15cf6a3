"""Suites say what is played, and refuse what cannot be."""

from dataclasses import replace
from typing import Any

import pytest
from jsonargparse import ArgumentParser

from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conditions import ConditionKind
from cod_lightning.evaluation.suite import Suite, Wrap
from cod_lightning.types import Pack, Split


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("data.suites.name", {"name": "a/b"}),
        ("data.suites.x.num_packs", {"num_packs": 1}),
        ("data.suites.x.pack_size", {"pack_size": 1}),
        ("data.suites.x.temperature", {"temperature": -1.0}),
        ("data.suites.x.top_p", {"top_p": 0.0}),
        ("data.suites.x.top_k", {"top_k": -1}),
        ("data.suites.x.min_p", {"min_p": 1.5}),
        ("data.suites.x.temperature", {"temperature": float("nan")}),
        ("data.suites.x.warm_start_temperatures", {"warm_start_temperatures": (0.5, 0.5)}),
        ("data.suites.x.split", {"split": "tset"}),
        ("data.suites.x.num_packs", {"num_packs": 1, "controls": ("shuffled_context",)}),
        ("data.suites.x.reference_packs", {"reference_packs": 1}),
        ("data.suites.x.controls", {"controls": ("blanked",)}),
        ("data.suites.x.controls", {"controls": ("none",)}),
        ("data.suites.x.controls", {"controls": ("scripted", "scripted")}),
        ("data.suites.x.wrap", {"wrap": "loop"}),
        ("data.suites.x.change_at", {"change_at": 2}),
        ("data.suites.x.change_at", {"change_at": 4, "pack_size": 4, "wrap": "non_stationary"}),
        ("data.suites.x.change_at", {"change_at": 0, "wrap": "non_stationary"}),
    ],
)
def test_a_value_that_cannot_work_is_named_with_its_key(key: str, values: dict) -> None:
    with pytest.raises(ConfigError) as caught:
        Suite(**{"name": "x", **values})
    assert caught.value.key == key


def test_the_command_line_reads_and_reprints_a_suite() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--suites", type=list[Suite])
    easy = {"name": "easy", "split": "validation", "pack_size": 8, "controls": ["oracle"], "wrap": "ralph_loop"}
    parsed = parser.parse_object({"suites": [easy]})
    (suite,) = parser.instantiate(parser.parse_string(parser.dump(parsed))).suites
    assert (suite.split, suite.pack_size, suite.num_packs) == (Split.VALIDATION, 8, 2048)
    assert (suite.controls, suite.wrap) == ((ConditionKind.ORACLE,), Wrap.RALPH_LOOP)


def test_packs_of_one_id_are_refused_by_suite_since_figures_are_paired_by_it() -> None:
    class Nameless(Levers):
        def sample_pack(self, **options: Any) -> Pack:
            return replace(super().sample_pack(**options), id="levers")

    with pytest.raises(ConfigError, match=r"data\.suites\.a\.num_packs is 2; expected packs with ids of their own"):
        Suite(name="a", num_packs=2, pack_size=4).packs(Nameless())


def test_packs_go_by_identity() -> None:
    suite, world = Suite(name="a", num_packs=3, pack_size=4), Levers()
    assert suite.packs(world) == Suite(name="b", num_packs=5, pack_size=4).packs(Levers())[:3]
    assert suite.packs(world) != Suite(name="a", num_packs=3, pack_size=4, seed=1).packs(world)
