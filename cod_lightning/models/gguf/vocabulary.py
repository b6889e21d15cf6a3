"""The tokenizer rules that a GGUF file names: its tokens, its merges or scores, and how text is cut before they apply.

Sources: `llm_tokenizer_bpe` and `llm_tokenizer_spm` in llama.cpp's src/llama-vocab.cpp, and the models' own tokenizers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

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
    def ranks(self) -> dict[tuple[str, str], int]:
        """Place of each merge; the first comes first."""
        return {pair: place for place, pair in enumerate(self.merges)}

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


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    """Each is two tokens around the first space behind its first character."""
    pairs = []
    for merge in merges:
        left, space, right = merge[:1] + merge[1:].partition(" ")[0], " " in merge[1:], merge[1:].partition(" ")[2]
        if not space:
            raise Unreadable(f"two tokens in each of tokenizer.ggml.merges, not {merge!r:.60}", "Convert it again.")
        pairs.append((left, right))
    return pairs
