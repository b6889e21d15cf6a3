"""A suite unfolds into conditions: whose turns, with which control, at which temperature."""

from cod_lightning.evaluation.conditions import ConditionKind
from cod_lightning.evaluation.suite import Suite


def test_a_suite_is_played_by_the_trained_policy_then_blanked_then_by_the_warm_start_from_cold_to_hot_then_by_references() -> (
    None
):
    found = Suite(name="heldout", num_packs=2).conditions()
    assert [(c.name, c.kind, c.temperature) for c in found] == [
        ("trained", ConditionKind.TRAINED, 1.0),
        ("blanked_context", ConditionKind.BLANKED_CONTEXT, 1.0),
        ("warm_start_t0.0", ConditionKind.WARM_START, 0.0),
        ("warm_start_t0.3", ConditionKind.WARM_START, 0.3),
        ("warm_start_t0.5", ConditionKind.WARM_START, 0.5),
        ("warm_start_t0.7", ConditionKind.WARM_START, 0.7),
        ("warm_start", ConditionKind.WARM_START, 1.0),
        ("warm_start_blanked", ConditionKind.WARM_START_BLANKED, 1.0),
        ("random", ConditionKind.RANDOM, 1.0),
        ("memoryless", ConditionKind.MEMORYLESS, 1.0),
        ("scripted", ConditionKind.SCRIPTED, 1.0),
        ("oracle", ConditionKind.ORACLE, 1.0),
    ]
    assert found[1].label == "test_heldout_blanked_context"


def test_the_suite_s_own_temperature_is_always_among_the_warm_start_s() -> None:
    names = [c.name for c in Suite(name="a", temperature=0.4, warm_start_temperatures=(1.0,), controls=()).conditions()]
    assert names == ["trained", "warm_start", "warm_start_t1.0"]


def test_controls_can_be_left_out() -> None:
    assert len(Suite(name="a", controls=(), warm_start_temperatures=()).conditions()) == 1
    without = Suite(name="a", blanked_context=False, controls=("blanked_context", "no_context")).conditions()
    assert "blanked_context" not in [c.name for c in without]
    assert "no_context" in [c.name for c in without]
