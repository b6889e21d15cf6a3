"""What can go wrong at an endpoint, by kind: each is counted, costs one lifecycle, and tells no key."""

from collections.abc import Mapping

from cod_lightning.errors import EngineFailure

DENIED = frozenset({"HTTP 401", "HTTP 402", "HTTP 403", "HTTP 404", "HTTP 429, no credit"})
"""The key, the account, the address or the name of the model: the next request will fare no better."""
UNREACHABLE = "unreachable"
_HOPELESS = frozenset({"HTTP 400", "HTTP 422", UNREACHABLE})
"""The same, as long as nothing was ever served; later it is one prompt's trouble, or will pass."""
_NO_CREDIT = "insufficient_quota"
_MOST_LETTERS = 300


class EndpointFailure(EngineFailure):
    """An endpoint gave no answer that could be used.

    >>> print(EndpointFailure("timeout", "no answer within 30 s"))
    timeout: no answer within 30 s
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail

    def ends_the_run(self, *, ever_served: bool, num_in_a_row: int, max_refusals: int) -> bool:
        """Whether to give up: at once where the very first request was denied, else after `max_refusals` in a row."""
        if self.kind in DENIED:
            return not ever_served or num_in_a_row >= max_refusals
        return self.kind in _HOPELESS and not ever_served and num_in_a_row >= max_refusals


def failure_of(error: Exception, key: str, waited_s: float) -> EndpointFailure:
    """What an exception of the `openai` library means; `key` is taken out of whatever the endpoint said."""
    import openai

    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return EndpointFailure("timeout", f"no answer within {waited_s:g} s")
    if isinstance(error, openai.APIStatusError):
        kind = f"HTTP {error.status_code}"
        if error.status_code == 429 and error.code == _NO_CREDIT:
            kind += ", no credit"
        return EndpointFailure(kind, without(key, _said(error.body, error.response.text)))
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return EndpointFailure(UNREACHABLE, without(key, f"{type(cause).__name__}: {cause}"))
    return EndpointFailure("broken request", without(key, f"{type(error).__name__}: {error}"))


def without(key: str, text: str) -> str:
    """The text in one line of bounded length, the key taken out."""
    hidden = text.replace(key, "[the key]") if key else text
    return " ".join(hidden.split())[:_MOST_LETTERS] or "it said nothing"


def _said(body: object, text: str) -> str:
    """The endpoint's own message, where its error is of the usual form."""
    if isinstance(body, Mapping) and isinstance(body.get("message"), str):
        return body["message"]
    return text
