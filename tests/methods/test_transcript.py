"""What the transcript keeps, and where it is refused; what it shares with other mechanisms of records is in test_episodes.py."""

import pytest

from cod_lightning.contexts.base import Budget, beside
from cod_lightning.errors import ConfigError
from cod_lightning.methods.compacting import CompactingContext
from cod_lightning.methods.transcript import TranscriptContext
from tests.lived_tasks import lived, shown, solved


def test_a_transcript_drops_whole_tasks_oldest_first_and_of_one_that_exceeds_it_alone_that_one():
    context = TranscriptContext("compact", budget=10)
    state = lived(context, ("a b", 1.0), ("c d", 1.0), ("e f", 1.0))
    assert [record.task for record in state.records] == ["e f"]
    after = lived(context, ("word " * 20, 1.0), state=state)
    assert (after.records, after.num_tasks) == (state.records, 4)
    assert after.gone == {"task 3": "alone over the budget of 10 tokens"}
    whole = TranscriptContext("compact", budget=1000)
    assert [record.task for record in lived(whole, ("a b", 1.0), ("c d", 1.0)).records] == ["a b", "c d"]


def test_a_budget_is_spent_by_bytes_so_that_scripts_of_many_tokens_a_word_fit_as_others_do():
    wording = TranscriptContext().wording
    for text in ("pull the second lever " * 60, "拉第二个杠杆" * 100, "потяни второй рычаг " * 40):
        tokens = len(text.encode()) / 4
        assert wording.size(text) == pytest.approx(max(tokens, len(text.split())), abs=1)
        kept = wording.record(solved(text), 0, 20).task
        assert 15 <= len(kept.encode()) / 4 <= 24
        assert kept[:3] == text[:3]
        assert kept[-3:] == text[-3:]


def test_a_transcript_that_leaves_a_task_no_room_in_the_window_is_refused():
    beside(TranscriptContext(budget=64), Budget).check(65, 32)
    with pytest.raises(ConfigError, match=r"data\.context\.budget is 64"):
        beside(TranscriptContext(budget=64), Budget).check(64, 32)
    with pytest.raises(ConfigError, match=r"data\.context\.budget is 4096"):
        beside(CompactingContext(TranscriptContext()), Budget).check(4096, 600)


def test_a_transcript_has_every_word_that_was_shown_and_said_in_their_order():
    for context in (TranscriptContext(), TranscriptContext("compact")):
        episode = solved("first " * 300, "second", "third")
        text = shown(context, context.feedback(context.empty(), episode), "x")
        assert text.count("first ") + text.count("first\n") == 300
        assert text.index("second") < text.index("third") < text.index("done")
