"""A training rollout that was played and is not trained on yet, and how a checkpoint keeps it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cod_lightning.ranks import gathered, num_ranks, rank
from cod_lightning.rollout import transcript
from cod_lightning.rollout.faults import count_faults
from cod_lightning.rollout.runner import RolloutPart
from cod_lightning.training.packs import PackChoice
from cod_lightning.training.shares import owners
from cod_lightning.types import Group, Pack


@dataclass(frozen=True)
class PlayedPack:
    """A pack of a rollout, the rank that played it, and what it played."""

    choice: PackChoice
    pack: Pack
    rank: int
    group: Group | None
    """None on the other ranks."""


@dataclass(frozen=True, kw_only=True)
class PlayedRollout:
    """The packs of a rollout."""

    packs: Sequence[PlayedPack]
    """Those that are trained on."""
    replaced: Sequence[PlayedPack] = ()
    """Those that others were played in place of."""
    parts: Sequence[RolloutPart] = ()
    """What of it observers have not seen yet."""

    @property
    def num_packs(self) -> int:
        return len(self.packs) + len(self.replaced)


def saved(played: PlayedRollout | None, max_failed_fraction: float) -> dict[str, Any] | None:
    """The rollout of all ranks, as its lifecycles' transcript in plain containers; every rank has to call it.

    The weights that sampled it are gone by the time a run is resumed. One that failed on some rank (None there), or that lost
    more lifecycles than may fail, is about to end the run and is not kept: the resumed run plays it again.
    """
    parts = gathered(None if played is None else _plain(played))
    kept = [part for part in parts if part is not None]
    if len(kept) < len(parts):
        return None
    rounds = [_joined(of_ranks) for of_ranks in zip(*(part["parts"] for part in kept), strict=True)]
    if any(one["num_failed"] > max_failed_fraction * one["num_lifecycles"] for one in rounds):
        return None
    return {**kept[0], "parts": rounds}


def restored(state: dict[str, Any] | None) -> PlayedRollout | None:
    """The rollout; another number of ranks shares its groups out anew."""
    if state is None:
        return None
    ranks = [one["rank"] for one in state["packs"]]
    if max(ranks) + 1 != num_ranks():
        ranks = owners(len(ranks), 1)
    owner = {one["id"]: 0 for one in state["replaced"]}
    owner |= {one["id"]: r for one, r in zip(state["packs"], ranks, strict=True)}
    loaded = [transcript.load(part["lines"]) for part in state["parts"]]
    groups = {group.pack.id: group for part in loaded for group in part}

    def packs(entries: Sequence[dict[str, Any]]) -> list[PlayedPack]:
        return [
            PlayedPack(
                choice=PackChoice(**one["choice"]),
                pack=groups[one["id"]].pack,
                rank=owner[one["id"]],
                group=groups[one["id"]] if owner[one["id"]] == rank() else None,
            )
            for one in entries
        ]

    parts = [
        RolloutPart(
            groups=[group for group in of_part if owner[group.pack.id] == rank()],
            seconds=part["seconds"],
            replacing=part["replacing"],
        )
        for part, of_part in zip(state["parts"], loaded, strict=True)
    ]
    return PlayedRollout(packs=packs(state["packs"]), replaced=packs(state["replaced"]), parts=parts)


def _plain(played: PlayedRollout) -> dict[str, Any]:
    """Of groups, those of this rank."""
    return {
        **{
            name: [{"id": one.pack.id, "rank": one.rank, "choice": asdict(one.choice)} for one in packs]
            for name, packs in (("packs", played.packs), ("replaced", played.replaced))
        },
        "parts": [
            {
                "lines": [line for group in part.groups for line in transcript.dump(group)],
                "seconds": part.seconds,
                "replacing": part.replacing,
                "num_lifecycles": sum(len(group.lifecycles) for group in part.groups),
                "num_failed": sum(count_faults(part.groups).values()),
            }
            for part in played.parts
        ],
    }


def _joined(of_ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A part of all ranks."""
    sums = {key: sum(part[key] for part in of_ranks) for key in ("num_lifecycles", "num_failed")}
    lines = [line for part in of_ranks for line in part["lines"]]
    return {**of_ranks[0], **sums, "lines": lines, "seconds": max(part["seconds"] for part in of_ranks)}
