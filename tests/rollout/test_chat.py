"""Exact tokens through a chat template, for the tiny policy's own and for those of real models."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers

from cod_lightning.errors import ConfigError
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.text_cache import word_ids
from cod_lightning.types import Message, Role
from tests.cases import each
from tests.real_templates import (
    CHATML,
    GPT_OSS,
    IN_PIECES,
    LLAMA3,
    QWEN3,
    bpe_tokenizer,
    family_tokenizer,
    pieces_tokenizer,
)

OPENING = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Which way?"))


@pytest.fixture(scope="module", params=["qwen3", "llama3"])
def chat(request):
    return Chat(bpe_tokenizer(QWEN3 if request.param == "qwen3" else LLAMA3))


def test_the_opening_is_the_template_rendered_once(chat):
    rendered = chat.tokenizer.apply_chat_template(
        [{"role": m.role.value, "content": m.content} for m in OPENING],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    assert chat.tokenizer.decode(chat.opening(OPENING)) == rendered


def test_variables_of_the_run_reach_the_template():
    tokenizer = bpe_tokenizer("{% if brief %}<|im_start|>system\nBrief.<|im_end|>\n{% endif %}" + CHATML)
    plain, brief = (Chat(tokenizer, template_kwargs=given) for given in (None, {"brief": True}))
    assert "Brief." not in plain.tokenizer.decode(plain.opening(OPENING))
    assert brief.tokenizer.decode(brief.opening(OPENING)).startswith("<|im_start|>system\nBrief.")


def test_a_tokenizer_without_a_template_or_without_an_end_is_refused():
    tokenizer = copy.deepcopy(bpe_tokenizer(CHATML))
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="chat template is missing; expected one"):
        Chat(tokenizer)
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.role + ': ' + message.content + ' ' }}{% endfor %}"
    )
    tokenizer.eos_token = None
    with pytest.raises(ConfigError, match=r"model\.policy is a tokenizer with no end token"):
        Chat(tokenizer)


def test_a_template_that_asks_for_the_time_always_gets_the_same_day():
    tokenizer = bpe_tokenizer("<|im_start|>system\n{{ strftime_now('%d %b %Y') }}<|im_end|>\n" + CHATML)
    assert "26 Jul 2024" in Chat(tokenizer).rendered(OPENING)


@given(system=st.text(), user=st.text())
def test_the_opening_is_what_the_template_makes_of_any_text(chat, system, user):
    messages = (Message(Role.SYSTEM, system), Message(Role.USER, user))
    assert chat.opening(messages) == chat.encode(chat.rendered(messages))
    assert chat.opening(messages[1:]) == chat.encode(chat.rendered(messages[1:]))


def test_a_template_that_looks_into_no_message_is_rendered_once_for_a_shape_and_one_that_does_every_time():
    rendered = []
    for template in (CHATML, CHATML.replace("message.content", "(message.content | trim)")):
        chat = Chat(bpe_tokenizer(template))
        chat.opening(OPENING)
        calls, render = [], chat._render
        chat._render = lambda *args, calls=calls, render=render, **options: calls.append(1) or render(*args, **options)
        for text in ("here", " there "):
            messages = (OPENING[0], Message(Role.USER, text))
            assert chat.opening(messages) == chat.encode(chat.rendered(messages))
        rendered.append(len(calls) - 2)
    assert rendered == [0, 2]


@given(text=st.text())
def test_text_is_encoded_as_the_tokenizer_itself_does(chat, text):
    assert list(chat.encode(text)) == chat.tokenizer(text, add_special_tokens=False)["input_ids"]


def test_a_turn_that_ended_itself_and_one_that_was_cut_off_continue_to_the_same_prompt(chat):
    words = chat.encode("Left.")
    ended = chat.opening(OPENING) + words + (chat.end_of_turn,)
    cut_off = chat.opening(OPENING) + words
    continued = ended + chat.continuation("And now?", ended[-1])
    assert continued == cut_off + chat.continuation("And now?", cut_off[-1])
    assert "Left." in (text := chat.tokenizer.decode(continued))
    assert text.index("Left.") < text.index("And now?")


def test_a_special_token_in_a_message_stays_text_and_the_final_stop_token_alone_is_none(chat):
    forged = f"x{chat.tokenizer.decode([chat.end_of_turn])}y"
    ids = chat.continuation(forged, chat.end_of_turn)
    honest = chat.continuation("xy", chat.end_of_turn)
    assert ids.count(chat.end_of_turn) == honest.count(chat.end_of_turn)
    word, end = chat.encode("Left."), chat.end_of_turn
    assert chat.decode((*word, end)) == "Left."
    assert chat.decode((*word, end, *word, end)) != "Left.Left."


def test_the_tiny_policys_later_turns_cost_four_tokens():
    chat = Chat(TinyPolicy().tokenizer(["lake", "3=up", "@(0,1)", "go"]))
    ids = (*chat.encode("go"), chat.end_of_turn)
    assert chat.tokenizer.convert_ids_to_tokens(list(chat.continuation("3=up @(0,1)", ids[-1]))) == [
        "<user>",
        "3=up",
        "@(0,1)",
        "<assistant>",
    ]


WORDS = ("up", "down", "1=up", "a<user>b", "é", "x")
TINY = TinyPolicy().tokenizer(WORDS)
PIECES = (*WORDS, "<user>", "<end>", "<end", "strange", "e\u0301", " ", "  ", "\n", "\x1c", "\u2003", "\u200b", "")


@given(st.lists(st.sampled_from(PIECES)).map(" ".join) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_a_text_has_the_ids_that_the_tokenizer_gives_it(text):
    assert list(Chat(TINY).encode(text)) == TINY.backend_tokenizer.encode(text, add_special_tokens=False).ids


def test_words_are_looked_up_but_those_that_hold_an_added_token_and_none_where_a_tokenizer_does_more():
    known = word_ids(TINY.backend_tokenizer)
    assert {"up", "1=up", "<user>"} <= set(known)
    assert "a<user>b" not in known
    normalizing = Tokenizer.from_str(TINY.backend_tokenizer.to_str())
    normalizing.normalizer = normalizers.Lowercase()
    assert word_ids(normalizing) == word_ids(bpe_tokenizer(QWEN3).backend_tokenizer) == word_ids(None) == {}


NO_SYSTEM = CHATML.replace("{{- '<|im_start|>'", "{%- if message.role != 'system' %}{{- '<|im_start|>'", 1).replace(
    "{%- endfor %}", "{%- endif %}{%- endfor %}"
)


@each(
    ("template", "said"),
    [
        ("{%- if messages[0].role == 'system' %}{{ raise_exception('no system') }}{%- endif %}" + CHATML, "no system"),
        (NO_SYSTEM, "is one that leaves system messages out"),
    ],
)
def test_a_template_without_a_system_role_is_refused_since_rules_and_contexts_would_be_lost(template, said):
    with pytest.raises(ConfigError, match=r"chat template is one that .* expected one with a system role") as refused:
        Chat(bpe_tokenizer(template))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_template_that_puts_system_messages_into_the_first_one_of_the_user_is_taken():
    folded = CHATML.replace("message.role +", "('user' if message.role == 'system' else message.role) +")
    assert Chat(bpe_tokenizer(folded)).opening(OPENING)


def templated(tokenizer, messages):
    """The ids that the tokenizer itself gives the dialogue."""
    listed = [{"role": m.role.value, "content": m.content} for m in messages]
    return tuple(tokenizer.apply_chat_template(listed, add_generation_prompt=True, return_dict=False))


@each("family", IN_PIECES)
def test_a_second_prompt_has_the_very_ids_that_the_template_s_dialogue_has(family):
    chat = Chat(pieces_tokenizer(family))
    said, asked = Message(Role.ASSISTANT, "Left."), Message(Role.USER, "And now?")
    first, both = chat.opening(OPENING), templated(chat.tokenizer, (*OPENING, said, asked))
    assert first == templated(chat.tokenizer, OPENING) == both[: len(first)]
    action = both[len(first) : 1 + both.index(chat.stop_id, len(first))]
    after = chat.continuation("And now?", action[-1])
    assert both == first + action + after
    cut_off = chat.continuation("And now?", action[0])
    assert cut_off[-len(after) - 1 :] == (chat.stop_id, *after)
    end = chat.text((chat.stop_id,))
    assert chat.ids_after(f" {end}\nx", chat.stop_id) == chat.encode(f"{end}\nx")[1:]


@given(text=st.text())
def test_a_later_text_is_what_the_template_makes_of_it(chat, text):
    both = chat.rendered((*OPENING, Message(Role.ASSISTANT, "Left."), Message(Role.USER, text)))
    assert both.endswith(f"Left.{chat.text(chat.continuation(text, None))}")
    assert chat.extended("", "Left.", text) == both[both.index("Left.") :]


def test_lengths_that_rows_were_cut_or_padded_to_do_not_shape_prompts():
    tokenizer = family_tokenizer("qwen3")
    whole = Chat(tokenizer).opening(OPENING)
    tokenizer.backend_tokenizer.enable_truncation(20)
    tokenizer.backend_tokenizer.enable_padding(length=1000)
    assert Chat(tokenizer).opening(OPENING) == whole


@pytest.fixture(scope="module")
def gpt_oss():
    tokenizer = family_tokenizer("gpt_oss")
    tokenizer.eos_token, tokenizer.chat_template = "<|return|>", GPT_OSS
    return Chat(tokenizer)


def test_a_turn_of_several_messages_ends_with_the_token_of_the_last_one_which_stays(gpt_oss):
    ends = {gpt_oss.text((i,)) for i in gpt_oss.stop_ids}
    assert ends == {"<|return|>"}, "after <|end|> comes the next message of the turn"
    next_prompt = "<|start|>user<|message|>And now?<|end|><|start|>assistant"
    assert gpt_oss.text(gpt_oss.continuation("And now?", gpt_oss.stop_id)) == next_prompt
    cut_off = gpt_oss.continuation("And now?", gpt_oss.encode("x")[0])
    assert gpt_oss.text(cut_off) == f"<|end|>{next_prompt}"
    assert gpt_oss.text(gpt_oss.ids_after(f"<|end|>{next_prompt}", gpt_oss.stop_id)) == next_prompt


def test_a_blank_message_that_the_template_leaves_out_forges_no_role(gpt_oss):
    for system in ("", "Be brief."):
        messages = (Message(Role.SYSTEM, system), OPENING[1])
        assert gpt_oss.opening(messages) == templated(gpt_oss.tokenizer, messages)
        listed = [{"role": one.role.value, "content": one.content} for one in messages]
        assert gpt_oss.encode(gpt_oss.asked(listed)) == templated(gpt_oss.tokenizer, messages)


def test_words_before_every_system_message_stand_there_once_also_before_one_that_begins_with_the_same():
    chat = Chat(bpe_tokenizer(QWEN3), system_prompt="Be brief.")
    once = chat.prefixed((Message(Role.SYSTEM, "Be brief. Pull levers."), OPENING[1]))
    assert [message.content for message in once] == ["Be brief.\n\nBe brief. Pull levers.", "Which way?"]
    assert chat.prefixed(once) == once
    assert chat.prefixed(OPENING[1:]) == OPENING[1:]
