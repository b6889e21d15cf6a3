"""A tenth of what `make soak` attacks with: damaged stores, runs and rows, hostile texts."""

import pytest

from examples.studies.robustness import attacks


def test_a_damaged_store_is_refused_in_one_line_or_says_what_it_said():
    counts = attacks.damaged_stores(60)
    assert (counts["tracebacks"], counts["changed"]) == (0, 0)
    assert counts["refused"] > 30


@pytest.mark.slow
def test_a_damaged_run_still_has_its_report():
    counts = attacks.damaged_runs(30)
    assert counts["tracebacks"] == 0
    assert counts["reports"] > 20


def test_rows_of_a_damaged_file_are_read_or_it_is_refused_in_one_line():
    counts = attacks.damaged_rows(60)
    assert counts["tracebacks"] == 0
    assert counts["read"] + counts["refused"] == 60


@pytest.mark.slow
def test_hostile_texts_reach_no_terminal():
    counts = attacks.hostile_texts(10)
    assert (counts["raw_controls"], counts["tracebacks"]) == (0, 0)


@pytest.mark.slow
def test_hostile_texts_stay_texts_in_whatever_is_written_of_a_run():
    counts = attacks.written_texts(40)
    assert (counts["raw_controls"], counts["elements"]) == (0, 0)


@pytest.mark.slow
def test_no_tokenizer_that_normalises_is_given_a_forged_role_by_any_template():
    counts = attacks.forged_roles(40)
    assert (counts["forged"], counts["templates"]) == (0, 8)
    assert counts["refused"] < counts["prompts"] / 4
