"""Requests to an endpoint so far: answers, failures by kind, tokens."""

from collections import Counter
from dataclasses import dataclass, field

from cod_lightning.clients.answer import Tokens


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

    def report(self) -> str:
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
        return "; ".join(parts)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
