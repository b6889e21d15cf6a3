"""The reward of an episode: the sum of named, weighted parts, each of which may ask somewhere else.

`world` (what the environment gave a solve episode) and `context` (what the context mechanism gave an update) are always there;
`data.rewards` adds parts, or gives these two another weight. To add one: one subclass of `Reward`, or of `SiblingReward` for what
compares siblings.
"""

import asyncio
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence, Set
from inspect import iscoroutinefunction
from numbers import Real
from typing import Any, TypeVar

from msgspec import structs

from cod_lightning.errors import (
    ConfigError,
    EngineRefused,
    RewardFailure,
    RewardTimeout,
    described,
    ends_the_run,
    note_fault,
)
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Group, Task

_MOST_SCORES = 64
"""Of one part, by name."""
LARGEST = 1e30
"""Part, or sum of parts; training computes in float32, which ends at 3e38."""
_T = TypeVar("_T")
Rewards = Mapping[str, "RewardPart"]
"""Parts by name."""


class RewardPart(ABC):
    """One part of an episode's reward. Subclasses set what differs from the attributes below."""

    weight: float = 1.0
    """The part's scores are multiplied by it."""
    kinds: frozenset[EpisodeKind] = frozenset({EpisodeKind.SOLVE})
    """Episodes that have this part."""

    @abstractmethod
    def __call__(self, played: Any, /, task: Task) -> Coroutine[Any, Any, Any]:
        """The score of what was played, as each kind of part says it."""

    def check(self) -> None:
        """Raise `ConfigError` where it cannot work; runs before any training."""

    def report(self) -> str:
        """One line on what it did and cost, for the end of a command; empty for nothing to say."""
        return ""


class Reward(RewardPart):
    """A part that looks at one episode."""

    @abstractmethod
    async def __call__(self, episode: Episode, task: Task) -> float | Mapping[str, float]:
        """The score, or several by name (parts `NAME.SCORE`), of an episode that has ended.

        `episode.reward` and `episode.success` are those of the world or the context mechanism. Many calls go on at the same time,
        so the object keeps nothing between them but counts. Code that waits has to await: what blocks holds up the whole rollout
        (use `asyncio.to_thread`). Whatever this raises makes the reward of the episode missing.
        """


class SiblingReward(RewardPart):
    """A part that compares the episodes of siblings at one place in the lifecycle, once all of the group have ended.

    It is asked in training alone: in validation and suites a pack has one lifecycle, so that there is nothing to compare. The
    context mechanism, and the update after a task, see the reward without it: they come before the comparison.
    """

    @abstractmethod
    async def __call__(self, episodes: Sequence[Episode], task: Task) -> Sequence[float | None]:
        """A score for each of at least two episodes of one kind and task, in the order of siblings; None: no score for this one.

        Episodes that failed are left out. What is said at `Reward.__call__` of calls at the same time holds here, too. Whatever
        this raises, or a score that is no finite number, makes the rewards of all these episodes missing.
        """


class WorldReward(Reward):
    """What the environment gave; the part `world`.

    Args:
        weight: Factor of this part.
    """

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    async def __call__(self, episode: Episode, task: Task) -> float:
        assert episode.reward is not None
        return episode.reward


class ContextReward(WorldReward):
    """What the context mechanism gave a rewrite for its form; the part `context`.

    Args:
        weight: Factor of this part.
    """

    kinds = frozenset({EpisodeKind.UPDATE})


def rewards_of(given: Rewards | None) -> dict[str, RewardPart]:
    """All parts: `world`, `context`, and the given ones. Raises `ConfigError` with the key `data.rewards.NAME`."""
    own: dict[str, RewardPart] = {"world": WorldReward(), "context": ContextReward()}
    for name, part in (given or {}).items():
        key = f"data.rewards.{name}"
        if not re.fullmatch("[a-z][a-z0-9_]*", name):
            raise ConfigError(key, type(part).__name__, "a name of small letters, digits and _", "Rename it.")
        if name in own and type(part) is not type(own[name]):
            expected = f"a {type(own[name]).__name__}, since this name is the part that is always there"
            raise ConfigError(key, type(part).__name__, expected, "Rename it; weight 0 leaves the own part out.")
        if name not in own and isinstance(part, WorldReward):
            expected = "another class, since this part is there already as world or context"
            raise ConfigError(key, type(part).__name__, expected, "Remove it.")
        if not isinstance(part.kinds, Set) or not part.kinds <= set(EpisodeKind):
            expected = f"a frozenset of kinds of episodes, out of {', '.join(EpisodeKind)}"
            raise ConfigError(f"{key}.kinds", part.kinds, expected, "Write frozenset({EpisodeKind.SOLVE}).")
        if not iscoroutinefunction(type(part).__call__):
            found = f"{type(part).__name__} with a plain __call__"
            raise ConfigError(key, found, "one with a coroutine, since parts may wait", "Write async def __call__.")
    return own | dict(given or {})


async def scored(episode: Episode, task: Task, rewards: Rewards, limit_s: float | None = None) -> Episode:
    """The episode as it was played, with its parts and their sum as its reward; missing where a part is.

    Without a part beside the world's or the context's own of weight 1, the episode is returned as it is. Each part may take
    `limit_s` seconds. What a part raises fails the episode, never the run; only `EngineRefused` ends it.
    """
    parts = {name: part for name, part in rewards.items() if isinstance(part, Reward) and episode.kind in part.kinds}
    own = all(isinstance(part, WorldReward) and part.weight == 1 for part in parts.values())
    if episode.reward is None or own:
        return episode
    found = await _all_of({name: _scores(name, part, episode, task) for name, part in parts.items()}, limit_s)
    scores = {name: value for one in found.values() if isinstance(one, dict) for name, value in one.items()}
    return summed(episode, scores, [one for one in found.values() if isinstance(one, RewardFailure)])


async def compared(group: Group, rewards: Rewards, limit_s: float | None = None) -> Group:
    """The group, each reward with the parts that compare siblings; missing where a part is. Later episodes keep theirs.

    Each part may take `limit_s` seconds at one place in the lifecycle. Only `EngineRefused` ends the run.
    """
    parts = {name: part for name, part in rewards.items() if isinstance(part, SiblingReward)}
    if not parts:
        return group
    places: dict[tuple[EpisodeKind, int], list[tuple[int, int]]] = {}
    for k, lifecycle in enumerate(group.lifecycles):
        for e, one in enumerate(lifecycle.own):
            places.setdefault((one.kind, one.position), []).append((k, e))
    made = [list(lifecycle.episodes) for lifecycle in group.lifecycles]
    together = ([made[k][e] for k, e in place] for place in places.values())
    played = await asyncio.gather(*(_at_place(of, group.pack.tasks, parts, limit_s) for of in together))
    for place, found in zip(places.values(), played, strict=True):
        for (k, e), one in zip(place, found, strict=True):
            made[k][e] = one
    lifecycles = zip(group.lifecycles, made, strict=True)
    return structs.replace(
        group, lifecycles=tuple(structs.replace(one, episodes=tuple(own)) for one, own in lifecycles)
    )


async def _at_place(
    episodes: Sequence[Episode], tasks: Sequence[Task], parts: Mapping[str, SiblingReward], limit_s: float | None
) -> list[Episode]:
    """The siblings' episodes with these parts."""
    kind, position = episodes[0].kind, episodes[0].position
    task = tasks[min(position, len(tasks) - 1)]  # a program may ask for a text after the last one
    known = [episode for episode in episodes if episode.reward is not None]
    asked = {name: _of_siblings(part, known, task) for name, part in parts.items() if known and kind in part.kinds}
    if not asked:
        return list(episodes)
    found = await _all_of(asked, limit_s)
    scored, own = [], "world" if kind is EpisodeKind.SOLVE else "context"
    for index, episode in enumerate(known):
        assert episode.reward is not None
        scores, failures = dict(episode.parts or {own: episode.reward}), []
        for name, of_part in found.items():
            score = of_part[index] if isinstance(of_part, list) else of_part
            if isinstance(score, float):
                scores[name] = score
            else:
                failures.append(RewardFailure(f"{name} gave this sibling no score") if score is None else score)
        scored.append(summed(episode, scores, failures))
    rest = iter(scored)
    return [episode if episode.reward is None else next(rest) for episode in episodes]


async def _all_of(asked: Mapping[str, Coroutine[Any, Any, _T]], limit_s: float | None) -> dict[str, _T | RewardFailure]:
    """What each part gives, or what went wrong with it. Raises what ends the run, once all have ended."""
    found = await asyncio.gather(*(_bounded(name, limit_s, one) for name, one in asked.items()))
    if refused := next((one for one in found if isinstance(one, EngineRefused)), None):
        raise refused
    return {name: one for name, one in zip(asked, found, strict=True) if not isinstance(one, EngineRefused)}


def summed(episode: Episode, parts: dict[str, float], failures: Sequence[RewardFailure]) -> Episode:
    """The episode with these weighted parts and their sum as its reward; failed where a part failed or the sum is not finite."""
    total = math.fsum(parts.values()) if all(abs(one) <= LARGEST for one in parts.values()) else math.inf
    if not failures and not abs(total) <= LARGEST:
        failures = [RewardFailure(f"of the parts {parts} one, or the sum, is not finite, or above {LARGEST:g}")]
    if failures:
        for failure in failures:
            note_fault(failure)
        names = ", and ".join(map(str, failures))
        error = f"{type(failures[0]).__name__}: {names}"
        return structs.replace(episode, status=EpisodeStatus.FAILED, reward=None, success=None, error=error)
    return structs.replace(episode, reward=total, parts=parts)


async def _bounded(
    name: str, limit_s: float | None, asked: Coroutine[Any, Any, _T]
) -> _T | RewardFailure | EngineRefused:
    """What the part gives, or what went wrong. Raises nothing but what ends the run or cancels this task."""
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await asked
    except EngineRefused as error:
        return error
    except BaseException as error:
        if limit.expired():
            failure = RewardTimeout(f"{name} gave no score in data.deadlines.reward_s={limit_s:g} s")
        elif ends_the_run(error) or (isinstance(error, GeneratorExit) and asyncio.current_task() is None):
            raise
        else:
            failure = RewardFailure(f"{name} raised {described(error)}")
        failure.__cause__ = error
        return failure


async def _scores(name: str, part: Reward, episode: Episode, task: Task) -> dict[str, float]:
    """Scores by full name."""
    scores = await part(episode, task)
    if isinstance(scores, Mapping):
        if len(scores) > _MOST_SCORES or not all(map(is_name, scores)):
            raise ValueError(f"scores have at most {_MOST_SCORES} names, of letters, digits, '.', '_' and '-'")
        return {f"{name}.{key}": part.weight * _number(score) for key, score in scores.items()}
    return {name: part.weight * _number(scores)}


async def _of_siblings(part: SiblingReward, episodes: Sequence[Episode], task: Task) -> list[float | None]:
    if len(episodes) < 2:
        raise ValueError("no sibling is left to compare with")
    scores = list(await part(episodes, task))
    if len(scores) != len(episodes):
        raise ValueError(f"{len(scores)} scores for {len(episodes)} siblings")
    return [None if score is None else part.weight * _number(score) for score in scores]


def is_name(key: object) -> bool:
    """Whether a score can be called so: it becomes a column of tables, and part of a metric's name."""
    return isinstance(key, str) and re.fullmatch(r"[\w.-]{1,64}", key, re.ASCII) is not None


def _number(score: object) -> float:
    """The score. Raises `ValueError` unless it is a finite number."""
    if not isinstance(score, Real) or not math.isfinite(score):
        raise ValueError(f"its score is {str(score)[:80]!r} ({type(score).__name__}), not a finite number")
    return float(score)
