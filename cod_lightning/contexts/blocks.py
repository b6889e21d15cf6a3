"""Operations that a policy writes between two marks, and what a text that it wants to keep may not hold."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from cod_lightning.contexts.base import TokenView


def lines_between(response: str, start: str, end: str) -> tuple[list[str], str]:
    """(lines between the marks, "") or ([], which rule was broken): each mark occurs once, in order, with nothing after the second.

    >>> lines_between("Well. <<\\n keep\\n>>", "<<", ">>")
    (['keep'], '')
    """
    for marker in (start, end):
        if (count := response.count(marker)) != 1:
            return [], f"'{marker}' occurs {count} times; expected exactly once"
    before, _, rest = response.partition(start)
    inside, _, after = rest.partition(end)
    if end in before:
        return [], f"'{end}' does not come after '{start}'"
    if after.strip():
        return [], f"there is text after '{end}'"
    lines = [line.strip() for line in inside.splitlines() if line.strip()]
    return lines, "" if lines else "there is no operation"


def words_between(response: str, start: str, end: str) -> tuple[list[str], str]:
    """As `lines_between` for single words: parts are divided by ` ; `, and nothing stands around the marks.

    >>> words_between("<ops> keep ; delete #1 </ops>", "<ops>", "</ops>")
    (['keep', 'delete #1'], '')
    """
    words = response.split()
    if words[:1] != [start] or words[-1:] != [end] or words.count(start) + words.count(end) != 2:
        return [], f"expected {start} OPERATIONS {end} and nothing else"
    inside = [part.strip() for part in " ".join(words[1:-1]).split(" ; ")]
    return [part for part in inside if part], "" if any(inside) else "there is no operation"


def faults(text: str, tokens: TokenView, marks: Sequence[str], what: str) -> Iterator[str]:
    """What no kept text may hold: nothing at all, control characters, control tokens, the wording's own marks (patterns)."""
    if not text.strip():
        yield f"the {what} is empty"
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        yield f"the {what} has a control character"
    if token := tokens.control_token(text):
        yield f"the {what} has the control token '{token}'"
    if any(re.search(mark, text) for mark in marks):
        yield f"the {what} has a mark of the context's own"
