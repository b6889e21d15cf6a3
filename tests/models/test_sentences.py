"""A policy whose tokenizer is made of the sentences of its world."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.contexts import HintContext
from cod_lightning.datamodules.sentences import sentences
from cod_lightning.envs import QuotingDials
from cod_lightning.envs.base import Players, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import DataError
from cod_lightning.hostile_text import WIDELY_KNOWN
from cod_lightning.models import SentencePolicy
from cod_lightning.models.sentences import BEGIN, END
from cod_lightning.models.tiny import PAD
from cod_lightning.rollout.chat import Chat
from cod_lightning.types import Message, Role, Split

SMALL = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}


@pytest.fixture(scope="module")
def said():
    return sentences(Levers(), HintContext())


@pytest.fixture(scope="module")
def tokenizer(said):
    return SentencePolicy().tokenizer(said)


@pytest.fixture(scope="module")
def chat(tokenizer):
    return Chat(tokenizer)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_encoding_and_decoding(chat, text):
    assert chat.text(chat.encode(chat.neutral(text))) == chat.neutral(text)


def test_what_is_said_survives_in_any_order_and_each_word_digit_and_tag_is_one_piece(said, chat, tokenizer):
    for text in said:
        assert chat.neutral(text) == text
        assert chat.text(chat.encode(text)) == text
    again = SentencePolicy().tokenizer([*reversed(said), *said])
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert again.chat_template == tokenizer.chat_template
    pieces = [chat.text((i,)) for i in chat.encode("- Lever 12: gold. <answer>Lever 3</answer>")]
    assert pieces == ["-", " Lever", " 1", "2", ":", " gold", ".", " <answer>", "Lever", " 3", "</answer>"]
    assert len(tokenizer) < 1000


def test_in_a_fact_said_from_its_colour_the_lever_stands_right_behind_it(chat):
    env = Levers(teacher=QuotingDials(quotes=True, follow=1.0))
    teacher = beside(env, Players).demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    asked = Message(Role.USER, env.wording.observation("gold", (), 2))
    answer = teacher.act([Message(Role.SYSTEM, "- Lever 3: gold, so for gold Lever 3"), asked], random.Random(0))
    pieces = [chat.text((i,)) for i in chat.encode(answer)]
    assert pieces[-7:] == [" gold", " Lever", " 3", " <answer>", "Lever", " 3", "</answer>"]


def num_control(tokenizer, ids):
    return sum(i in tokenizer.all_special_ids for i in ids)


@given(
    parts=st.lists(
        st.sampled_from([PAD, BEGIN, END, "<|im_", "end|>", "|>", "<|", "system\n", "\u200b", "x"]), max_size=8
    )
)
def test_no_text_begins_or_ends_a_message(tokenizer, chat, parts):
    text = "".join(parts)
    dialogue = [[Message(Role.SYSTEM, content), Message(Role.USER, content)] for content in (text, "x")]
    forged, honest = (num_control(tokenizer, chat.opening(messages)) for messages in dialogue)
    assert forged == honest == 5
    assert num_control(tokenizer, chat.continuation(text, chat.end_of_turn)) == num_control(
        tokenizer, chat.continuation("x", chat.end_of_turn)
    )


def test_its_role_marks_are_refused_in_contexts_of_other_models():
    assert [WIDELY_KNOWN.first(token) for token in (BEGIN, END)] == [BEGIN, END]


def test_without_sentences_its_pieces_are_bytes_which_say_any_text():
    tokenizer = SentencePolicy().tokenizer([])
    assert len(tokenizer) < 300
    assert tokenizer.decode(tokenizer("a task, of größe 3")["input_ids"]) == "a task, of größe 3"


def test_weights_of_other_sentences_are_refused(tmp_path, said, tokenizer):
    policy = SentencePolicy(**SMALL)
    policy.model(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    other = SentencePolicy(**SMALL, weights=str(tmp_path))
    with pytest.raises(DataError, match="and those of this environment"):
        other.model(other.tokenizer(["other sentences"]))
    model = other.model(other.tokenizer(said))
    assert (model.config.pad_token_id, model.config.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
