"""Evolves what an agent begins with, without training: reflection on played packs, a test on them, and selection by pack.

Source: GEPA, reflective prompt evolution (arXiv 2507.19457). A round draws a candidate from those that are best in at least one
selection pack, the dominated left out, with odds by in how many; plays a few other packs with it; lets a model rewrite it in view
of what happened there; and keeps the rewrite only if it does better on the same packs. Differs: the text is the first context of a
mechanism, which the policy goes on rewriting within a pack where it has updates; the rewrite is an update of that mechanism
on the record of all tasks that were played, by the policy itself; candidates are not merged. The package `gepa` would leave all
but the draw and the selection to an adapter.
"""

import asyncio
import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from cod_lightning.contexts.base import Stored
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.wrapped import WrappedWorld
from cod_lightning.errors import ContextFailure, EnvironmentFailure, described
from cod_lightning.rollout.between_tasks import run_update_episode
from cod_lightning.rollout.boundaries import FAULTS, context_text, crossing
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Lifecycle, Pack, StopReason

_ABOUT = (
    "The record that you are shown is of several agents, each in an environment of its own: what is hidden differs between them, "
    "and will be different again for the agents that begin with what you write now. So write what helps in all of them, such as "
    "how to find out, how to answer and what to note; leave out what was true in one."
)
_FULL = "the record of the round's packs and the answer fill the policy's window; play fewer (--round_packs)"
_MISSING = "rewards are missing in all of the round's packs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A first context."""

    state: Any
    text: str
    parent: int | None
    """Index of the candidate that it was rewritten from."""
    scores: tuple[float, ...]
    """[P] mean reward of the tasks of each selection pack; NaN where one is missing."""

    @property
    def mean(self) -> float:
        """Over the packs that have a score; minus infinity where none has."""
        known = [score for score in self.scores if not math.isnan(score)]
        return sum(known) / len(known) if known else -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One attempt at a better candidate."""

    parent: int
    before: float = math.nan
    """Mean reward of the round's packs with the parent, of those that have a score with both."""
    after: float = math.nan
    """With the rewrite."""
    text: str = ""
    """The rewrite."""
    refused: str = ""
    """Why it is no candidate; empty where it is the latest."""


class Evolution:
    """Candidates, from the mechanism's own first state on. A mechanism that raises costs its round, or there `ContextFailure`.

    Args:
        setting: The environment, the mechanism and the policy; its program plays the packs.
        selection: Packs by which candidates are selected.
        drawn: From the number of a round to the packs that are played and reflected on in it.
        seed: Of the draws of parents.
    """

    def __init__(
        self, setting: Setting, selection: Sequence[Pack], drawn: Callable[[int], Sequence[Pack]], seed: int = 0
    ) -> None:
        self.setting, self.mechanism = setting, setting.mechanism
        self.selection, self.drawn, self.seed = selection, drawn, seed
        self.num_lifecycles = 0
        """Played so far."""
        self.candidates = [self._candidate(crossing(ContextFailure, self.mechanism.empty, self.mechanism), None)]

    @property
    def best(self) -> Candidate:
        """The one with the highest mean over the packs in which all have a score, where there are any; of equal ones the first."""
        scores = np.array([one.scores for one in self.candidates])
        shared = ~np.isnan(scores).any(axis=0)
        own = [one.mean for one in self.candidates]
        return self.candidates[int(np.argmax(scores[:, shared].mean(axis=1) if shared.any() else own))]

    def rounds(self, number: int) -> Iterator[Round]:
        """So many rounds, as they end."""
        for index in range(number):
            rng = random.Random(derive_seed("evolution", self.seed, index))
            parent = drawn_parent(np.array([one.scores for one in self.candidates]), rng)
            try:
                yield self._round(index, parent, self.drawn(index))
            except FAULTS as error:
                yield Round(parent=parent, refused=described(error))

    def _round(self, index: int, parent: int, packs: Sequence[Pack]) -> Round:
        begun = self.candidates[parent]
        played = self._played(begun.state, packs)
        before = list(map(score, played))
        if all(map(math.isnan, before)):
            return Round(parent=parent, refused=_MISSING)
        update = self._reflected(begun, played, packs, f"evolution.{index}")
        if not update.success:
            full = update.turns and update.turns[-1].stop is StopReason.WINDOW
            why = update.error or (_FULL if full else update.feedback) or f"the answer was {update.status}"
            return Round(parent=parent, refused=why)
        text = update.context_after
        if text in (one.text for one in self.candidates):
            return Round(parent=parent, text=text, refused="it is a candidate already")
        pairs = zip(before, map(score, self._played(update.state_after, packs)), strict=True)
        known = [pair for pair in pairs if not any(map(math.isnan, pair))]
        if not known:
            return Round(parent=parent, text=text, refused=_MISSING)
        means = [sum(values) / len(known) for values in zip(*known, strict=True)]
        refused = "" if means[1] > means[0] else "it does no better"
        if not refused:
            self.candidates.append(self._candidate(update.state_after, parent))
        return Round(parent=parent, before=means[0], after=means[1], text=text, refused=refused)

    def _candidate(self, state: Any, parent: int | None) -> Candidate:
        text = crossing(ContextFailure, lambda: context_text(self.mechanism, state), self.mechanism)
        scores = tuple(map(score, self._played(state, self.selection)))
        return Candidate(state=state, text=text, parent=parent, scores=scores)

    def _played(self, state: Any, packs: Sequence[Pack]) -> list[Lifecycle]:
        """A lifecycle through each pack; sampling noise is the same for all candidates."""
        first = crossing(ContextFailure, lambda: beside(self.mechanism, Stored).dump(state), self.mechanism)
        self.num_lifecycles += len(packs)
        groups = run_groups([replace(pack, context=first) for pack in packs], 1, self.setting, label="evolution")
        return [group.lifecycles[0] for group in groups]

    def _reflected(self, begun: Candidate, played: Sequence[Lifecycle], packs: Sequence[Pack], who: str) -> Episode:
        """The update of the first context on the record of all tasks that were played."""
        solves = [one for life in played for one in life.solves if one.status is not EpisodeStatus.SKIPPED]
        rewards = [one.reward for one in solves if one.reward is not None]
        closed = bool(beside(self.setting.env, Vocabulary).words())
        record = Episode(
            kind=EpisodeKind.SOLVE,
            position=-1,  # what it writes comes before the first task
            status=EpisodeStatus.COMPLETED,
            turns=tuple(turn for one in solves for turn in one.turns),
            reward=sum(rewards) / len(rewards),
            success=all(one.success for one in solves),
            feedback=" ".join(one.feedback for one in solves) if closed else "\n".join(map(_ended, solves)),
            context_before=begun.text,
            context_after=begun.text,
            state_before=begun.state,
            state_after=begun.state,
            reward_hidden=any(one.reward_hidden for one in solves),
        )
        env = _Several(copy.deepcopy(self.setting.env))
        try:
            crossing(EnvironmentFailure, lambda: env.reset(options={"task": packs[0].tasks[0]}))
            return asyncio.run(run_update_episode(env, record, self.setting, who))
        finally:
            crossing(EnvironmentFailure, env.close)


class _Several(WrappedWorld):
    """An environment whose rules say that the record is of several; not in a closed vocabulary."""

    @property
    def rules(self) -> str:
        return self.world.rules if beside(self.world, Vocabulary).words() else f"{self.world.rules}\n\n{_ABOUT}"


def _ended(solved: Episode) -> str:
    known = "missing" if solved.reward is None else f"{solved.reward:.3f}"
    reward = "" if solved.reward_hidden else f", reward {known}"
    return f"Task {solved.position + 1}, {len(solved.turns)} steps{reward}: {solved.feedback}"


def drawn_parent(scores: Float[np.ndarray, "C P"], rng: random.Random) -> int:
    """Index of a candidate that no other dominates, with odds by in how many packs none is better; 0 where there is no score."""
    known = np.where(np.isnan(scores), -np.inf, scores)
    wins = ((known == known.max(axis=0)) & np.isfinite(known)).sum(axis=1)
    wins[[((known >= own).all(axis=1) & (known > own).any(axis=1)).any() for own in known]] = 0
    return rng.choices(range(len(wins)), wins)[0] if wins.any() else 0


def score(life: Lifecycle) -> float:
    """Mean reward of its tasks; NaN where one is missing."""
    rewards = [one.reward for one in life.solves]
    return math.nan if not rewards or None in rewards else sum(rewards) / len(rewards)  # pyright: ignore
