"""What an endpoint was asked for: answers, failures by kind, tokens, and what they cost."""

from collections import Counter
from dataclasses import dataclass, field

from cod_lightning.engines.chat_answer import ChatAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices for a million tokens, in the currency of your bill; None where unknown."""

    prompt: float | None = None
    completion: float | None = None
    cached: float | None = None
    """Of prompt tokens that the endpoint found in its cache; None charges them like the others."""


@dataclass(slots=True)
class Usage:
    """Counts since the engine was made, over all rollouts."""

    num_served: int = 0
    num_retries: int = 0
    """Requests that were sent again, for answers that came in the end."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Part of `prompt_tokens`."""
    completion_tokens: int = 0
    num_untold: int = 0
    """Answers that came without token counts."""
    notes: Counter[str] = field(default_factory=Counter)
    """Answers that were cut off, empty or a refusal."""
    failures: Counter[str] = field(default_factory=Counter)
    """Requests that failed in the end, by kind."""

    def served(self, answer: ChatAnswer, num_retries: int) -> None:
        """One more answer."""
        self.num_served += 1
        self.num_retries += num_retries
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens
        self.completion_tokens += answer.completion_tokens
        self.num_untold += not answer.told
        if answer.note:
            self.notes[answer.note] += 1

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
        """One line for a person; empty if nothing was ever asked."""
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
        if self.num_untold:
            parts.append(f"{self.num_untold:,} answers without token counts")
        if (cost := self.cost(prices)) is not None:
            parts.append(f"cost: {'at least ' if self.num_untold else ''}{cost:,.4f}")
        return "; ".join(parts)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
