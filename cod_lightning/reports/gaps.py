"""What the update that trained on an episode had: its advantage, and the policy's log-probs."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from cod_lightning.errors import DataError
from cod_lightning.rollout import policy_logprobs
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs, action_digest
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import Episode


@dataclass(slots=True)
class LogprobFile:
    """The `train_logprobs*.jsonl` beside a file of training lifecycles; only where its lines begin is kept in memory."""

    path: Path
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that were not read, by reason; complete once all episodes were asked for."""
    _places: dict[tuple[int, str, int, int], int] = field(default_factory=dict)
    """Step, pack, sibling and episode -> offset in the file; the later line of an episode counts."""

    @classmethod
    def beside(cls, lifecycles: Path) -> "LogprobFile | None":
        """The one that belongs to `train.jsonl` or `train.rankR.jsonl`; None beside any other file."""
        if not re.fullmatch(r"train(\.rank\d+)?\.jsonl", lifecycles.name):
            return None
        made = cls(lifecycles.with_name(policy_logprobs.NAME + lifecycles.name.removeprefix("train")))
        if made.path.is_file():
            made._index()
        return made

    def of(self, played: PlayedGroup, sibling: int, index: int, episode: Episode) -> PolicyLogprobs | None:
        """Of that episode; None where no update trained on it, or its line is missing."""
        place = self._places.get((played.step, played.group.pack.id, sibling, index))
        if place is None:
            return None
        with self.path.open("rb") as file:
            file.seek(place)
            record = policy_logprobs.load(file.readline())
        sampled = sum(len(turn.behaviour_logprobs) for turn in episode.turns)
        if record.digest != action_digest(episode) or sampled != len(record.logprobs):
            self.left_out["about other tokens than the lifecycle's"] += 1
            return None
        return record

    def _index(self) -> None:
        with self.path.open("rb") as file:
            place = 0
            for line in file:
                try:
                    record = policy_logprobs.load(line)
                    self._places[record.step, record.pack, record.sibling, record.episode] = place
                except DataError as error:
                    if line.strip():  # a run that goes on begins with a blank one
                        self.left_out[str(error)] += 1
                place += len(line)
