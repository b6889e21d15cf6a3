"""How a task is summarised: what asks for the summary, and how it is shown."""

from typing import Any

from cod_lightning.contexts.inside_wording import CompactResumed, NaturalResumed
from cod_lightning.contexts.worded import Wording


class NaturalSummary(NaturalResumed, Wording):
    """For language models."""

    def __init__(self, summary_budget: int) -> None:
        self.request = (
            "\n\nDo not answer this observation yet. Your turns so far in this task are about to be removed, to make room. "
            "Summarise them first: what you found out, what you did and with what effect, and what you plan. You will see the "
            "rules, how the task began, your summary and the latest observation, and nothing else.\n\nAnswer with the summary "
            "alone, at most "
            f"{summary_budget} tokens."
        )
        """What asks for a summary; it follows the latest observation."""

    def inject(self, rules: str, summary: str) -> str:
        """The rules, and the summary of the task so far where there is one."""
        return f"{rules}\n\n## Your summary of this task so far\n{summary}" if summary else rules


class CompactSummary(CompactResumed, Wording):
    """For tiny policies: `OBSERVATION summary`, answered by facts."""

    def __init__(self, summary_budget: int) -> None:
        self.request = " summary"

    def inject(self, rules: str, summary: str) -> str:
        return f"{rules} {summary}".strip()

    def words(self) -> tuple[str, ...]:
        return ("summary",)


SUMMARY_WORDINGS: dict[str, Any] = {"natural": NaturalSummary, "compact": CompactSummary}
