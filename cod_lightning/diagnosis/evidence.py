"""What a run recorded, as causes look at it: metrics by update, its first and its latest lifecycles, its evaluation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from cod_lightning.diagnosis.notes import Dependence
from cod_lightning.files import no_run
from cod_lightning.markdown import visible
from cod_lightning.reports.curves import LATE, Metrics, num_updates, read_metrics
from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.reports.suites import read_evaluation
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.trusted import read_config
from cod_lightning.types import Episode, EpisodeKind

_HEAD, _TAIL = 2**22, 2**23
"""Bytes that are read of each file of lifecycles, from its beginning and up to its end."""


@dataclass(frozen=True, slots=True)
class PlacedEpisode:
    """One recorded episode, and where to find it."""

    episode: Episode
    step: int
    pack: str
    sibling: int
    number: int
    """Of the episode in its lifecycle."""

    @property
    def address(self) -> str:
        """What stands behind # where the report of the run opens this episode."""
        pack = visible(str(self.pack))  # as the report has it
        return urlencode({"pack": pack, "sibling": self.sibling, "step": self.step, "episode": self.number})

    def __str__(self) -> str:
        return (
            f"step {self.step}, pack {self.pack}, sibling {self.sibling}, {self.episode.kind} {self.episode.position}"
        )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A run's records; what was not recorded is empty."""

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    """`config.yaml`, nested as it is."""
    metrics: Metrics = field(default_factory=dict)
    groups: Sequence[PlayedGroup] = ()
    """Of training, the first and the latest."""
    suites: Mapping[str, Any] = field(default_factory=dict)
    """Of evaluation.json."""
    dependence: Dependence | None = None
    """How far late notes depend on what their episode saw; None without weights or notes."""
    notes: Sequence[str] = ()
    """What could not be read."""

    def option(self, path: str) -> Any:
        """A value of the config by its dotted key, `init_args` passed through; None where it is missing."""
        found: Any = self.config
        for name in path.split("."):
            if not isinstance(found, dict):
                return None
            inner = found.get("init_args")
            found = found[name] if name in found else inner.get(name) if isinstance(inner, dict) else None
        return found

    @property
    def first_groups(self) -> list[PlayedGroup]:
        """Those of the first rollout."""
        first = min((one.step for one in self.groups), default=0)
        return [one for one in self.groups if one.step == first]

    @property
    def late_groups(self) -> list[PlayedGroup]:
        """Those of the last quarter of the updates, at least of the last rollout."""
        last = max((one.step for one in self.groups), default=0)
        return [one for one in self.groups if one.step >= min(last, LATE * num_updates(self.metrics))]


def placed(groups: Iterable[PlayedGroup]) -> Iterator[PlacedEpisode]:
    """Own episodes of these groups."""
    for one in groups:
        for life in one.group.lifecycles:
            for number, episode in enumerate(life.own):
                yield PlacedEpisode(episode, one.step, one.group.pack.id, life.sibling, number)


def episodes(groups: Iterable[PlayedGroup], *kinds: EpisodeKind) -> list[PlacedEpisode]:
    """Those that have a reward, of these kinds."""
    return [one for one in placed(groups) if one.episode.kind in kinds and one.episode.reward is not None]


def read_evidence(folder: Path) -> Evidence:
    """What that run recorded. Raises `ConfigError` where it is no run's folder."""
    metrics, lives = folder / "metrics.csv", sorted((folder / "lifecycles").glob("train*.jsonl"))
    lives = [path for path in lives if not path.name.startswith("train_logprobs")]
    if not metrics.is_file() and not any(map(Path.is_file, lives)):
        raise no_run("doctor", folder, "the folder of a training, with metrics.csv or lifecycles/train.jsonl")
    groups = list(chain.from_iterable(map(_ends, filter(Path.is_file, lives))))
    config, of_config = _settings(folder)
    found, of_metrics = read_metrics(folder)
    return Evidence(
        folder=folder,
        config=config,
        # of a run without loggers, lifecycles say what is late
        metrics=found or {"step": {one.step: one.step for one in groups}},
        groups=groups,
        suites={name: suite.record for name, suite in read_evaluation(folder)[0].items()},
        notes=[*of_config, *of_metrics],
    )


def _settings(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What config.yaml holds, nested as it is, and a note where it cannot be read."""
    if not (path := folder / "config.yaml").is_file():
        return {}, ["There is no config.yaml, so settings are missing."]
    try:
        return dict(read_config(path)), []
    except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        return {}, [f"config.yaml cannot be read ({type(error).__name__})."]


def _ends(path: Path) -> Iterator[PlayedGroup]:
    """Groups at the beginning and at the end of a file; what is in between is skipped where the file is long."""
    size, lines = path.stat().st_size, LifecycleFile(path)
    if size <= _HEAD + _TAIL:
        yield from lines.groups()
        return
    with path.open("rb") as file:
        yield from lines.joined(file.readlines(_HEAD))
        file.seek(size - _TAIL)
        file.readline()
        yield from lines.joined(file)
