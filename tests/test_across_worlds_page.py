"""The page on worlds never trained on: made of its numbers alone, and how they are counted."""

import json

import numpy as np

from tests.soak.across_worlds import ROOT, after, all_but, page, paired, spoken, trained_on
from tests.soak.generalisation import parsed

OUT = ROOT / "docs" / "results" / "across_worlds.json"


def test_the_page_is_what_its_numbers_make():
    kept = json.loads(OUT.read_text())
    made = page(parsed(kept["success"]), kept["words"], kept["chance"], kept["samples"])
    assert made == OUT.with_suffix(".md").read_text()


def test_a_turn_counts_as_said_in_a_worlds_words_when_all_of_it_is_and_a_note_word_by_word():
    life = [
        {"kind": "solve", "turns": [{"response": "red pull"}, {"response": "red fly"}, {"response": ""}]},
        {"kind": "update", "context_after": "red red fly up"},
    ]
    assert spoken(json.dumps({"episodes": life}) + "\n", frozenset({"red", "pull"})) == [0.5, 0.5]
    assert spoken("", frozenset({"red"})) == [0.0, 0.0]


def test_the_gain_is_that_with_own_contexts_less_that_with_blanked_ones():
    own, blanked = np.array([[0, 1, 1, 1], [0, 0, 0, 1]]), np.array([[0, 1, 0, 1], [0, 0, 0, 0]])
    cells = {"1": {"levers": {"own": own, "own_blanked": blanked}}}
    assert paired(cells, "levers").tolist() == [[0, 1]]


def test_a_world_left_out_is_in_no_training_but_its_own():
    assert trained_on("levers") == ["levers"]
    assert "levers" not in trained_on(all_but("levers"))
    assert len(trained_on(all_but("levers"))) == 9
    assert after("levers", 100, all_but("levers")) != after("levers", 100)
