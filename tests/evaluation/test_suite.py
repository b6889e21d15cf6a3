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
