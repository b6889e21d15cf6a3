"""The stored episodes of a training with replay: their rows join batches, within bounds, and are a part of every checkpoint."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, replace
from itertools import chain
from typing import Any

import torch

from cod_lightning.credit.credited import Credited
from cod_lightning.errors import ConfigError, answering
from cod_lightning.objective.batch import Batch, concatenated, with_padding, without_padding
from cod_lightning.ranks import gathered, num_ranks, rank
from cod_lightning.training.replay import RecordedEpisode, RecordedRollout, Replay, ReplayedEpisode
from cod_lightning.types import EpisodeKind


class ReplayBuffer:
    """The stored episodes of all ranks; each rank keeps the rows of those that it played.

    What a replay raises or answers wrongly becomes a `ConfigError` that names `data.replay`; the run ends, and its last checkpoint
    is as it was. Rows of attempts from a snapshot are never stored.

    Args:
        replay: What chooses.
        seed: Of the run.
    """

    def __init__(self, replay: Replay, seed: int) -> None:
        self.replay = replay
        self.stored: dict[RecordedEpisode, int] = {}
        """The episodes in the order in which they were played, and the rank that has the rows; the same on every rank."""
        self._rows: dict[RecordedEpisode, Batch] = {}
        """Token rows of each episode, of this rank."""
        self.metrics: dict[str, float] = {}
        """Of the latest rollout."""
        replay.start(seed)

    def join(
        self, number: int, batch: Batch, credit: Credited, shares: Sequence[Sequence[int]]
    ) -> tuple[Batch, list[list[int]]]:
        """This rank's rows of rollout `number` with those that are replayed, and the episodes of its updates.

        What is replayed counts on from the last entry, and from pack G, one for each stored pack in each update. Then the rollout
        is stored.
        """
        rollout, owners = self._recorded(number, batch, credit, shares)
        with self._checked("observe"):
            self.replay.observe(rollout)
        for episode in list(self.stored):
            if rollout.policy_version - episode.policy_version > self.replay.max_age:
                self._drop(episode)
        with self._checked("choose"):
            chosen = [list(of) for of in self.replay.choose(list(self.stored), rollout)]
            if len(chosen) != len(shares) or not all(math.isfinite(one.advantage) for of in chosen for one in of):
                raise self._error(f"a replay that chooses for each of {len(shares)} updates, with finite advantages")
            places = _places(chosen, credit.table.num_packs)
            joined, entries = self._joined(batch, len(credit.table), chosen, places)
        self._store(batch, rollout.episodes, owners)
        self._measure(rollout, joined, chosen, shares, credit)
        return joined, [[*share, *more] for share, more in zip(shares, entries, strict=True)]

    def _recorded(
        self, number: int, batch: Batch, credit: Credited, shares: Sequence[Sequence[int]]
    ) -> tuple[RecordedRollout, list[int]]:
        """The rollout of all ranks, and the rank of each of its episodes."""
        tokens: dict[int, list[int]] = {}
        for entry, length, version in zip(
            batch.episode.tolist(), batch.lengths.tolist(), batch.policy_version.tolist(), strict=True
        ):
            if credit.table.own[entry]:
                before = tokens.get(entry, [0, version])
                tokens[entry] = [before[0] + length, min(before[1], version)]
        newest = int(batch.policy_version.max()) if len(batch) else -1
        parts = gathered((tokens, dict(batch.pack_ids), newest))
        played = {entry: (*of, r) for r, (found, _, _) in enumerate(parts) for entry, of in found.items()}
        packs = {g: name for _, names, _ in parts for g, name in names.items()}
        places = credit.table.place.tolist()
        firsts = {places[entry][0]: entry for entry in sorted(set(chain.from_iterable(shares)), reverse=True)}
        begins = {entry: g for g, entry in firsts.items()}
        updates = [[begins[entry] for entry in share if entry in begins] for share in shares]
        for n, g in enumerate(sorted(packs.keys() - firsts.keys())):
            updates[n % len(updates)].append(g)
        known = [(entry, of) for entry, of in sorted(played.items()) if credit.valid[entry]]
        of_equals = torch.as_tensor(credit.of_equals).expand(len(credit.table))
        names, kinds, positions = list(EpisodeKind), credit.table.kinds.tolist(), credit.table.positions.tolist()
        episodes = [
            RecordedEpisode(
                rollout=number,
                pack_id=packs[g],
                sibling=k,
                episode=e,
                kind=names[kinds[entry]].value,  # a plain text can be read again from a checkpoint
                position=positions[entry],
                policy_version=version,
                episode_return=float(credit.returns.values[entry]),
                group_return=float(credit.group_returns[entry]),
                advantage=float(credit.values[entry]),
                num_tokens=num,
                of_equals=float(of_equals[entry]),
            )
            for entry, (num, version, _) in known
            for g, k, e in [places[entry]]
        ]
        rollout = RecordedRollout(
            number=number,
            # where nothing was played, the newest of before
            policy_version=max((*(version for *_, version in parts), *(one.policy_version for one in self.stored))),
            episodes=episodes,
            packs=packs,
            without_signal=frozenset((~credit.packs_with_signal).nonzero().flatten().tolist()),
            updates=updates,
        )
        return rollout, [owner for _, (_, _, owner) in known]

    def _joined(
        self,
        batch: Batch,
        behind: int,
        chosen: Sequence[Sequence[ReplayedEpisode]],
        places: Mapping[tuple[int, str], int],
    ) -> tuple[Batch, list[list[int]]]:
        """The rows of the batch, then those of this rank that are replayed; these count from `behind` on, by update."""
        joining = [
            (places[u, one.episode.pack_id], i, one)
            for u, of_update in enumerate(chosen)
            for i, one in enumerate(of_update)
        ]
        number_of = {key: behind + n for n, key in enumerate(sorted((g, i) for g, i, _ in joining))}
        parts = [batch]
        for g, i, one in joining:
            if self.stored[one.episode] == rank():
                rows = self._rows[one.episode]
                numbers = torch.full_like(rows.episode, number_of[g, i])
                joined = replace(
                    rows,
                    place=rows.place.new_tensor([g, i, one.episode.episode]).expand(len(rows), 3),
                    advantages=torch.full_like(rows.advantages, one.advantage),
                    returns=None if batch.returns is None else torch.full_like(rows.advantages, math.nan),
                    episode=numbers,
                    siblings=numbers,  # what compares siblings is refused beside a replay
                )
                parts.append(joined)
        names = {**batch.pack_ids, **{g: pack_id for (_, pack_id), g in places.items()}}
        entries = [
            [number_of[places[u, one.episode.pack_id], i] for i, one in enumerate(of_update)]
            for u, of_update in enumerate(chosen)
        ]
        return replace(concatenated(parts), pack_ids=names), entries

    def _store(self, batch: Batch, episodes: Sequence[RecordedEpisode], owners: Sequence[int]) -> None:
        """Those that are worth it, within the bounds."""
        with self._checked("worth"):
            worths = {one: float(self.replay.worth(one)) for one in (*self.stored, *episodes)}
        kept = sorted(
            (one for one in worths if worths[one] > 0), key=lambda one: (-worths[one], -one.rollout, astuple(one))
        )
        room, within = self.replay.max_tokens, set[RecordedEpisode]()
        for one in kept[: self.replay.max_episodes]:
            if one.num_tokens > room:
                break
            room -= one.num_tokens
            within.add(one)
        for one in list(self.stored):
            if one not in within:
                self._drop(one)
        own: dict[tuple[str, int, int], list[int]] = {}
        for row, (g, k, e) in enumerate(batch.place.tolist()):
            own.setdefault((batch.pack_ids[g], k, e), []).append(row)
        for one, owner in zip(episodes, owners, strict=True):
            if one in within:
                self.stored[one] = owner
                if owner == rank():
                    rows = batch.rows(torch.tensor(own[one.pack_id, one.sibling, one.episode]))
                    replayed = torch.ones_like(rows.is_replayed)
                    self._rows[one] = replace(rows, returns=None, is_replayed=replayed, pack_ids={}, figures={})

    def _drop(self, episode: RecordedEpisode) -> None:
        del self.stored[episode]
        self._rows.pop(episode, None)

    def _measure(
        self,
        rollout: RecordedRollout,
        joined: Batch,
        chosen: Sequence[Sequence[ReplayedEpisode]],
        shares: Sequence[Sequence[int]],
        credit: Credited,
    ) -> None:
        """Action tokens that are trained on count once for each update in which they are."""
        replayed = [one.episode for of_update in chosen for one in of_update]
        num_passes = sum(map(len, shares)) / max(1, len(set(chain.from_iterable(shares))))
        counts, new = joined.action_mask.sum(dim=1), torch.isin(joined.episode, credit.trained.nonzero().squeeze(1))
        own = (int(counts[joined.is_replayed].sum()), int(counts[new].sum()))
        tokens, new = map(sum, zip(*gathered(own), strict=True))
        ages = [rollout.policy_version - one.policy_version for one in replayed]
        with self._checked("metrics"):
            more = {name: float(value) for name, value in self.replay.metrics().items()}
        figures = {
            "stored_episodes": float(len(self.stored)),
            "stored_tokens": float(sum(one.num_tokens for one in self.stored)),
            "replayed_episodes": float(len(replayed)),
            "replayed_tokens": float(tokens),
            "replayed_share": tokens / max(1.0, tokens + num_passes * new),
            "age": sum(ages) / max(1, len(ages)),
            **more,
        }
        self.metrics = {f"replay/{name}": value for name, value in figures.items()}

    def state_dict(self) -> dict[str, Any]:
        """The buffer of all ranks; the same on every rank, and every rank has to call it."""
        parts = gathered(self._rows)
        rows = [parts[owner][one] for one, owner in self.stored.items()]
        with self._checked("state_dict"):
            state = self.replay.state_dict()
        return {
            "class": type(self.replay).__qualname__,
            "state": state,
            "metrics": dict(self.metrics),
            "num_ranks": num_ranks(),
            "episodes": list(map(asdict, self.stored)),
            "owners": list(self.stored.values()),
            "num_rows": list(map(len, rows)),
            "rows": without_padding(concatenated(rows)) if rows else None,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on there; another class of replay, which the person has accepted as a change, begins anew."""
        if state_dict["class"] != type(self.replay).__qualname__:
            return
        with self._checked("load_state_dict"):
            self.replay.load_state_dict(state_dict["state"])
        self.metrics = dict(state_dict["metrics"])
        self.stored, self._rows = {}, {}
        same = state_dict["num_ranks"] == num_ranks()
        rows = with_padding(state_dict["rows"]) if state_dict["rows"] else None
        parts = torch.arange(sum(state_dict["num_rows"])).split(state_dict["num_rows"])
        for number, (plain, part) in enumerate(zip(state_dict["episodes"], parts, strict=True)):
            episode = RecordedEpisode(**plain)
            self.stored[episode] = state_dict["owners"][number] if same else number % num_ranks()
            if rows is not None and self.stored[episode] == rank():
                self._rows[episode] = rows.rows(part)

    def _checked(self, method: str) -> AbstractContextManager[None]:
        return answering(self._error, f"a replay that answers `{method}`")

    def _error(self, expected: str) -> ConfigError:
        remedy = "Correct the replay, or leave data.replay out; the run goes on with --ckpt_path auto."
        return ConfigError("data.replay", type(self.replay).__name__, expected, remedy)


def _places(chosen: Sequence[Sequence[ReplayedEpisode]], first: int) -> dict[tuple[int, str], int]:
    """(update, name of a stored pack) -> its g there, from `first` on."""
    named = dict.fromkeys((u, one.episode.pack_id) for u, of_update in enumerate(chosen) for one in of_update)
    return {place: first + number for number, place in enumerate(named)}
