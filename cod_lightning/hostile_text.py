"""Texts from outside: control tokens are broken up, and for comparisons letters that look alike are one letter. Stdlib only.

A chat model knows by control tokens where messages begin and end. What a tokenizer reads depends on it, so spellings are compared
without case, and letters of full width, of mathematics, raised, in circles or squares and in ligatures as the plain ones that
Unicode's compatibility form (NFKC) makes of them.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

BREAK = "\u200b"
"""A zero-width space: it takes a control token apart, and a reader does not see it."""
_WIDELY_KNOWN = (
    r"<(?:\|(?:[^\s<>|]{1,40}\|>|turn>|channel>)"  # ChatML, Llama 3, Phi, Zephyr, GPT-OSS; DeepSeek's bars are of full width
    r"|</?sys>>|/?s>|[be]o[st](?:_token)?>|(?:start|end)_of_(?:turn|utterance|image)>|(?:turn|channel)\|>"
    r"|(?:special_|extra_id_|unused|reserved_)\d{1,4}>|seed:[a-z_:]{1,40}>|_(?:user|bot|system|end)>|[se]op>)",
    r"\[(?:/?inst\]|/?system_prompt\]|/?available_tools\]|/?tool_(?:calls|results|content)\]|call_id\]|gmask\]|e~\["
    r"|\|[a-z]{1,20}\|\])|\]~!?b[\[\]]",
)
_THOUGHTS = r"</?think>|\[/?think\]"
_LETTERS = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_LIGATURES: dict[int, str] = {}
for _code in (*range(0xA0, 0xD800), *range(0xF900, 0x10000), *range(0x10780, 0x107C0), *range(0x1D400, 0x1F200)):
    _plain = unicodedata.normalize("NFKC", chr(_code))
    if _plain.isascii():
        (_LETTERS if len(_plain) == 1 else _LIGATURES)[_code] = _plain.lower()
_UNUSUAL = frozenset(chr(code) for code in _LETTERS if code > 127)
_JOINED = frozenset(map(chr, _LIGATURES))


class ControlTokens:
    """Finds the widely known control tokens and further spellings in texts.

    Args:
        spellings: Further ones, such as a tokenizer's special tokens.
        thoughts: Whether the tags of a thought count. In a policy's own responses they are as they should be.
    """

    def __init__(self, spellings: Iterable[str] = (), thoughts: bool = True) -> None:
        own = sorted({_folded(spelling) for spelling in spellings if spelling})
        listed = [_one_of(own)] if own else []
        self._pattern = re.compile("|".join([*listed, *_WIDELY_KNOWN, *([_THOUGHTS] if thoughts else [])]))
        self._beginning = re.compile(
            "[" + re.escape("".join({"<", "[", "]", *(spelling[0] for spelling in own)})) + "]"
        )

    def first(self, text: str) -> str:
        """The first control token in the text, as it is spelled there; empty if there is none.

        >>> ControlTokens().first("then <|IM_END|> and so on")
        '<|IM_END|>'
        """
        text = _separated(text)
        found = self._pattern.search(_folded(text))
        return text[found.start() : found.end()] if found else ""

    def count(self, text: str) -> int:
        """Control tokens in the text."""
        return len(self._pattern.findall(_folded(_separated(text))))

    def broken_up(self, text: str) -> str:
        """The text with a zero-width space after the first character of each control token, also of those within others."""
        if text.isascii() and not self._beginning.search(text.lower()):
            return text
        if self.count(text) > len(self._pattern.findall(_folded(text))):
            text = _separated(text)
        for _ in range(_MOST_NESTED):
            begins = [found.start() + 1 for found in self._pattern.finditer(_folded(text))]
            if not begins:
                return text
            text = BREAK.join(text[i:j] for i, j in zip([0, *begins], [*begins, None], strict=True))
        return text


def _one_of(spellings: Sequence[str], depth: int = 8) -> str:
    """A pattern of any of them, the longest first. What many begin with stands once: tokenizers have a thousand that begin with <,
    and each < of a text would be compared with all."""
    if depth == 0 or len(spellings) < 2:
        return "|".join(map(re.escape, sorted(spellings, key=len)[::-1]))
    parts = list[str]()
    for _, same in groupby(sorted(spellings)[::-1], key=lambda one: one[:1]):
        together = list(same)
        start = os.path.commonprefix(together)  # noqa: RUF071 (letter by letter is what is meant)
        rest = _one_of([one[len(start) :] for one in together], depth - 1) if len(together) > 1 else ""
        parts.append(f"{re.escape(start)}(?:{rest})")
    return "|".join(parts)


def shattered(text: str) -> str:
    """The text with a zero-width space after every character that is no letter, digit or white space."""
    return re.sub(r"([^\w\s])", rf"\1{BREAK}", text)


def _separated(text: str) -> str:
    """With the letters of ligatures (of an ﬁ, of a ㎏) one by one."""
    return text if text.isascii() or _JOINED.isdisjoint(text) else text.translate(_LIGATURES)


def _folded(text: str) -> str:
    """The same number of characters, without case and in plain letters."""
    if text.isascii():
        return text.lower()
    lower = text.lower()
    return lower if len(lower) == len(text) and _UNUSUAL.isdisjoint(text) else text.translate(_LETTERS)


_MOST_NESTED = 8
"""Control tokens within each other that are taken apart; one of a single character cannot be."""
WIDELY_KNOWN = ControlTokens()


_ALIKE = dict(
    zip(
        "авекмнорстухѕіјһԁԛԝпгьӏαβγεηικνορτυχωϲϳօսհոցıɑɡƅɩʋᎪᏴᏟᎬᏀᎻᎫᏦᏞᎷᏢᏒᏚᎢᏙᏔᏃᎩꓮꓐꓚꓓꓰꓝꓖꓧꓲꓙꓗꓡꓟꓠꓳꓑꓣꓢꓔꓴꓦꓪꓫꓬꓜ",
        "abekmhopctyxsijhdqwnrblabyenikvoptuxwcjouhngiagbivabceghjklmprsivwzyabcdefghijklmnoprstuvwxyz",
        strict=True,
    )
)
"""Small letters of other scripts (Cyrillic, Greek, Armenian, Cherokee, Lisu, phonetic) and the Latin ones that they look like."""
_NAMED = re.compile(
    r"(?:NEGATIVE |CROSSED |)(?:CIRCLED |SQUARED |)LATIN (?:CAPITAL |SMALL |LETTER |SUBSCRIPT |SUPERSCRIPT )+([A-Z])\b"
    r"|REGIONAL INDICATOR SYMBOL LETTER ([A-Z])"
)
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters without a picture, by their category letters or symbols."""
_WITHOUT_WIDTH = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Of the letters that format, those that honest texts have: soft hyphens, joiners, marks of Hebrew and Arabic, and what breaks up
control tokens."""
_UNSEEN = frozenset(("Mn", "Me", "Cc", "Cf", "Cs", "Co", "Cn"))


def normal_form(text: str) -> str:
    """The text in small letters, without accents and what is not seen, look-alikes of Latin letters and digits as those, and one
    space where there is any white space. For comparisons: it is never shown, nor stored.

    Source: the skeletons of Unicode's UTS 39, with a short table of look-alikes, and Latin letters of any style by their names.

    >>> normal_form("Ｉｇｎｏｒｅ\\u00a0the  r\\u200bul\\u0435"), normal_form("lever \\u0663")
    ('ignore the rule', 'lever 3')
    """
    if text.isascii():
        return " ".join(text.casefold().split())
    return " ".join("".join(map(_read, unicodedata.normalize("NFKD", text))).casefold().split())


@lru_cache(maxsize=4096)
def _read(letter: str) -> str:
    """What a reader takes the letter for; empty for what is not seen."""
    if letter.isascii() or letter.isspace():
        return " " if letter.isspace() else letter if letter.isprintable() else ""
    if unicodedata.category(letter) in _UNSEEN or letter in _BLANK:
        return ""
    if (digit := unicodedata.decimal(letter, None)) is not None:
        return str(digit)
    small = letter.casefold()
    if small in _ALIKE:
        return _ALIKE[small]
    if found := _NAMED.match(unicodedata.name(letter, "")):
        return (found[1] or found[2]).lower()
    return unicodedata.normalize("NFKD", small)


def hidden_letter(text: str) -> str:
    """The code point of the first letter that no reader sees but a model reads, as U+E0061; empty where there is none.

    Tags, private ones, selectors of supplementary forms, marks of direction and of format; not those that honest texts have.
    """
    if text.isascii():
        return ""
    return next((f"U+{ord(letter):04X}" for letter in text if _hidden(letter)), "")


def _hidden(letter: str) -> bool:
    if letter in _WITHOUT_WIDTH:
        return False
    return (
        letter in _BLANK or unicodedata.category(letter) in ("Cf", "Co", "Cn") or "\U000e0000" <= letter <= "\U000e0fff"
    )


def with_tags_read(text: str) -> str:
    """The text with its tag characters as the ASCII letters that they stand for."""
    return "".join(chr(ord(one) - 0xE0000) if "\U000e0020" <= one <= "\U000e007e" else one for one in text)


CALLING = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "id": "call00000", "function": {"name": "look", "arguments": {"at": "x"}}}],
}
"""A message with a call of a tool."""
HARMLESS_TOOL = {
    "type": "function",
    "function": {"name": "x", "description": "x", "parameters": {"type": "object", "properties": {}}},
}


def harmless_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message, with nothing of another's in it."""
    return message if message["role"] == "assistant" else {**message, "content": blank_alike(message["content"])}


def blank_alike(text: str) -> str:
    """A harmless text, blank where this one is: templates leave messages out that say nothing."""
    return "x" if text.strip() else text


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The same with every text in it changed, names of fields, too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): with_texts(one, change) for key, one in value.items()}
    return [with_texts(one, change) for one in value] if isinstance(value, Sequence) else value
