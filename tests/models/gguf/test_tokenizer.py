"""Ids of built tokenizers are those of the rules, by the definition."""

import pytest

from cod_lightning.models.gguf.architectures import config_of
from cod_lightning.models.gguf.header import GGUFFile
from cod_lightning.models.gguf.tokenizer import CUTS, fast_tokenizer, vocabulary_of
from cod_lightning.models.pretrained import read_tokenizer
from cod_lightning.rollout.chat import Chat
from tests.cases import each
from tests.models.gguf.reference import NUM_TEXTS, differing, reference_ids, sample_texts
from tests.tiny_gguf import TEMPLATE, byte_tokens, character_tokens, tiny_file

pytest.importorskip("gguf", reason="gguf is not installed")


def opened(path):
    file = GGUFFile(path)
    return file, vocabulary_of(file, config_of(file).vocab_size)


def see_tokens(path, text, tokens):
    """The text has these tokens by the rules, and in the tokenizer that is built."""
    file, vocabulary = opened(path)
    assert [vocabulary.tokens[number] for number in reference_ids(vocabulary, text)] == tokens
    built = fast_tokenizer(vocabulary, file)
    assert built.convert_ids_to_tokens(built(text, add_special_tokens=False)["input_ids"]) == tokens


@each(
    ("pre", "text", "tokens"),
    [
        ("smollm", "12", ["1", "2"]),
        ("smollm", "  1", ["ĠĠ", "1"]),
        ("smollm", "the the", ["t", "he", "Ġthe"]),
        ("smollm", "lever's", ["lever", "'s"]),
        ("smollm", "    the", ["ĠĠĠ", "Ġthe"]),
        ("gpt-2", "12", ["12"]),
        ("gpt-2", "  1", ["Ġ", "Ġ1"]),
        ("gpt-2", "1234", ["123", "4"]),
        ("qwen2", "12", ["1", "2"]),
        ("qwen2", "  1", ["Ġ", "Ġ", "1"]),
        ("qwen2", "\n\n", ["ĊĊ"]),
        ("llama-bpe", "1231", ["123", "1"]),
        ("smollm", "a<|im_end|> 1", ["a", "<|im_end|>", "Ġ", "1"]),
        ("smollm", "<think>1", ["<think>", "1"]),
        ("qwen2", "e\u0301", ["Ã", "©"]),
        ("gpt-2", "e\u0301", ["e", "Ì", "ģ"]),
    ],
)
def test_the_rules_by_which_bytes_are_merged(pre, text, tokens, tmp_path):
    path = tiny_file(tmp_path / "tiny.gguf", vocabulary=byte_tokens() | {"pre": pre})
    see_tokens(path, text, tokens)


@each(
    ("space_prefix", "text", "tokens"),
    [
        (True, "the", ["▁the"]),
        (True, " the", ["▁", "▁the"]),
        (False, "the", ["t", "he"]),
        (False, "hell", ["he", "ll"]),
        (False, "bell", ["b", "ell"]),
        (False, "verer", ["ver", "er"]),
        (False, "a  b", ["a", "  ", "b"]),
        (False, "    a", ["   ", "▁", "a"]),
        (True, "<s>the</s>the", ["<s>", "▁the", "</s>", "▁the"]),
        (False, "12", ["12"]),
        (False, "é", ["é"]),
        (False, "ü", ["<0xC3>", "<0xBC>"]),
        (False, "\n\n\n", ["\n\n", "<0x0A>"]),
    ],
)
def test_the_rules_by_which_characters_are_merged(space_prefix, text, tokens, tmp_path):
    path = tiny_file(tmp_path / "tiny.gguf", vocabulary=character_tokens(space_prefix))
    see_tokens(path, text, tokens)


@pytest.mark.parametrize(
    "pre", [n if n in ("qwen2", "smollm") else pytest.param(n, marks=pytest.mark.slow) for n in sorted(CUTS)]
)
def test_a_thousand_texts_have_the_ids_of_the_rules_and_come_back(pre, tmp_path):
    path = tiny_file(tmp_path / "tiny.gguf", vocabulary=byte_tokens() | {"pre": pre})
    _, vocabulary = opened(path)
    tokenizer = read_tokenizer(str(path), "model.policy.path")
    assert not differing(tokenizer, vocabulary)
    texts = sample_texts(vocabulary)
    assert len(set(texts)) > 0.95 * NUM_TEXTS
    assert sum(any(sign.isdigit() for sign in text) for text in texts) > 0.4 * NUM_TEXTS
    assert sum("  " in text for text in texts) > 0.2 * NUM_TEXTS
    if not CUTS[pre].composed:
        assert all(tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text for text in texts)


@each("space_prefix", [True, False])
def test_a_thousand_texts_have_the_ids_of_the_scores(space_prefix, tmp_path):
    path = tiny_file(tmp_path / "tiny.gguf", vocabulary=character_tokens(space_prefix))
    _, vocabulary = opened(path)
    tokenizer = read_tokenizer(str(path), "model.policy.path")
    assert not differing(tokenizer, vocabulary)


def test_template_and_special_tokens_come_along(tmp_path):
    tokenizer = read_tokenizer(str(tiny_file(tmp_path / "tiny.gguf")), "model.policy.path")
    assert tokenizer.chat_template == TEMPLATE
    named = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token)
    assert named == ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>")
    assert tokenizer.model_max_length == 256
    assert Chat(tokenizer).decode(Chat(tokenizer).encode("<|im_start|>user\n 1 2  3")) == "<|im_start|>user\n 1 2  3"


@each("begins", [True, False])
def test_a_text_begins_with_the_token_that_the_file_says(begins, tmp_path):
    path = tiny_file(tmp_path / "tiny.gguf", **{"tokenizer.ggml.add_bos_token": begins})
    tokenizer = read_tokenizer(str(path), "model.policy.path")
    assert (tokenizer("the")["input_ids"][0] == tokenizer.bos_token_id) == begins
