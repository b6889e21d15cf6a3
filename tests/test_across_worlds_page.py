"""The page on worlds never trained on: made of its numbers alone, and how they are counted."""

import json

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from examples.studies.across_worlds import ROOT, alike, renewed, spoken, token_ids, trained_on, words_but
from examples.studies.across_worlds_page import after, all_but, page, paired
from examples.studies.generalisation import parsed

OUT = ROOT / "docs" / "results" / "across_worlds.json"


def test_the_page_is_what_its_numbers_make():
    kept = json.loads(OUT.read_text())
    assert page(parsed(kept["success"])) == OUT.with_suffix(".md").read_text()


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


def test_words_are_alike_as_far_as_they_point_one_way():
    assert alike(np.array([[1.0, 0.0], [0.0, 2.0]])) == 0
    assert alike(np.array([[1.0, 0.0], [3.0, 0.0], [0.5, 0.0]])) == 1


def test_words_that_two_worlds_share_are_no_words_that_training_never_had():
    assert "1=red" not in words_but("levers", ["doors"])
    assert "want=red" in words_but("levers", ["doors"])
    assert "1=red" in words_but("levers", ["levers"])


def test_new_words_take_the_place_of_those_that_training_never_had_and_of_no_others(tmp_path):
    (tmp_path / "policy").mkdir()
    save_file({"model.embed_tokens.weight": torch.zeros(1000, 4)}, tmp_path / "policy" / "model.safetensors")
    to = renewed(tmp_path / "policy", words_but("levers", ["doors"]), tmp_path / "new", seed=1)
    changed = load_file(to / "model.safetensors")["model.embed_tokens.weight"].any(dim=1)
    assert changed[token_ids(["want=red", "<answer>Lever_1</answer>"])].all()
    assert not changed[token_ids(["1=red", "open=1", "<hints>"])].any()
