"""The tokenizer of a GGUF file as a fast tokenizer of transformers, by the rules that the file names.

Rules are its tokens, its merges or scores, and how text is cut before they apply.

Built here and not by transformers, whose reading of these files (5.19) cuts the text of SmolLM2 as GPT-2's: two spaces before a
digit become other tokens than those it was trained on. Tests compare what is built with the rules, token by token.

Sources: `llm_tokenizer_bpe` and `llm_tokenizer_spm` in llama.cpp's src/llama-vocab.cpp, and the models' own tokenizers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from cod_lightning.models.gguf.header import GGUFFile, Unreadable

NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6
"""Values of tokenizer.ggml.token_type: made by merges, special, matched as a whole, one byte."""
SPACE = "\u2581"
"""SentencePiece's sign of a space."""
_MOST_LETTERS = 1024
"""Of a token; those of known models have 128 at most, and every way to cut one in two is tried."""
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Cut(NamedTuple):
    """How text is cut into pieces before merges are applied within each."""

    patterns: tuple[str, ...]
    """Each cuts the pieces of the one before; what a pattern leaves out is a piece, too."""
    whole_first: bool = False
    """Whether a piece that is a token is taken as it is, whatever its merges."""
    composed: bool = False
    """Whether the text is brought to Unicode's NFC before, as the models' own tokenizer does; llama.cpp does not."""


CUTS = {
    "gpt-2": Cut((_GPT2,)),
    "smollm": Cut((r"\p{N}", _GPT2)),
    "starcoder": Cut((r"\p{N}", _GPT2)),
    "qwen2": Cut((_GPT4.format(digits=""),), composed=True),
    "deepseek-r1-qwen": Cut((_GPT4.format(digits=""),), composed=True),
    "llama-bpe": Cut((_GPT4.format(digits="{1,3}"),), whole_first=True),
}
"""By tokenizer.ggml.pre."""


@dataclass(frozen=True)
class GGUFVocabulary:
    """The rules of one file."""

    kind: Literal["gpt2", "llama"]
    """tokenizer.ggml.model: merges of bytes, or of characters by SentencePiece's scores."""
    tokens: list[str]
    types: list[int]
    merges: list[tuple[str, str]]
    """Best first; of gpt2."""
    scores: list[float]
    """Of llama; the highest is merged first."""
    cut: Cut
    space_prefix: bool
    """Whether a text, and each text after a special token, begins with a space more; of llama."""
    bos: int | None
    """Put before every text, where the file says so."""
    eos: int | None
    """The same, behind."""
    special: dict[str, int]
    """Ids of bos, eos, unk and pad."""
    ends: frozenset[int]
    """Ids at which an answer ends: eos, and eot where the file has one."""

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    @cached_property
    def whole(self) -> dict[str, int]:
        """Tokens that are matched in the text before anything else, with their ids."""
        return {token: n for token, n in self.ids.items() if self.types[n] in (CONTROL, USER_DEFINED)}


def vocabulary_of(file: GGUFFile, num_embeddings: int) -> GGUFVocabulary:
    """The file's tokenizer. Raises `Unreadable` where it has none, or one whose rules are not known here."""
    key = "tokenizer.ggml"
    if f"{key}.tokens" not in file.values:
        raise Unreadable(f"a tokenizer, and it lacks {key}.tokens", "Convert the model with its tokenizer.")
    kind, tokens = file.value(f"{key}.model"), file.value(f"{key}.tokens")
    if kind not in ("gpt2", "llama"):
        raise Unreadable(f"{key}.model gpt2 or llama, not {kind:.80}", "Take the model in Hugging Face's form.")
    pre = file.values.get(f"{key}.pre", "default")
    if kind == "gpt2" and pre not in CUTS:
        expected = f"{key}.pre of {', '.join(CUTS)}, whose rules are known here, and it is {pre:.80}"
        raise Unreadable(expected, "Take the model in Hugging Face's form.")
    if len(tokens) > num_embeddings or len(set(tokens)) < len(tokens):
        expected = f"at most {num_embeddings:,} different tokens, one for each embedding, not {len(tokens):,}"
        raise Unreadable(expected, "Convert the model again.")
    if (longest := max(map(len, tokens), default=0)) > _MOST_LETTERS:
        raise Unreadable(f"tokens of at most {_MOST_LETTERS:,} letters, not {longest:,}", "Convert the model again.")
    needed = "merges" if kind == "gpt2" else "scores"
    if len(of_each := file.value(f"{key}.{needed}")) != len(tokens) and kind == "llama":
        raise Unreadable(f"as many {key}.{needed} as tokens, not {len(of_each):,}", "Convert the model again.")
    types = [int(number) for number in file.value(f"{key}.token_type")]
    if len(types) != len(tokens):
        raise Unreadable(f"as many {key}.token_type as tokens, not {len(types):,}", "Convert the model again.")
    special = {}
    for name, theirs in {"bos": "bos", "eos": "eos", "eot": "eot", "unk": "unknown", "pad": "padding"}.items():
        if (number := file.values.get(f"{key}.{theirs}_token_id")) is not None:
            if not isinstance(number, int) or not 0 <= number < len(tokens):
                raise Unreadable(f"{key}.{theirs}_token_id below {len(tokens):,}, not {number}", "Convert it again.")
            special[name] = number
    if "eos" not in special:
        raise Unreadable(f"{key}.eos_token_id, at which an answer ends, and it lacks it", "Convert the model again.")
    begins = file.values.get(f"{key}.add_bos_token", kind == "llama" or pre == "llama-bpe")
    ends = file.values.get(f"{key}.add_eos_token", False)
    return GGUFVocabulary(
        kind=kind,
        tokens=tokens,
        types=types,
        merges=_pairs(of_each) if kind == "gpt2" else [],
        scores=[float(number) for number in of_each] if kind == "llama" else [],
        cut=CUTS[pre] if kind == "gpt2" else Cut(()),
        space_prefix=kind == "llama" and bool(file.values.get(f"{key}.add_space_prefix", True)),
        bos=special.get("bos") if begins else None,
        eos=special.get("eos") if ends else None,
        ends=frozenset({special["eos"], special.pop("eot", special["eos"])}),
        special=special,
    )


def fast_tokenizer(vocabulary: GGUFVocabulary, file: GGUFFile) -> PreTrainedTokenizerFast:
    """The tokenizer with the file's chat template and special tokens."""
    backend = _of_bytes(vocabulary) if vocabulary.kind == "gpt2" else _of_characters(vocabulary)
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


def _of_characters(vocabulary: GGUFVocabulary) -> Tokenizer:
    """SentencePiece's merges: of all pairs of tokens that make a token, that of the highest score comes first."""
    ids = vocabulary.ids
    made = {t: n for t, n in ids.items() if vocabulary.types[n] == NORMAL}
    merges = [
        (-vocabulary.scores[number], number, at, (token[:at], token[at:]))
        for token, number in made.items()
        for at in range(1, len(token))
        if token[:at] in made and token[at:] in made
    ]
    unknown = vocabulary.tokens[vocabulary.special["unk"]] if "unk" in vocabulary.special else None
    pairs = [pair for *_, pair in sorted(merges)]
    backend = Tokenizer(models.BPE(ids, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaces = [normalizers.Replace(" ", SPACE)]
    prefix = [normalizers.Prepend(SPACE)] if vocabulary.space_prefix else []
    backend.normalizer = normalizers.Sequence([*prefix, *spaces])
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.space_prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    """Each is two tokens around the first space behind its first character."""
    pairs = []
    for merge in merges:
        rest, space, right = merge[1:].partition(" ")
        if not space:
            raise Unreadable(f"two tokens in each of tokenizer.ggml.merges, not {merge!r:.60}", "Convert it again.")
        pairs.append((merge[:1] + rest, right))
    return pairs
