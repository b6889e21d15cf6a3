"""What mechanisms that act within a task share: a task that goes on without its history, and a block that begins a response.

A block of the policy's own stands at the beginning of its response: between two marker lines (natural), or two marks (compact),
each of which occurs once. What follows it is the action.
"""

from cod_lightning.contexts.base import TokenView
from cod_lightning.contexts.hint_wording import fenced
from cod_lightning.contexts.worded import Wording, not_once, unkept


class NaturalResumed:
    """How a task goes on without its history: the latest observation as it is, then the first one between fences."""

    def resumed(self, task: str, latest: str) -> str:
        """The user's message for a task that began with the one observation, and whose latest is the other."""
        return f"{latest}\n\nThe task began with:\n{fenced(task)}"


class CompactResumed:
    """Both observations, in order of time."""

    def resumed(self, task: str, latest: str) -> str:
        return f"{task} {latest}"


class BlockWording(Wording):
    """How a response begins with a block."""

    start: str
    end: str
    between: str
    """What stands between marks, text and action."""

    def __init__(self, budget: int, response_limit: int | None) -> None:
        self.budget, self.response_limit = budget, response_limit

    def read(self, response: str) -> tuple[str, str, str]:
        """The block's text, what follows it, and why there is none to be read; the whole response then follows it."""
        if reason := not_once(response, self.start, self.end):
            return "", response, reason
        before, _, rest = response.partition(self.start)
        text, end, action = rest.partition(self.end)
        if before.strip() or not end:
            return "", response, f"the response does not begin with '{self.start}' and then '{self.end}'"
        if not text.strip():
            return "", response, f"there is nothing between '{self.start}' and '{self.end}'"
        return text.strip(), action.strip(), ""

    def write(self, text: str) -> str:
        """A well-formed block."""
        return self.join(self.start, text, self.end)

    def join(self, *parts: str) -> str:
        """Parts of a response."""
        return self.between.join(parts)


def unfit(what: str, text: str, budget: int, tokens: TokenView) -> str:
    """Why a text that the policy wrote within a task cannot be kept; empty where it can."""
    count = tokens.count(text)
    return unkept(what, text, tokens) or (f"the {what} has {count} tokens of {budget}" if count > budget else "")
