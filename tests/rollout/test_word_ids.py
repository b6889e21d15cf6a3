"""Words that are looked up in a dictionary have the ids that their tokenizer gives them, or are not in it."""

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers

from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.word_ids import word_ids
from tests.real_templates import QWEN3, bpe_tokenizer

WORDS = ("up", "down", "1=up", "a<user>b", "é", "x")
TINY = TinyPolicy().tokenizer(WORDS)
PIECES = (*WORDS, "<user>", "<end>", "<end", "strange", "e\u0301", " ", "  ", "\n", "\x1c", "\u2003", "\u200b", "")


@given(st.lists(st.sampled_from(PIECES)).map(" ".join) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_a_text_has_the_ids_that_the_tokenizer_gives_it(text):
    assert list(Chat(TINY).encode(text)) == TINY.backend_tokenizer.encode(text, add_special_tokens=False).ids


def test_words_are_looked_up_but_those_that_hold_an_added_token():
    known = word_ids(TINY.backend_tokenizer)
    assert {"up", "1=up", "<user>"} <= set(known)
    assert "a<user>b" not in known


def test_a_tokenizer_that_does_more_has_none():
    normalizing = Tokenizer.from_str(TINY.backend_tokenizer.to_str())
    normalizing.normalizer = normalizers.Lowercase()
    assert word_ids(normalizing) == word_ids(bpe_tokenizer(QWEN3).backend_tokenizer) == word_ids(None) == {}
