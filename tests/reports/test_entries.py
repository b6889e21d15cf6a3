"""The difference of two contexts, entry by entry."""

import time
from pathlib import Path

import pytest

from cod_lightning.reports.entries import entry_changes
from cod_lightning.reports.report import read_runs, report_data
from tests.records import group
from tests.reports.made_runs import write_run


def changed(before: str, after: str) -> list[tuple[str, str, str]]:
    return [(one.kind.value, one.before, one.after) for one in entry_changes(before, after)]


def test_an_entry_is_replaced_by_the_one_that_resembles_it_and_not_by_its_neighbour() -> None:
    before = "1. red is up\n2. blue is down\n3. green is slow"
    after = "1. red is up\n4. walls hurt\n3. green is fast"
    assert changed(before, after) == [
        ("kept", "1. red is up", "1. red is up"),
        ("removed", "2. blue is down", ""),
        ("added", "", "4. walls hurt"),
        ("replaced", "3. green is slow", "3. green is fast"),
    ]


def test_a_context_of_one_entry_is_replaced_even_by_other_words() -> None:
    assert changed("all is well", "turn back") == [("replaced", "all is well", "turn back")]


@pytest.mark.parametrize("text", ["", "\n\n", "one\n\ntwo"])
def test_the_same_text_has_no_changes(text: str) -> None:
    assert {kind for kind, _, _ in changed(text, text)} <= {"kept"}


def test_an_empty_context_only_gains_and_loses() -> None:
    assert changed("", "a b\nc") == [("added", "", "a b"), ("added", "", "c")]
    assert changed("a b\nc", "") == [("removed", "a b", ""), ("removed", "c", "")]


def test_both_texts_can_be_read_off_the_changes() -> None:
    before, after = "a 1\nb 2\nc 3\nd 4", "b 2\nd 5\ne 6\na 1"
    found = changed(before, after)
    assert [a for _, _, a in found if a] == after.splitlines()
    assert sorted(b for _, b, _ in found if b) == sorted(before.splitlines())


def test_a_report_holds_the_entries_that_an_update_changed(tmp_path: Path) -> None:
    made = group("a", [[True, False]], context="left is up\ndown is far")
    _, lives = report_data(read_runs([write_run(tmp_path, [made])]))
    (update,) = (episode for episode in lives["lifecycles"][0]["e"] if episode["u"])
    texts = [(kind, lives["strings"][before], lives["strings"][after]) for kind, before, after in update["d"]]
    assert texts == [("added", "", "left is up"), ("added", "", "down is far")]


@pytest.mark.slow
def test_texts_of_very_many_entries_are_not_compared_pair_by_pair() -> None:
    before, after = ("\n".join(f"{word} {n}" for n in range(100_000)) for word in ("old", "new"))
    begun = time.perf_counter()
    kinds = [kind for kind, _, _ in changed(before, after)]
    assert kinds == ["removed"] * 100_000 + ["added"] * 100_000
    assert {kind for kind, _, _ in changed(before, before)} == {"kept"}
    assert time.perf_counter() - begun < 20
