"""What can go wrong at an endpoint, by kind. No failure shows the key."""

from cod_lightning.errors import EngineFailure

TIMEOUT, UNREACHABLE, TOO_LONG, UNREADABLE = "timeout", "unreachable", "too long", "unreadable"
NO_CREDIT = "HTTP 429, no credit"
_DENIED = frozenset({"HTTP 401", "HTTP 402", "HTTP 403", "HTTP 404", NO_CREDIT})
"""The key, the account, the address or the name of the model: the next request fails as well."""
_HOPELESS = frozenset({"HTTP 400", "HTTP 422", "redirect", UNREACHABLE, TIMEOUT})
"""The same as long as no request was ever served; after that it is one prompt's trouble, or it passes."""
_PASSING = frozenset({"HTTP 408", "HTTP 409", "HTTP 425", "HTTP 429", UNREACHABLE, TIMEOUT})
_MOST_LETTERS = 300


class EndpointFailure(EngineFailure):
    """An endpoint gave no answer that could be used.

    >>> print(EndpointFailure("timeout", "no answer within 30 s"))
    timeout: no answer within 30 s
    """

    def __init__(self, kind: str, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail
        self.retry_after_s = retry_after_s
        """The pause that the endpoint asks for."""

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.kind in _PASSING or (self.kind.startswith("HTTP 5") and len(self.kind) == len("HTTP 5xx"))

    @property
    def row(self) -> str:
        """What it counts as in a row: no answer is one row, whether the endpoint was busy or did not reply."""
        return "denied" if self.kind in _DENIED else "no answer"

    def ends_the_run(self, *, ever_served: bool, num_in_a_row: int, max_refusals: int, max_concurrent: int) -> bool:
        """Whether to give up.

        At once where the very first request was denied, else after `max_refusals` in a row; after time-outs of an endpoint that
        has served before, once each of `max_concurrent` requests in flight has timed out that often.
        """
        if self.kind in _DENIED:
            return not ever_served or num_in_a_row >= max_refusals
        if self.kind == TIMEOUT and num_in_a_row >= max_refusals * max_concurrent:
            return True
        return self.kind in _HOPELESS and not ever_served and num_in_a_row >= max_refusals


def without(key: str, text: str) -> str:
    """The text in one printable line of bounded length, the key taken out.

    >>> without("sk-1", "no such key: sk-1\\x1b[2J")
    'no such key: [the key]?[2J'
    """
    hidden = text.replace(key, "[the key]") if key else text
    line = " ".join(hidden[: 100 * _MOST_LETTERS].split())[:_MOST_LETTERS]
    return "".join(letter if letter.isprintable() else "?" for letter in line) or "an empty answer"
