"""A lifecycle as Markdown: observations, responses, contexts and rewards of its episodes."""

import textwrap
from collections.abc import Iterator

from cod_lightning.markdown import escaped, fenced, visible
from cod_lightning.types import Episode, EpisodeKind, Lifecycle

_MOST_CHARACTERS = 4000
"""Of one message; a cut message names how many were left out."""
_WORDS = {
    EpisodeKind.SOLVE: ("task", "solved", "not solved"),
    EpisodeKind.UPDATE: ("context after task", "parsed", "did not parse"),
    EpisodeKind.WRITE: ("text before task", "valid", "not what was asked for"),
}
_WIDTH = 120
"""Characters of a line; TensorBoard breaks none in a code block."""


def as_markdown(lifecycle: Lifecycle, most_characters: int = _MOST_CHARACTERS) -> str:
    """Headings and one code block an episode; texts of models and environments never act as markup.

    Each line in a block names its speaker or begins with blanks, so no utterance can pass for another's; `:` in place
    of `|` goes on with a line that was too long.
    """
    rewards = " ".join(map(_reward, lifecycle.solves))
    parts = [f"**{escaped(lifecycle.pack_id)}**, sibling {lifecycle.sibling}; rewards by position: {rewards}"]
    for episode in lifecycle.episodes:
        dialogue = "\n".join(_lines(who, text, most_characters) for who, text in _utterances(episode))
        parts += [f"#### {_title(episode)}", fenced(dialogue)]
    return "\n\n".join(parts)


def _title(episode: Episode) -> str:
    what, well, ill = _WORDS.get(episode.kind, (f"{episode.kind} at task", "valid", "not valid"))
    outcome = {True: well, False: ill, None: "no outcome"}[episode.success]
    return f"{what} {episode.position}: {outcome}, reward {_reward(episode)}, {episode.status}"


def _utterances(episode: Episode) -> Iterator[tuple[str, str]]:
    if episode.kind is not EpisodeKind.UPDATE:
        yield "context", episode.context_before or "(none)"
    for turn in episode.turns:
        yield "asked" if episode.kind is EpisodeKind.UPDATE else "world", turn.observation
        yield "policy", turn.response
    if episode.feedback:
        yield "feedback", episode.feedback
    if episode.kind is EpisodeKind.UPDATE:
        yield "context", episode.context_after or "(none)"
    if episode.error:
        yield "error", episode.error


def _lines(who: str, text: str, most_characters: int) -> str:
    left_out = len(text) - most_characters
    if left_out > 0:
        text = f"{text[:most_characters]}\n[{left_out:,} more characters]"
    return f"{who:>8} | " + f"\n{'':8} | ".join(
        f"\n{'':8} : ".join(wrapped(line)) for line in visible(text).split("\n")
    )


def wrapped(line: str, width: int = _WIDTH) -> list[str]:
    """The line in pieces that fit a page; put together they are the line again."""
    return textwrap.wrap(line, width, replace_whitespace=False, drop_whitespace=False, expand_tabs=False) or [""]


def _reward(episode: Episode) -> str:
    return "missing" if episode.reward is None else f"{episode.reward:.2f}"
