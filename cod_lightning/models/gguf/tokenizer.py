"""The tokenizer of a GGUF file as a fast tokenizer of transformers.

Built here and not by transformers, whose reading of these files (5.19) cuts the text of SmolLM2 as GPT-2's: two spaces before a
digit become other tokens than those it was trained on. Tests compare what is built with the rules, token by token.
"""

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from cod_lightning.models.gguf.header import GGUFFile, Unreadable
from cod_lightning.models.gguf.vocabulary import CONTROL, GGUFVocabulary


def fast_tokenizer(vocabulary: GGUFVocabulary, file: GGUFFile) -> PreTrainedTokenizerFast:
    """The tokenizer with the file's chat template and special tokens."""
    backend = _of_bytes(vocabulary)
    backend.add_tokens(
        [
            AddedToken(token, special=vocabulary.types[number] == CONTROL, normalized=False)
            for token, number in vocabulary.whole.items()
        ]
    )
    if around := {name: n for name, n in (("bos", vocabulary.bos), ("eos", vocabulary.eos)) if n is not None}:
        before, behind = ["bos"] * ("bos" in around), ["eos"] * ("eos" in around)
        backend.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *behind],
            special_tokens=[{"id": name, "ids": [n], "tokens": [vocabulary.tokens[n]]} for name, n in around.items()],
        )
    settings: dict[str, Any] = {f"{name}_token": vocabulary.tokens[at] for name, at in vocabulary.special.items()}
    template = file.values.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise Unreadable("text as tokenizer.chat_template", "Convert the model again.")
    length = file.values.get(f"{file.value('general.architecture')}.context_length")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=template,
        model_max_length=length,
        clean_up_tokenization_spaces=False,
        **settings,
    )


def _of_bytes(vocabulary: GGUFVocabulary) -> Tokenizer:
    ids = vocabulary.ids
    for left, right in vocabulary.merges:
        if missing := [token for token in (left, right, left + right) if token not in ids]:
            raise Unreadable(f"merges of its own tokens, and {missing[0]!r:.60} is none", "Convert the model again.")
    backend = Tokenizer(models.BPE(ids, vocabulary.merges, ignore_merges=vocabulary.cut.whole_first))
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in vocabulary.cut.patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    if vocabulary.cut.composed:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend
