"""Training rollouts that were played; a checkpoint keeps those that are not trained on yet as records of their lifecycles."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msgspec import structs

from cod_lightning.credit.table import EpisodeTable, episode_table, facts_of
from cod_lightning.errors import TooManyFailures
from cod_lightning.ranks import gathered, num_ranks, owners, rank
from cod_lightning.rollout import transcript
from cod_lightning.rollout.runner import RolloutPart
from cod_lightning.rollout.stats import stop_if_too_many
from cod_lightning.training.packs import PackChoice
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
    """What was played at a time: the rollout, then replacements."""
    contexts: Sequence[Sequence[Sequence[str | None]]] | None = None
    """`PackOutcomes.contexts` of a rollout that a checkpoint kept: a transcript does not keep states of contexts as they were."""

    @property
    def num_packs(self) -> int:
        return len(self.packs) + len(self.replaced)


def saved(played: PlayedRollout, max_failed_fraction: float) -> dict[str, Any] | None:
    """The rollout of all ranks, as its lifecycles' transcript in plain containers; every rank has to call it.

    The weights that sampled it are gone by the time a run is resumed. One that lost more lifecycles than may fail is about to end
    the run and is not kept: the resumed run plays it again.
    """
    try:
        for part in played.parts:
            stop_if_too_many("train", part.groups, max_failed_fraction)
    except TooManyFailures:
        return None
    own = [([line for group in part.groups for line in transcript.dump(group)], part.seconds) for part in played.parts]
    of_ranks = gathered(own)
    return {
        **{
            name: [{"id": one.pack.id, "rank": one.rank, "choice": asdict(one.choice)} for one in packs]
            for name, packs in (("packs", played.packs), ("replaced", played.replaced))
        },
        "parts": [
            {
                "lines": [line for lines, _ in found for line in lines],
                "seconds": max(seconds for _, seconds in found),
                "replacing": part.replacing,
            }
            for part, *found in zip(played.parts, *of_ranks, strict=True)
        ],
    }


def restored(state: dict[str, Any], drawn: Callable[[PackChoice], Pack]) -> PlayedRollout:
    """The rollout; another number of ranks shares its groups out anew.

    Packs are drawn again by their choices, since a transcript keeps the specs of tasks as plain values.
    """
    ranks = [one["rank"] for one in state["packs"]]
    if max(ranks) + 1 != num_ranks():
        ranks = owners(len(ranks), 1)
    owner = {one["id"]: 0 for one in state["replaced"]}
    owner |= {one["id"]: r for one, r in zip(state["packs"], ranks, strict=True)}
    choices = {one["id"]: PackChoice(**one["choice"]) for one in (*state["packs"], *state["replaced"])}
    loaded = [
        [structs.replace(group, pack=drawn(choices[group.pack.id])) for group in transcript.load(part["lines"])]
        for part in state["parts"]
    ]
    groups = {group.pack.id: group for part in loaded for group in part}

    def packs(entries: Sequence[dict[str, Any]]) -> list[PlayedPack]:
        found = [(choices[one["id"]], groups[one["id"]], owner[one["id"]]) for one in entries]
        return [PlayedPack(choice, group.pack, r, group if r == rank() else None) for choice, group, r in found]

    parts = [
        RolloutPart(
            groups=[group for group in of_part if owner[group.pack.id] == rank()],
            seconds=part["seconds"],
            replacing=part["replacing"],
        )
        for part, of_part in zip(state["parts"], loaded, strict=True)
    ]
    return PlayedRollout(
        packs=packs(state["packs"]), replaced=packs(state["replaced"]), parts=parts, contexts=state.get("contexts")
    )


def own_groups(packs: Sequence[PlayedPack]) -> list[Group]:
    """This rank's."""
    return [one.group for one in packs if one.group is not None]


def table_of(packs: Sequence[PlayedPack]) -> EpisodeTable:
    """The episodes of all ranks; every rank has to call it."""
    facts = [iter(of_rank) for of_rank in gathered(list(map(facts_of, own_groups(packs))))]
    return episode_table([next(facts[one.rank]) for one in packs])
