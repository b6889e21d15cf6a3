"""What a cause is: what it looks at, when it is named, and what helps; and what causes ask of episodes."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import ClassVar

from cod_lightning.diagnosis.evidence import Evidence, PlacedEpisode
from cod_lightning.types import EpisodeKind, EpisodeStatus, StopReason

FEWEST = 16
"""Episodes of which a share is taken."""
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that a run has."""

    cause: str
    seen: str
    """What was measured, with its figures."""
    remedy: str
    shown_by: tuple[PlacedEpisode, ...] = ()
    """Recorded episodes that show it."""


Seen = tuple[str, Iterable[PlacedEpisode]]
"""What was measured, and episodes that show it."""


class Cause(ABC):
    """One way in which a training goes nowhere.

    A docstring says what goes wrong, then where it is named; numbers of the class stand there by their names in braces.
    """

    remedy: ClassVar[str]
    explains: ClassVar[tuple[str, ...]] = ()
    """Names of causes that follow from this one, and are left out beside it."""

    @classmethod
    def named(cls) -> str:
        """What it is called: the class's name in words."""
        return re.sub(r"(?<!^)(?=[A-Z])", " ", cls.__name__).lower()

    @abstractmethod
    def seen(self, run: Evidence) -> Seen | None:
        """What shows that the run has it; None where nothing does."""

    def __call__(self, run: Evidence) -> Finding | None:
        """The finding, if there is one."""
        if (found := self.seen(run)) is None:
            return None
        text, shown = found
        return Finding(self.named(), text, self.remedy, tuple(islice(shown, _MOST_SHOWN)))


def share_of(
    among: Sequence[PlacedEpisode], chosen: Callable[[PlacedEpisode], bool]
) -> tuple[float, list[PlacedEpisode]]:
    """The share of these episodes, and those; 0 where there are too few."""
    found = [one for one in among if chosen(one)]
    return (len(found) / len(among) if len(among) >= FEWEST else 0.0), found


def success_of(among: Sequence[PlacedEpisode]) -> float | None:
    return fmean(bool(one.episode.success) for one in among) if len(among) >= FEWEST else None


def cut(one: PlacedEpisode) -> bool:
    """Whether the response limit cut it off before it could be read."""
    unread = one.episode.kind is not EpisodeKind.UPDATE or not one.episode.success
    return unread and any(turn.stop is StopReason.LENGTH for turn in one.episode.turns)


def unread(one: PlacedEpisode) -> bool:
    """Whether the policy's text did not parse."""
    if one.episode.kind is EpisodeKind.UPDATE:
        return not one.episode.success
    return one.episode.status is EpisodeStatus.MALFORMED
