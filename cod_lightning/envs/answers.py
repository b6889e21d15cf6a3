"""Strict reading of `<answer>...</answer>`: one rule for every world that uses it."""


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
