"""Token ids by the definition, without a tokenizer library, and the texts on which a built tokenizer is compared with them."""

import itertools
import random
import re
import unicodedata
from collections.abc import Iterator

import regex

from cod_lightning.models.gguf.tokenizer import BYTE, NORMAL, SPACE, GGUFVocabulary
from cod_lightning.seeds import derive_seed

NUM_TEXTS = 1_000
_WORDS = re.split(
    " ",
    "the The a of and to you I'm don't we've THEY'LL it's hello Hello world lever Lever levers red switch pull door "
    "open agent context rewrite Notes: answer ANSWER reward capital France Paris is naïve café Straße Ελλάδα Привет "
    "мир 你好 世界 こんにちは 한국어 עברית العربية हिन्दी ไทย 😀 👩‍👩‍👧 e\u0301 ﬁ ½ ² Ⅷ ٣ x1 y_2 camelCase snake_case"
    " http://a.b/c?d=1 user@example.com #tag $5.00 50% C++ -> <- => == != ... !? ,, ; : ( ) [ ] { } <b> </b>"
    " \\ / ~ ` ' \" “quoted” — –",
)
_SPACES = (" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", " \n", "\n ", "\r\n", "\u00a0", "\u3000", "\u2028")


def differing(tokenizer, vocabulary: GGUFVocabulary) -> list[str]:
    """Those of the texts whose ids are not those of the rules."""
    ids = {text: tokenizer(text, add_special_tokens=False)["input_ids"] for text in sample_texts(vocabulary)}
    return [text for text, found in ids.items() if list(found) != reference_ids(vocabulary, text)]


def reference_ids(vocabulary: GGUFVocabulary, text: str) -> list[int]:
    """The ids of a text by the rules, without those before and behind it; quadratic in the length of its pieces."""
    merge = _bytes if vocabulary.kind == "gpt2" else _characters
    ids: list[int] = []
    for part, number in _with_whole(text, vocabulary.whole):
        ids += [number] if number is not None else merge(vocabulary, part)
    return ids


def sample_texts(vocabulary: GGUFVocabulary) -> list[str]:
    """1,000 texts: digits, runs of spaces, words, punctuation, scripts, special tokens, and mixtures of all."""
    rng = random.Random(derive_seed("gguf", "texts"))
    numbers = [str(number) for number in (*range(13), 42, 99, 100, 123, 1000, 2026, 31337, 10**9)]
    numbers += ["3.14", "-7", "1,000,000", "1e-5", "0x1F", "12:30", "7/8", "1 2 3", "1  2", " 1", "  1", "1 ", "1\n2"]
    runs = [f"{before}{' ' * n}{behind}" for n in range(1, 41) for before, behind in (("", ""), ("a", "b"), ("1", "2"))]
    special = sorted(vocabulary.whole, key=lambda token: vocabulary.whole[token])[:60]
    texts = ["", *numbers, *runs, *_WORDS, *(f" {word}" for word in _WORDS), *(f"{w}\n" for w in _WORDS), *special]
    parts = (numbers, list(_SPACES), list(_WORDS), special or list(_WORDS))
    while len(texts) < NUM_TEXTS:
        kinds = rng.choices(parts, (3, 4, 4, 1), k=rng.randint(2, 12))
        texts.append("".join(rng.choice(kind) for kind in kinds))
    return texts[:NUM_TEXTS]


def _with_whole(text: str, whole: dict[str, int]) -> Iterator[tuple[str, int | None]]:
    """The text in parts: tokens that are matched as a whole with their ids, the longest first, and what lies between."""
    found = [token for token in whole if token and token in text]
    if not found:
        if text:
            yield text, None
        return
    longest = max(found, key=lambda token: (len(token.encode()), -whole[token]))
    before, _, behind = text.partition(longest)
    yield from _with_whole(before, whole)
    yield longest, whole[longest]
    yield from _with_whole(behind, whole)


def _bytes(vocabulary: GGUFVocabulary, text: str) -> list[int]:
    ids, ranks = vocabulary.ids, {pair: place for place, pair in enumerate(vocabulary.merges)}
    pieces = [unicodedata.normalize("NFC", text) if vocabulary.cut.composed else text]
    for pattern in vocabulary.cut.patterns:
        pieces = [part for piece in pieces for part in _cut(pattern, piece)]
    found: list[int] = []
    for piece in pieces:
        signs = [_SIGNS[byte] for byte in piece.encode()]
        if vocabulary.cut.whole_first and "".join(signs) in ids:
            signs = ["".join(signs)]
        while len(signs) > 1:
            rank, at = min((ranks.get(pair, len(ranks)), at) for at, pair in enumerate(itertools.pairwise(signs)))
            if rank == len(ranks):
                break
            signs[at : at + 2] = [signs[at] + signs[at + 1]]
        found += [ids[sign] for sign in signs]
    return found


def _cut(pattern: str, piece: str) -> Iterator[str]:
    end = 0
    for match in regex.finditer(pattern, piece):
        yield from (part for part in (piece[end : match.start()], match.group()) if part)
        end = match.end()
    if piece[end:]:
        yield piece[end:]


def _characters(vocabulary: GGUFVocabulary, text: str) -> list[int]:
    ids, scores = vocabulary.ids, vocabulary.scores
    signs = list(f"{' ' * vocabulary.space_prefix}{text}".replace(" ", SPACE))
    while True:
        pairs = [(at, ids.get(signs[at] + signs[at + 1])) for at in range(len(signs) - 1)]
        able = [
            (-scores[number], at) for at, number in pairs if number is not None and vocabulary.types[number] == NORMAL
        ]
        if not able:
            break
        _, at = min(able)
        signs[at : at + 2] = [signs[at] + signs[at + 1]]
    found: list[int] = []
    for sign in signs:
        known = ids.get(sign)
        if known is not None and vocabulary.types[known] != BYTE:
            found.append(known)
        else:
            found += [ids[f"<0x{byte:02X}>"] for byte in sign.encode()]
    return found


def _byte_signs() -> list[str]:
    """GPT-2's visible sign of each byte: itself where it is printable in Latin-1, otherwise the next one from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_SIGNS = _byte_signs()
