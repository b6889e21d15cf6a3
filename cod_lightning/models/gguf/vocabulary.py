"""The tokenizer rules that a GGUF file names: its tokens, their merges, and how text is cut before they apply.

Sources: `llm_tokenizer_bpe` in llama.cpp's src/llama-vocab.cpp, and the models' own tokenizers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cod_lightning.models.gguf.header import GGUFFile, Unreadable

CONTROL, USER_DEFINED = 3, 4
"""Values of tokenizer.ggml.token_type: special, and matched as a whole; all others are made by merges."""
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

    tokens: list[str]
    types: list[int]
    merges: list[tuple[str, str]]
    """Best first."""
    cut: Cut
    bos: int | None
    """Put before every text, where the file says so."""
    eos: int | None
    """The same, behind."""
    special: dict[str, int]
    """Ids of bos, eos, unk and pad."""

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
    if kind != "gpt2":
        expected = f"{key}.model gpt2, merges of bytes, not {kind:.80}"
        raise Unreadable(expected, "Take the model in Hugging Face's form.")
    pre = file.values.get(f"{key}.pre", "default")
    if pre not in CUTS:
        expected = f"{key}.pre of {', '.join(CUTS)}, whose rules are known here, and it is {pre:.80}"
        raise Unreadable(expected, "Take the model in Hugging Face's form.")
    if len(tokens) > num_embeddings or len(set(tokens)) < len(tokens):
        expected = f"at most {num_embeddings:,} different tokens, one for each embedding, not {len(tokens):,}"
        raise Unreadable(expected, "Convert the model again.")
    merges = file.value(f"{key}.merges")
    types = [int(number) for number in file.value(f"{key}.token_type")]
    if len(types) != len(tokens):
        raise Unreadable(f"as many {key}.token_type as tokens, not {len(types):,}", "Convert the model again.")
    special = {}
    for name, theirs in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items():
        if (number := file.values.get(f"{key}.{theirs}_token_id")) is not None:
            if not 0 <= number < len(tokens):
                raise Unreadable(f"{key}.{theirs}_token_id below {len(tokens):,}, not {number}", "Convert it again.")
            special[name] = number
    if "eos" not in special:
        raise Unreadable(f"{key}.eos_token_id, at which an answer ends, and it lacks it", "Convert the model again.")
    begins = file.values.get(f"{key}.add_bos_token", pre == "llama-bpe")
    ends = file.values.get(f"{key}.add_eos_token", False)
    return GGUFVocabulary(
        tokens=tokens,
        types=types,
        merges=_pairs(merges),
        cut=CUTS[pre],
        bos=special.get("bos") if begins else None,
        eos=special.get("eos") if ends else None,
        special=special,
    )


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    """Each is two tokens around the first space behind its first character."""
    pairs = []
    for merge in merges:
        left, space, right = merge[:1] + merge[1:].partition(" ")[0], " " in merge[1:], merge[1:].partition(" ")[2]
        if not space:
            raise Unreadable(f"two tokens in each of tokenizer.ggml.merges, not {merge!r:.60}", "Convert it again.")
        pairs.append((left, right))
    return pairs
