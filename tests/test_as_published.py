"""Our configs of the paper's runs are as published, but for what the page of differences says."""

import pytest

from examples.studies.as_published import PAGE, TABLE, page, rows

ROWS = [row for section in TABLE["sections"] for row in section["rows"]]


@pytest.fixture(scope="module")
def keyed():
    return [row for place in range(len(TABLE["sections"])) for row in rows(place) if row.key]


def test_a_setting_is_the_published_one_or_said_to_differ_and_then_what_is_said(keyed):
    published = [row for row in keyed if "why" not in row.row]
    assert len(published) > 100
    assert [row for row in published if row.found != row.row["value"]] == []
    differing = [row for row in keyed if "why" in row.row]
    assert [row for row in differing if row.found != row.row["ours"] or row.found == row.row["value"]] == []
    assert all(row["why"] and row["theirs"] for row in ROWS if not row.get("key"))


def test_the_page_is_made_of_what_the_configs_resolve_to():
    assert PAGE.read_text() == page(), "PYTHONPATH=. python examples/studies/as_published.py"
