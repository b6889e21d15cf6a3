"""Texts as a reader takes them: letters that look alike are one letter, and what is not seen is not there. Stdlib only."""

import re
import unicodedata
from functools import lru_cache

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
