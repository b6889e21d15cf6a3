"""Requests to an endpoint so far: answers, failures by kind, tokens, and what they cost."""

from collections import Counter
from dataclasses import dataclass, field

from cod_lightning.clients.answer import Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices for a million tokens, in the currency of your bill; None where unknown."""

    prompt: float | None = None
    completion: float | None = None
    cached: float | None = None
    """Of prompt tokens that the endpoint found in its cache; None charges them like the others."""


@dataclass(slots=True)
class Usage:
    """Counts since the client was made, over all rollouts of this process."""

    num_served: int = 0
    """Questions that were answered."""
    num_retries: int = 0
    """Requests that were sent again, for answers that came in the end."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Part of `prompt_tokens`."""
    completion_tokens: int = 0
    num_estimated: int = 0
    """Answers without token counts; theirs are estimated."""
    notes: Counter[str] = field(default_factory=Counter)
    """Answers that were cut off, empty or a refusal."""
    failures: Counter[str] = field(default_factory=Counter)
    """Questions that failed in the end, by kind."""

    def charge(self, tokens: Tokens) -> None:
        """The endpoint bills an answer, whether or not it can be used."""
        self.prompt_tokens += tokens.prompt
        self.cached_tokens += tokens.cached
        self.completion_tokens += tokens.completion

    @property
    def num_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def cost(self, prices: Prices) -> float | None:
        """What the counted tokens cost; None where a price is unknown.

        >>> usage = Usage(prompt_tokens=3_000_000, cached_tokens=2_000_000, completion_tokens=500_000)
        >>> usage.cost(Prices(prompt=1.0, completion=4.0, cached=0.1))
        3.2
        """
        if prices.prompt is None or prices.completion is None:
            return None
        cached = prices.prompt if prices.cached is None else prices.cached
        paid = (self.prompt_tokens - self.cached_tokens) * prices.prompt
        return (paid + self.cached_tokens * cached + self.completion_tokens * prices.completion) / 1e6

    def report(self, prices: Prices) -> str:
        """One line for a person; empty if no question was ever asked."""
        if not self.num_served and not self.failures:
            return ""
        noted = f" ({_listed(self.notes)})" if self.notes else ""
        parts = [f"{self.num_served:,} answers{noted}"]
        if self.num_retries:
            parts.append(f"{self.num_retries:,} retries")
        if self.failures:
            parts.append(f"failed: {_listed(self.failures)}")
        cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
        parts.append(f"tokens: {self.prompt_tokens:,} in{cached}, {self.completion_tokens:,} out")
        if self.num_estimated:
            parts.append(f"{self.num_estimated:,} answers without token counts, estimated")
        if (cost := self.cost(prices)) is not None:
            parts.append(f"cost: {'about ' if self.num_estimated else ''}{cost:,.4f}")
        return "; ".join(parts)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
