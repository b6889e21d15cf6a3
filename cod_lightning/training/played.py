"""Training rollouts that were played: what a checkpoint keeps of those that are not trained on yet, and which of them comes next.

A checkpoint keeps records of their lifecycles. A priority buffer trains on those of newer weights first, as CoD was trained.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msgspec import structs

from cod_lightning.credit.table import EpisodeTable, episode_table, facts_of
from cod_lightning.errors import TooManyFailures
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.ranks import gathered, num_ranks, owners, rank
from cod_lightning.rollout import transcript
from cod_lightning.rollout.runner import RolloutPart
from cod_lightning.rollout.stats import stop_if_too_many
from cod_lightning.seeds import derive_seed
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
    own = [[line for group in part.groups for line in transcript.dump(group)] for part in played.parts]
    of_ranks = gathered([(lines, part.seconds) for lines, part in zip(own, played.parts, strict=True)])
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
    loaded = [transcript.load(part["lines"]) for part in state["parts"]]
    choices = {one["id"]: PackChoice(**one["choice"]) for one in (*state["packs"], *state["replaced"])}
    loaded = [[structs.replace(group, pack=drawn(choices[group.pack.id])) for group in of_part] for of_part in loaded]
    groups = {group.pack.id: group for part in loaded for group in part}

    def packs(entries: Sequence[dict[str, Any]]) -> list[PlayedPack]:
        return [
            PlayedPack(
                choice=choices[one["id"]],
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


@dataclass(frozen=True, slots=True)
class WaitingRollout:
    """A rollout that is begun and not trained on."""

    weights: int
    """Rollouts that its weights had been trained on."""
    priority: float


class PriorityBuffer:
    """The rollouts ahead, by priority; each is trained on once, or never.

    Weights are synced once every `rollouts_per_sync` rollouts, and only then are rollouts begun. They can be chosen from the next
    sync on. Of those that can be, training takes the one of the largest priority,

        priority = w + sigma * z,    z ~ N(0, 1), drawn once,

    where w is how many rollouts its weights had been trained on; of equal ones the oldest. With t rollouts trained, those with
    t - w > max_age are dropped.

    Source: the training configs of CoD's release (arXiv 2606.20002, agentscope-ai/Trinity-RFT): `sync_interval: 4`,
    `max_staleness: 20` and the priority function `decay_limit_randomization` with `sigma: 2.0`, where a version counts updates
    of 1,440 rows, about one rollout. Its further term, a decay by uses, is 0: `reuse_cooldown_time` is not set there, so that
    nothing is used twice. What differs: a sync comes there after 4 rollouts are sampled, however many were trained on meanwhile,
    here `rollouts_per_sync` says how many, so that one seed gives one result.

    Args:
        sigma: Standard deviation of the noise, in rollouts; 0 takes the newest first.
        rollouts_per_sync: Rollouts that are trained on between two weight syncs: 4 where sampling and training take alike, 2 where
            sampling is twice as fast.
        rollouts_begun: Rollouts that are begun at every sync, `rollouts_per_sync` at least; those beyond are dropped in time.
    """

    def __init__(self, sigma: NonNegative = 2.0, rollouts_per_sync: Count = 4, rollouts_begun: Count = 4) -> None:
        self.sigma, self.rollouts_per_sync = sigma, rollouts_per_sync
        self.rollouts_begun = max(rollouts_begun, rollouts_per_sync)
        self.waiting: list[WaitingRollout] = []
        """In the order in which they were begun."""

    def num_to_begin(self, trained: int, needed: float, max_age: int) -> int:
        """How many rollouts begin now, before the next of `needed` ones; none between two syncs."""
        if trained % self.rollouts_per_sync:
            return 0
        first = 0 if trained else self.rollouts_per_sync - 1  # the others of those before the first sync
        lasting = sum(trained + needed - one.weights <= max_age for one in self.waiting)
        return int(min(first + self.rollouts_begun, max(0, needed - lasting)))

    def begin(self, trained: int, *identity: int) -> None:
        """A rollout is begun by the weights of the last sync; `identity` is its own, for the noise."""
        weights = self._last_sync(trained)
        noise = random.Random(derive_seed("priority", *identity)).gauss(0.0, 1.0)
        self.waiting.append(WaitingRollout(weights, weights + self.sigma * noise))

    def num_eligible(self, trained: int) -> int:
        """How many of the oldest can be chosen: those begun before the last sync, else as many as come between two syncs."""
        there = sum(one.weights < self._last_sync(trained) for one in self.waiting)
        return there or min(len(self.waiting), self.rollouts_per_sync)

    def choose(self, trained: int, max_age: int) -> tuple[int, int | None]:
        """How many of the oldest are dropped, and the place of the one to train on without them; None where nothing is left."""
        num_dropped = sum(trained - one.weights > max_age for one in self.waiting)
        del self.waiting[:num_dropped]
        eligible = range(self.num_eligible(trained))
        place = max(eligible, key=lambda i: (self.waiting[i].priority, -i), default=None)
        if place is not None:
            del self.waiting[place]
        return num_dropped, place

    def _last_sync(self, trained: int) -> int:
        """Rollouts trained on before it."""
        return trained - trained % self.rollouts_per_sync

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": [[one.weights, one.priority] for one in self.waiting]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.waiting = [WaitingRollout(weights, priority) for weights, priority in state_dict["waiting"]]
