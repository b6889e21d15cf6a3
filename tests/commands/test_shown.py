"""Texts of environments on the screen: JSON is laid out, and nothing acts on the terminal."""

import io
import json

import pytest

from cod_lightning.commands.shown import readable
from cod_lightning.terminal import Screen


def _printed(text, width=80):
    screen = Screen(file=io.StringIO(), width=width)
    screen.print(readable(text, screen))
    return screen.file.getvalue()


def test_what_an_environment_shows_as_json_is_cleaned_and_no_markup():
    hostile = json.dumps([{"id": 1, "text": "\x1b[2J[red]\r\nx"}, {"id": 2, "text": "\u202e" + "y" * 500}])
    for width in (40, 120):
        shown = _printed(f'{hostile}\n{{"a": "\\u001b]8;;x\\u0007"}}\n{"[" * 100_000}', width)
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "\u202e" not in shown
        assert "[red]" in shown


def test_records_are_a_table_where_it_fits_and_else_stand_below_one_another():
    rows = json.dumps({"items": [{"name": "Alder", "id": 7}, {"name": "Elm", "id": 8}], "page": 1, "pages": 2})
    assert _printed(rows).split() == ["id", "name", "7", "Alder", "8", "Elm", "page", "1", "of", "2"]
    wide = json.dumps([{"id": 7, **{f"column_{n}": "value" for n in range(9)}}])
    assert "7 column_0 value  column_1 value" in _printed(wide)


@pytest.mark.parametrize("text", ["[1, 2]", "{not json}", "[]", "Lever 1=red", "", '["a", 1]'])
def test_what_is_no_table_stays_as_it_is(text):
    assert _printed(text).rstrip("\n") == text
