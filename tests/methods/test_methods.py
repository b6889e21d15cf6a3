"""Each method is one file of at most 200 lines with source, difference and test; the site's table is made of their docstrings."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.cases import each

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "cod_lightning" / "methods").glob("[a-z]*.py"))
PARTS = [file for file in FILES if file.stem.endswith(("_wording", "_command"))]
"""Prompts and command of the method beside them, whose table row, and for prompts test, is theirs."""
METHODS = [file for file in FILES if file not in PARTS]
MOST = 200


def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@each("file", FILES)
def test_a_method_is_a_short_file(file):
    assert len(file.read_text().splitlines()) <= MOST


@each("file", METHODS)
def test_a_method_has_a_test_of_its_own(file):
    assert (ROOT / "tests" / "methods" / f"test_{file.stem}.py").is_file()


def test_the_table_has_a_row_with_source_and_difference_for_every_method():
    table = hooks().methods()
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    assert {row[0].strip("`").partition(".")[0] for row in rows} == {file.stem for file in METHODS}
    assert all(len(row) == 5 and all(row) for row in rows)
    assert all(re.search(r"\d{4}\.\d{4,5}", row[3]) for row in rows), "a source has its number"


def test_a_method_without_a_source_is_refused(tmp_path, monkeypatch):
    made = hooks()
    folder = tmp_path / "cod_lightning" / "methods"
    folder.mkdir(parents=True)
    (folder / "bare.py").write_text('class Bare(PolicyLoss):\n    """L = 0."""\n')
    monkeypatch.setattr(made, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"bare\.py: Bare does not say `Source: "):
        made.methods()
