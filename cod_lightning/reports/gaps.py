"""What the update that trained on an episode had: its advantage, and how far the policy's log-probs were from the sampler's."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from cod_lightning.errors import DataError
from cod_lightning.rollout import policy_logprobs
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs, action_digest
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import Episode


@dataclass(frozen=True, slots=True)
class EpisodeGaps:
    """Of the tokens of one episode, all turns in a row."""

    gaps: list[float]
    """Policy minus sampler, nats; above 0 where the token has become likelier."""
    updates: int
    """Optimizer updates that had moved the policy since it sampled them."""
    advantage: float


Gaps = list[list[EpisodeGaps | None]]
"""[K][E] of a group; None where no update trained on the episode, or its line is missing."""


@dataclass(slots=True)
class LogprobFile:
    """The `train_logprobs*.jsonl` beside a file of training lifecycles; only where its lines begin is kept in memory."""

    path: Path
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that were not read, by reason; complete once all groups were asked for."""
    _places: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    """Step and pack -> offsets in the file."""

    @classmethod
    def beside(cls, lifecycles: Path) -> "LogprobFile":
        """The one that belongs to `train.jsonl` or `train.rankR.jsonl`."""
        made = cls(lifecycles.with_name(policy_logprobs.NAME + lifecycles.name.removeprefix("train")))
        if made.path.exists():
            made._index()
        return made

    def of(self, played: PlayedGroup) -> Gaps:
        """Gaps of the group's episodes."""
        found = {(one.sibling, one.episode): one for one in self._records(played)}
        return [
            [self._gaps(episode, found.get((life.sibling, e))) for e, episode in enumerate(life.episodes)]
            for life in played.group.lifecycles
        ]

    def _gaps(self, episode: Episode, record: PolicyLogprobs | None) -> EpisodeGaps | None:
        if record is None:
            return None
        behaviour = list(chain.from_iterable(turn.behaviour_logprobs for turn in episode.turns))
        if record.digest != action_digest(episode) or len(behaviour) != len(record.logprobs):
            self.left_out["about other tokens than the lifecycle's"] += 1
            return None
        gaps = [policy - sampled for policy, sampled in zip(record.logprobs, behaviour, strict=True)]
        return EpisodeGaps(gaps, record.updates, record.advantage)

    def _index(self) -> None:
        with self.path.open("rb") as file:
            place = 0
            for line in file:
                try:
                    record = policy_logprobs.load(line)
                    self._places.setdefault((record.step, record.pack), []).append(place)
                except DataError as error:
                    if line.strip():  # a run that goes on begins with a blank one
                        self.left_out[str(error)] += 1
                place += len(line)

    def _records(self, played: PlayedGroup) -> Iterator[PolicyLogprobs]:
        if places := self._places.get((played.step, played.group.pack.id)):
            with self.path.open("rb") as file:
                for place in places:
                    file.seek(place)
                    yield policy_logprobs.load(file.readline())
