"""Suites say what is played, and refuse what cannot be."""

import pytest
from jsonargparse import ArgumentParser

from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.controls import BlankedContext
from cod_lightning.evaluation.suite import Control, PolicyLabel, Suite, conditions
from cod_lightning.types import Split
from tests.records import solve
from tests.stubs import PlainContext


def test_a_suite_is_played_by_the_trained_policy_then_blanked_then_by_the_warm_start_from_cold_to_hot() -> None:
    found = conditions(Suite(name="heldout", num_packs=2))
    assert [(c.name, c.policy, c.control, c.temperature) for c in found] == [
        ("trained", PolicyLabel.TRAINED, Control.NONE, 1.0),
        ("blanked_context", PolicyLabel.TRAINED, Control.BLANKED_CONTEXT, 1.0),
        ("warm_start_t0.0", PolicyLabel.WARM_START, Control.NONE, 0.0),
        ("warm_start_t0.3", PolicyLabel.WARM_START, Control.NONE, 0.3),
        ("warm_start_t0.5", PolicyLabel.WARM_START, Control.NONE, 0.5),
        ("warm_start_t0.7", PolicyLabel.WARM_START, Control.NONE, 0.7),
        ("warm_start", PolicyLabel.WARM_START, Control.NONE, 1.0),
    ]
    assert found[1].label == "test_heldout_blanked_context"


def test_the_suite_s_own_temperature_is_always_among_the_warm_start_s() -> None:
    names = [c.name for c in conditions(Suite(name="a", temperature=0.4, warm_start_temperatures=(1.0,)))]
    assert names == ["trained", "blanked_context", "warm_start", "warm_start_t1.0"]


def test_controls_can_be_left_out() -> None:
    assert len(conditions(Suite(name="a", blanked_context=False, warm_start_temperatures=()))) == 1


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("data.suites.name", {"name": "a/b"}),
        ("data.suites.x.num_packs", {"num_packs": 1}),
        ("data.suites.x.pack_size", {"pack_size": 1}),
        ("data.suites.x.temperature", {"temperature": -1.0}),
        ("data.suites.x.temperature", {"temperature": float("nan")}),
        ("data.suites.x.warm_start_temperatures", {"warm_start_temperatures": (0.5, 0.5)}),
        ("data.suites.x.split", {"split": "tset"}),
    ],
)
def test_a_value_that_cannot_work_is_named_with_its_key(key: str, values: dict) -> None:
    with pytest.raises(ConfigError) as caught:
        Suite(**{"name": "x", **values})
    assert caught.value.key == key


def test_the_command_line_reads_and_reprints_a_suite() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--suites", type=list[Suite])
    parsed = parser.parse_object({"suites": [{"name": "easy", "split": "validation", "pack_size": 8}]})
    (suite,) = parser.instantiate(parser.parse_string(parser.dump(parsed))).suites
    assert (suite.split, suite.pack_size, suite.num_packs) == (Split.VALIDATION, 8, 2048)


def test_a_blanked_context_is_hidden_from_the_solver_and_from_nobody_else() -> None:
    plain, blanked = PlainContext(), BlankedContext(PlainContext())
    assert blanked.inject("rules", "left is up") == plain.inject("rules", "")
    assert blanked.ask("rules", solve(0, True)) == plain.ask("rules", solve(0, True))
    read = {"num_tokens": 3, "context_before": "old", "special_tokens": frozenset()}
    assert blanked.read("left is up", **read) == plain.read("left is up", **read)
    assert blanked.write("x") == plain.write("x")
    assert blanked.empty() == ""
    assert blanked.words() == plain.words()
    assert blanked.asks(blanked.ask("rules", solve(0, True)))
