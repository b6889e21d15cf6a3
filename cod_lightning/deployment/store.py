"""What a deployed agent keeps: every episode and every version of its context, in one SQLite file.

A finished episode and the context that it leaves are written in one transaction, so that a kill at any moment loses the
episode in flight and nothing else. Nothing is ever overwritten: going back is a new version with an old text.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from cod_lightning.deployment.rows import OWN, FolderRows, damage_named, packed, unpacked
from cod_lightning.errors import ConfigError
from cod_lightning.rollout.transcript import episode_record, read_episode
from cod_lightning.types import Episode, EpisodeKind

_FILE = "agent.sqlite"
_LATEST = 1e11
"""Seconds from 1970, in either direction, that a version's time may be; the system knows no date of much larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextVersion:
    """One version of the context."""

    version: int
    """From 0, the empty one, on; the highest is the current one."""
    text: str
    """The context for readers."""
    state: str
    """Its state as the mechanism dumps it; empty for an empty context."""
    reason: str
    """`start`, `update`, `task` (its reward or its turns changed the state) or `revert to N`."""
    created: float
    """Seconds since 1970."""
    position: int | None
    """Task after which it was written; None where no episode wrote it."""
    reward: float | None
    """Of that task's solve episode; None where missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEpisode:
    """One finished episode."""

    task: str
    context_version: int
    """Version that it began with."""
    began: float
    ended: float
    episode: Episode
    """Without states, which are those of the versions."""


class ContextStore:
    """The file `agent.sqlite` of a state folder.

    Args:
        folder: State folder; made if it is not there and `create` says so.
        create: Whether a folder without a store gets a new one.

    Raises:
        ConfigError: Where there is no store and none shall be made.
        DataError: Where the file is no store of this schema, or damaged; so does every method.
    """

    def __init__(self, folder: Path | str, *, create: bool = True) -> None:
        self.path = Path(folder).absolute() / _FILE
        if not self.path.is_file():
            if not create:
                raise ConfigError("--state", folder, f"a state folder with {_FILE}", "`deploy --state DIR` makes one.")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._make()
        with damage_named(self.path):
            self._rows = FolderRows(self.path)
            self._rows.open()

    def close(self) -> None:
        with damage_named(self.path):
            self._rows.db.close()

    # ------------------------------------------------------------------ identity

    def claim(self, identity: dict[str, str], *, new_policy: bool = False) -> None:
        """Say what this agent lives in; the first to say so decides. `ConfigError` with what differs otherwise.

        Keys are not asked about that a store lacks since an earlier version made it; they decide from now on. With `new_policy`
        another policy goes on with the agent's context, and decides from now on.
        """
        identity = {_encodable(key): _encodable(value) for key, value in identity.items()}
        with self._rows.transaction():
            known = self.identity
            free = {"policy"} if new_policy else set[str]()
            new = {key: value for key, value in identity.items() if key not in known or key in free}
            if differing := sorted(key for key in known.keys() - free if known[key] != identity.get(key)):
                raise self._of_another({key: (known[key], identity.get(key)) for key in differing})
            for key, value in new.items():
                if key in known:
                    self._rows.set(key, value)
                else:
                    self._rows.put("identity", key, value)

    def _of_another(self, changes: Mapping[str, tuple[str, str | None]]) -> ConfigError:
        """The refusal of a folder that holds another agent's state."""
        changed = "; ".join(f"{key} was {before}, is {now}" for key, (before, now) in changes.items())
        remedy = "Use what it was, or another folder."
        if list(changes) == ["policy"]:
            remedy = "Use what it was, another folder, or --accept_changes true: the new policy then goes on."
        return ConfigError("--state", self.path.parent, f"the state of this agent, but {changed}", remedy)

    @property
    def identity(self) -> dict[str, str]:
        """The identity that `claim` stored."""
        with damage_named(self.path):
            return {key: value for key, value in self._rows.all("identity") if key not in OWN}

    # ------------------------------------------------------------------ writing

    def add(self, task: str, episode: Episode, began: float, state: str | None) -> None:
        """An episode has ended; `state`, where it is not None, is that of the context that it leaves, a new version."""
        with self._rows.transaction():
            row = self._add(task, episode, began)
            if state is not None:
                reason = "update" if episode.kind is EpisodeKind.UPDATE else "task"
                self._version(episode.context_after, state, reason, row)

    def revert(self, version: int) -> int:
        """Make the text of an old version current again; the number of the version that says so."""
        old = self.version(version)
        with self._rows.transaction():
            return self._version(old.text, old.state, f"revert to {version}", None)

    # ------------------------------------------------------------------ reading

    def current(self) -> ContextVersion:
        """The newest version."""
        with damage_named(self.path):
            newest = self._rows.num("contexts") - 1
        return self.version(newest)

    def version(self, number: int) -> ContextVersion:
        """One version; `ConfigError` where there is none of that number."""
        with damage_named(self.path):
            num = self._rows.num("contexts")
            if 0 <= number < num:
                return self._as_version(self._rows.row("contexts", number))
        raise ConfigError("version", number, f"in 0..{num - 1}", "`context log` lists them.")

    def versions(self) -> Iterator[ContextVersion]:
        """All versions, oldest first, each read when it is asked for."""
        with damage_named(self.path):
            for row in self._rows.all("contexts"):
                yield self._as_version(row)

    def episodes(self) -> Iterator[StoredEpisode]:
        """All finished episodes, oldest first, each read when it is asked for."""
        with damage_named(self.path):
            for _, task, *_, version, began, ended, content in self._rows.all("episodes"):
                episode = read_episode(unpacked(content))
                yield StoredEpisode(task=task, context_version=version, began=began, ended=ended, episode=episode)

    def rewards(self) -> list[float | None]:
        """Of all tasks that have ended, in their order; None where missing."""
        with damage_named(self.path):
            return [row[5] for row in self._rows.all("episodes") if row[3] == EpisodeKind.SOLVE]

    def num_solved(self) -> int:
        """Tasks that have ended, well or badly."""
        with damage_named(self.path):
            return self._rows.num("solved")

    # ------------------------------------------------------------------ inside

    def _make(self) -> None:
        """A new store, under its name only when it is whole."""
        unfinished = self.path.with_name(f"{_FILE}.{os.getpid()}.new")
        unfinished.unlink(missing_ok=True)
        with damage_named(self.path):
            self._rows = FolderRows(unfinished)
            with self._rows.transaction():
                self._rows.begin()
                self._version("", "", "start", None)
            self._rows.db.close()
        unfinished.replace(self.path)

    def _add(self, task: str, episode: Episode, began: float) -> int:
        key, context = self._rows.num("episodes") + 1, self._rows.num("contexts") - 1
        reward = None if episode.reward is None else float(episode.reward) + 0.0  # SQLite keeps no -0.0
        success = None if episode.success is None else int(episode.success)
        outcome = episode.kind.value, episode.status.value, reward, success
        content = packed(episode_record(structs.replace(episode, state_before=None, state_after=None)))
        row = key, _encodable(task), episode.position, *outcome, context, float(began), time.time(), content
        self._rows.put("episodes", *row)
        if episode.kind is EpisodeKind.SOLVE:
            self._rows.count("solved")
        return key

    def _version(self, text: str, state: str, reason: str, episode: int | None) -> int:
        number = self._rows.num("contexts")
        content = packed([_encodable(text), _encodable(state)])
        self._rows.put("contexts", number, episode, time.time(), reason, content)
        return number

    def _as_version(self, row: Sequence[Any]) -> ContextVersion:
        number, episode, created, reason, content = row
        text, state = msgspec.convert(unpacked(content), tuple[str, str])
        if not abs(created) < _LATEST:
            raise ValueError(f"version {number} was written at {created:g} s, a time that no calendar has")
        position = reward = None
        if episode is not None:
            task = self._rows.row("episodes", episode if reason == "task" else episode - 1)  # the task that it followed
            position, reward = task[2], task[5]
        return ContextVersion(
            version=number, text=text, state=state, reason=reason, created=created, position=position, reward=reward
        )


def _encodable(text: str) -> str:
    """The text without lone surrogates, which a model behind an endpoint can write and no file can hold."""
    return text.encode("utf-8", "replace").decode()
