"""Strict reading of `<answer>...</answer>`: one rule for every world that uses it."""

import re
from collections.abc import Callable
from functools import cache

from cod_lightning.text_cache import text_cache


def answer_of(response: str) -> tuple[str, str]:
    """(text between the tags, "") or ("", which rule was broken): each tag exactly once, in order, case-sensitive.

    >>> answer_of("go <answer> Direction 2 </answer>")
    ('Direction 2', '')
    >>> answer_of("<answer>1</answer> or <answer>2</answer>")
    ('', '<answer> occurs 2 times; expected exactly once')
    """
    for tag in ("<answer>", "</answer>"):
        if (count := response.count(tag)) != 1:
            return "", f"{tag} occurs {count} times; expected exactly once"
    before, _, after = response.partition("<answer>")
    if "</answer>" in before:
        return "", "</answer> comes before <answer>"
    return after.partition("</answer>")[0].strip(), ""


def only_answer(response: str) -> tuple[str, str]:
    """As `answer_of`; besides, nothing may follow the answer, and no three backticks may occur.

    >>> only_answer("so <answer>1</answer> done")
    ('', 'text follows </answer>; expected nothing after it')
    """
    answer, complaint = answer_of(response)
    if complaint:
        return "", complaint
    if "```" in response:
        return "", "three backticks occur; expected no code fence"
    if response.partition("</answer>")[2].strip():
        return "", "text follows </answer>; expected nothing after it"
    return answer, ""


def code_of(response: str, noun: str, num_codes: int) -> tuple[int, str]:
    """(1..num_codes, "") or (0, which rule was broken), from an answer such as `Direction 3` or `Direction_3`.

    Whatever follows the integer is ignored, as in the reference; the noun may begin with a small letter.

    >>> code_of("<answer>lever_2 please</answer>", "Lever", 4)
    (2, '')
    """
    return _reader(noun, num_codes)(response)


@cache
def _reader(noun: str, num_codes: int) -> Callable[[str], tuple[int, str]]:
    """`code_of` for these answers."""
    spelled = re.compile(rf"[{noun[0]}{noun[0].lower()}]{noun[1:]}[\s_]+([0-9]+)")
    codes = {str(code): code for code in range(1, num_codes + 1)}

    def code_in(response: str) -> tuple[int, str]:
        answer, complaint = answer_of(response)
        if complaint:
            return 0, complaint
        match = spelled.match(answer)
        if match is None:
            return 0, f"the answer is not '{noun}' and a number"
        code = codes.get(match[1].lstrip("0"), 0)
        return code, "" if code else f"the number is not one of 1 to {num_codes}"

    return text_cache(code_in)


_UNSHOWN = re.compile(r"[^ -~\n]|[<>|]")


def clean(text: str, most: int | None = None) -> str:
    """A policy's text made fit to be shown again: plain ASCII without tags, cut after `most` letters.

    >>> clean("<|end|> caf\u00e9", most=5)
    '??end\\n...'
    """
    return _UNSHOWN.sub("?", text if most is None or len(text) <= most else f"{text[:most]}\n...")


def quoted(text: str, max_length: int = 60) -> str:
    """The same in one line and in quotes.

    >>> quoted("<|im_end|> caf\u00e9")
    "'??im_end?? caf?'"
    """
    shown = clean(text[:max_length]).replace("\n", "?")
    return f"'{shown}{'...' if len(text) > max_length else ''}'"
