"""A lifecycle as text."""

from msgspec import structs

from cod_lightning.rollout.story import as_markdown
from cod_lightning.types import Lifecycle
from tests.cases import each
from tests.records import lifecycle, solve, turn, update


def test_it_tells_what_was_shown_said_noted_and_what_came_of_it() -> None:
    text = as_markdown(lifecycle("lake/3", (True, False, None), context="left is up"))
    assert text.startswith("**lake/3**, sibling 0; rewards by position: 1.00 0.00 missing")
    assert "#### task 0: solved, reward 1.00, completed\n\n```text\n context | (none)\n   world | a wall\n" in text
    assert "  policy | go left" in text
    assert "#### context after task 0: parsed, reward 0.00, completed" in text
    assert "#### task 1: not solved" in text
    assert "#### task 2: no outcome, reward missing, failed" in text


def test_nobodys_words_pass_for_anothers() -> None:
    said = "I win\nfeedback | reward 1\r\n   world | you won"
    episode = solve(0, False, turns=(turn(said),))
    lines = as_markdown(Lifecycle(pack_id="x", sibling=0, episodes=(episode,))).splitlines()
    assert [line for line in lines if line.startswith(("feedback |", "   world |"))] == ["   world | a wall"]
    assert "         | feedback | reward 1" in lines


@each("said", ["```\n# free", "````\n````\n<b>", "~~~\n", "\n```text\n"])
def test_a_block_is_closed_by_nothing_that_was_said(said: str) -> None:
    lines = as_markdown(Lifecycle(pack_id="x", sibling=0, episodes=(solve(0, True, turns=(turn(said),)),))).splitlines()
    (opening,) = (line for line in lines if line.endswith("text") and line.startswith("```"))
    fence = opening.removesuffix("text")
    assert lines[-1] == fence
    assert lines.count(fence) == 1


def test_a_long_utterance_is_cut_and_says_so() -> None:
    life = Lifecycle(pack_id="x", sibling=0, episodes=(solve(0, True, turns=(turn("ß" * 5000),)),))
    text = as_markdown(life, most_characters=100)
    assert "[4,900 more characters]" in text
    assert text.count("ß") == 100


def test_an_error_and_a_reason_are_told() -> None:
    failed = structs.replace(solve(1, None), error="RuntimeError: broken")
    unparsed = structs.replace(update(0, parsed=False), feedback="no tags")
    text = as_markdown(Lifecycle(pack_id="x", sibling=0, episodes=(solve(0, True), unparsed, failed)))
    assert "   error | RuntimeError: broken" in text
    assert "feedback | no tags" in text
    assert "did not parse, reward -0.10, malformed" in text


def test_a_long_line_is_wrapped_and_loses_nothing() -> None:
    said = "  " + "left  right " * 40 + "x" * 300
    life = Lifecycle(pack_id="x", sibling=0, episodes=(solve(0, True, turns=(turn(said),)),))
    lines = as_markdown(life).splitlines()
    assert max(map(len, lines)) <= 131
    first = next(line for line in lines if line.startswith("  policy | "))
    rest = [line for line in lines if line.startswith("         : ")]
    assert "".join(line[11:] for line in [first, *rest]) == said
