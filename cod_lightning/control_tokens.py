"""Spellings by which a chat model knows where messages begin and end; in texts from outside they are broken up.

What a tokenizer reads depends on it, so spellings are compared without case, and letters of full width, of mathematics, raised,
in circles or squares and in ligatures as the plain ones that Unicode's compatibility form (NFKC) makes of them.
"""

import re
import unicodedata
from collections.abc import Iterable

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
        own = sorted({_folded(spelling) for spelling in spellings if spelling}, key=len)[::-1]
        self._pattern = re.compile("|".join([*map(re.escape, own), *_WIDELY_KNOWN, *([_THOUGHTS] if thoughts else [])]))
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
