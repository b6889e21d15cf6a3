"""A mechanism whose first context is given; what else is around a mechanism is tested with what it changes."""

import pytest

from cod_lightning.contexts import HintContext, StartedContext
from cod_lightning.contexts.base import Scripted, Stored, beside
from cod_lightning.errors import DataError
from cod_lightning.methods.notebook import NotebookContext


def test_a_first_context_is_a_text_or_a_state_and_all_else_is_the_mechanism_inside(tmp_path):
    text, state, other = tmp_path / "first.md", tmp_path / "first.json", tmp_path / "other.json"
    text.write_text("lever 1 is red\n")
    state.write_text(beside(NotebookContext(), Stored).dump(beside(NotebookContext(), Scripted).adopt("a\nb")))
    other.write_text(beside(HintContext(), Stored).dump(HintContext().empty()))
    assert StartedContext(HintContext(), str(text)).empty() == beside(HintContext(), Scripted).adopt("lever 1 is red")
    started = StartedContext(NotebookContext(), str(state))
    assert [entry.text for entry in started.empty().entries] == ["a", "b"]
    assert StartedContext(NotebookContext()).empty() == NotebookContext().empty()
    assert beside(started, Stored).load(beside(started, Stored).dump(started.empty())) == started.empty()
    with pytest.raises(DataError, match=r"is of HintContext version 1; data\.context is NotebookContext"):
        StartedContext(NotebookContext(), str(other))
