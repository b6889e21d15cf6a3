"""Training on lifecycles that were collected elsewhere: by another run, or by a process that still writes them."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import NonNegative
from cod_lightning.rollout import transcript
from cod_lightning.training.packs import PackChoice, PackSource
from cod_lightning.types import Group, Pack

_LOOK_S = 0.1
"""Between two looks for lines that another process has written."""


class RecordedGroups(PackSource):
    """Packs 0, 1, 2, ... as the environment draws them; their lifecycles are read from transcripts, and the engine plays none.

    Tokens are trained on as they were sampled, with the log-probs of the policy that sampled them: the loss's ratio, or
    `model.mismatch`, corrects for its age. Rewards are those that were recorded: `data.rewards` has no say in them.

    Source: IMPALA (arXiv 1802.01561), whose actors write trajectories with their own policy's probabilities, for a learner
    elsewhere. What differs: the learner takes whole groups in the order of packs, and its loss corrects in place of V-trace.

    Args:
        folder: `lifecycles/` of a run of this environment, context, tokenizer, pack size and seed that keeps all its groups
            (`Transcripts.train_per_rollout`).
        wait_s: Seconds in which a group that is not there yet has to come.
    """

    def __init__(self, folder: str, wait_s: NonNegative = 0.0) -> None:
        self.folder, self.wait_s = Path(folder), wait_s
        self._read: dict[Path, int] = {}
        """Bytes of each file whose lines are known."""
        self._lines: dict[str, dict[int, tuple[Path, int]]] = {}
        """By pack and sibling, the file and the byte at which its latest line begins."""

    def check(self, env: TextEnv, pack_size: int) -> None:
        if not self.wait_s and not self.folder.is_dir():
            remedy = "Name `lifecycles/` of a run, or set data.source.wait_s for one that is still to come."
            raise ConfigError("data.source.folder", self.folder, "a folder of transcripts", remedy)

    def next(self, first: int, count: int) -> Sequence[PackChoice]:
        return [PackChoice(index) for index in range(first, first + count)]

    def collected(self, packs: Sequence[Pack], num_siblings: int) -> Sequence[Group]:
        until, late = time.monotonic() + self.wait_s, False
        while missing := [
            one.id for one in packs if not set(range(num_siblings)) <= self._lines.get(one.id, {}).keys()
        ]:
            if late:
                expected = f"{num_siblings} lifecycles of pack {missing[0]} in train*.jsonl within {self.wait_s:g} s"
                remedy = "Collect with this run's seed, data.pack_size and data.group_size, and keep all groups; or raise wait_s."
                raise ConfigError("data.source.folder", self.folder, expected, remedy)
            time.sleep(min(_LOOK_S, max(0.0, until - time.monotonic())))
            late = time.monotonic() >= until
            self._find()
        return [self._group(pack.id, num_siblings) for pack in packs]

    def _find(self) -> None:
        """Note the lines that were not known; one that is still being written is none."""
        paths = sorted(self.folder.glob("train.jsonl")) + sorted(self.folder.glob("train.rank*.jsonl"))
        for path in filter(Path.is_file, paths):  # a pipe would be waited for
            with path.open("rb") as file:
                file.seek(place := self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    pack_id, sibling = _whose(line, path)
                    self._lines.setdefault(pack_id, {})[sibling] = (path, place)
                    place += len(line)
                self._read[path] = place

    def _group(self, pack_id: str, num_siblings: int) -> Group:
        lines: list[str] = []
        for path, place in (self._lines[pack_id][sibling] for sibling in range(num_siblings)):
            with path.open("rb") as file:
                file.seek(place)
                lines.append(file.readline().decode())
        groups = transcript.load(lines, source=f"{self.folder}, pack {pack_id}")
        return Group(pack=groups[0].pack, lifecycles=tuple(life for group in groups for life in group.lifecycles))


def _whose(line: bytes, path: Path) -> tuple[str, int]:
    """Pack and sibling of a line."""
    try:
        record = json.loads(line)
        return str(record["pack"]["id"]), int(record["sibling"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        remedy = "Remove the line, together with the others of its pack."
        raise ConfigError("data.source.folder", path, "whole lines of lifecycles", remedy) from error
