"""Siblings compared two by two: the share of others that an episode is preferred to."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from cod_lightning.clients.answer import ChatAnswer
from cod_lightning.clients.failure import EndpointFailure
from cod_lightning.clients.grading import QUOTED, graded_object, one_line
from cod_lightning.errors import ConfigError
from cod_lightning.rewards.base import SiblingReward
from cod_lightning.rewards.judge import Grader, judged_kinds, material_of
from cod_lightning.types import Episode, EpisodeKind, Task

_WHERE = "data.rewards.PairwiseJudge"
_INSTRUCTION = (
    "You compare two episodes of an agent at one task. You get a JSON object with first and second, each with: kind (solve: the "
    "agent worked on the task; update: it rewrote its notes for later tasks), notes_before, turns (what the agent saw and what it "
    f"answered), feedback (the environment's words at the end), and of an update notes_after. {QUOTED}\n"
    "Which one is better by this rubric?\n\n{rubric}\n\n"
    'Answer with nothing but a JSON object: {"better": "first", "second" or "tie", "reason": "one line"}'
)
_VERDICTS = {"first": 1.0, "second": 0.0, "tie": 0.5}


class Pairwise(SiblingReward):
    """The mean, over opponents, of 1 where the episode is preferred to its sibling's, 0.5 for a tie and 0 otherwise.

    Each two are compared twice, each being the first once, and the verdicts are averaged: a preference for a place cancels. Two
    that saw, answered and wrote the same are a tie and are not compared. A pair for which a verdict is missing is left out of the
    mean of both; an episode without any pair has no score.

    Args:
        opponents: Siblings that an episode is compared with, an even number: its neighbours in the order of siblings, on a ring.
            Null, or as many as there are: all of them.
        where: Key of the part, for errors.
    """

    def __init__(self, opponents: int | None, where: str) -> None:
        if opponents is not None and (opponents < 2 or opponents % 2):
            expected = "an even number from 2 on, half of them on either side, or null"
            raise ConfigError(f"{where}.opponents", opponents, expected, "Null compares with all siblings.")
        self.opponents = opponents
        self.num_pairs = self.num_missing = self.num_by_place = self.num_apart = self.num_agreed = 0

    @abstractmethod
    async def preferred(self, first: Episode, second: Episode, task: Task) -> float:
        """1 where the first is better, 0 where the second is, 0.5 for a tie. Raises `EndpointFailure` where there is no verdict."""

    async def __call__(self, episodes: Sequence[Episode], task: Task) -> list[float | None]:
        pairs = list(pairs_of(len(episodes), self.opponents))
        found = await asyncio.gather(*(self._in_both_orders(episodes[a], episodes[b], task) for a, b in pairs))
        won: list[list[float]] = [[] for _ in episodes]
        for (a, b), score in zip(pairs, found, strict=True):
            if score is not None:
                won[a].append(score)
                won[b].append(1 - score)
        return [sum(scores) / len(scores) if scores else None for scores in won]

    async def _in_both_orders(self, one: Episode, other: Episode, task: Task) -> float | None:
        """The score of the first of them."""
        if material_of(one) == material_of(other):
            return 0.5
        self.num_pairs += 1
        try:
            there, back = await asyncio.gather(self.preferred(one, other, task), self.preferred(other, one, task))
        except EndpointFailure:
            self.num_missing += 1
            return None
        score = (there + 1 - back) / 2
        self.num_by_place += there == back != 0.5
        if one.kind is EpisodeKind.SOLVE and one.success != other.success:
            self.num_apart += 1
            self.num_agreed += score > 0.5 if one.success else score < 0.5
        return score

    def report(self) -> str:
        if not self.num_pairs:
            return ""
        share = self.num_agreed / self.num_apart if self.num_apart else 0.0
        return (
            f"{self.num_pairs:,} pairs compared, {self.num_by_place:,} decided by their order alone, {self.num_missing:,} without "
            f"verdict; the solved one preferred in {self.num_agreed:,} of {self.num_apart:,} pairs with one ({share:.1%})"
        )


class PairwiseJudge(Pairwise):
    """The share of siblings that a chat model prefers an episode to, by a rubric.

    For what is easier to compare than to grade. With K siblings there are K(K-1) questions at each place in the lifecycle, K times
    `opponents` with a number of them. The answer is read strictly: a JSON object with just `better` and `reason`; the model is
    asked again where it is anything else. What is said at `JudgeReward` of the agent's text, keys and ceilings holds here, too.
    The scores of siblings have the mean 0.5 however good all are: they teach in training, and measure nothing.

    Args:
        weight: Factor of the score.
        kinds: Episodes that are compared.
        opponents: Siblings that an episode is compared with, an even number; null: all of them.
        settings: Those of `Grader` and, through it, of `ChatClient`.
    """

    def __init__(
        self,
        *,
        weight: float = 1.0,
        kinds: list[Literal["solve", "update"]] | None = None,
        opponents: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(opponents, _WHERE)
        self.weight, self.kinds = weight, judged_kinds(kinds)
        self.grader = Grader(where=_WHERE, instruction=_INSTRUCTION, **settings)
        self.client = self.grader.client

    async def preferred(self, first: Episode, second: Episode, task: Task) -> float:
        return await self.grader.grade({"first": material_of(first), "second": material_of(second)}, verdict_of)

    def check(self) -> None:
        self.grader.check()

    def report(self) -> str:
        return "; ".join(filter(None, (self.client.report(), super().report())))


def pairs_of(num: int, opponents: int | None) -> Iterator[tuple[int, int]]:
    """Who is compared with whom, each two once; with a number of opponents the next half of it on a ring.

    >>> list(pairs_of(3, None)), list(pairs_of(4, 2))
    ([(0, 1), (1, 2), (2, 0)], [(0, 1), (1, 2), (2, 3), (3, 0)])
    """
    steps = (num - 1 if opponents is None else min(opponents, num - 1)) / 2
    for step in range(1, int(steps) + 1):
        yield from ((a, (a + step) % num) for a in range(num))
    if steps % 1:  # all siblings, an even number: those across the ring
        yield from ((a, a + num // 2) for a in range(num // 2))


def verdict_of(answer: ChatAnswer) -> float:
    """1 for the first, 0 for the second, 0.5 for a tie, strictly read. Raises `ValueError` for whatever else the answer is."""
    found = graded_object(answer.text, frozenset({"better", "reason"}))
    if not isinstance(found["better"], str) or found["better"] not in _VERDICTS:
        raise ValueError(f"the verdict's better is none of {', '.join(_VERDICTS)}")
    one_line(found["reason"])
    return _VERDICTS[found["better"]]
