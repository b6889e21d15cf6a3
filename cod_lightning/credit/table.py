"""The episodes of a rollout as one flat table, in which numbers of siblings, tasks and episodes may differ.

Letters: F entries; G packs, K siblings, E episodes in the order of their lifecycle.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.types import EpisodeKind, Group


def kind_id(kind: EpisodeKind) -> int:
    """The kind as a number in tensors.

    >>> kind_id(EpisodeKind.SOLVE), kind_id(EpisodeKind.UPDATE)
    (0, 1)
    """
    return list(EpisodeKind).index(kind)


@dataclass(frozen=True)
class PerEpisode:
    """A number for each episode, such as its reward, return or advantage, and which numbers are known."""

    values: Float[Tensor, "..."]
    """Without meaning where not valid."""
    valid: Bool[Tensor, "..."]


class EpisodeFacts(NamedTuple):
    """What credit needs to know of an episode, in plain values, as ranks exchange it.

    `episode` is its index in `Lifecycle.episodes`; `kind` a `kind_id`; the others are as in `Episode`.
    """

    sibling: int
    episode: int
    parent: int | None
    trained: bool
    kind: int
    position: int
    reward: float | None
    num_action_tokens: int
    compared_with: str = ""
    weights: tuple[tuple[int, float], ...] | None = None


def facts_of(group: Group) -> list[EpisodeFacts]:
    """Of all episodes of a group."""
    return [
        EpisodeFacts(
            sibling=k,
            episode=e,
            parent=one.parent,
            trained=one.trained,
            kind=kind_id(one.kind),
            position=one.position,
            reward=one.reward,
            num_action_tokens=one.num_action_tokens,
            compared_with=one.compared_with,
            weights=one.weights,
        )
        for k, life in enumerate(group.lifecycles)
        for e, one in enumerate(life.episodes)
    ]


@dataclass(frozen=True, kw_only=True)
class EpisodeTable:
    """An entry for each episode of a rollout, of all ranks: those of lifecycles, one lifecycle after another, then attempts."""

    num_packs: int
    place: Int[Tensor, "F 3"]
    """(g, k, e) of pack, sibling and episode, in which a lifecycle's attempts come after its own."""
    parent: Int[Tensor, " F"]
    """Entry of the episode from whose beginning an attempt went on; -1 for a lifecycle's own."""
    kinds: Int[Tensor, " F"]
    positions: Int[Tensor, " F"]
    rewards: Float[Tensor, " F"]
    """A missing one is stored as 0 and must not be used."""
    valid: Bool[Tensor, " F"]
    """True where there is a reward."""
    trained: Bool[Tensor, " F"]
    """False for attempts that only measure."""
    action_counts: Int[Tensor, " F"]
    """Tokens that the policy sampled."""
    compared_with: Int[Tensor, " F"]
    """One number for what is compared with each other: episodes of one pack and kind, at one position or of one name; -1 for an
    attempt without a name, which is compared with what began at the same moment."""
    weights: Mapping[int, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """Entry of an own episode -> what its program says of its return: episode e of the lifecycle, weight of its reward. Returns of
    entries that are not in it are as the credit rule says."""

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def own(self) -> Bool[Tensor, " F"]:
        """Which entries are lifecycles' own, not attempts: the first ones."""
        return self.parent < 0

    @cached_property
    def numbers(self) -> Mapping[tuple[int, int, int], int]:
        """(g, k, e) -> entry."""
        return {(g, k, e): f for f, (g, k, e) in enumerate(self.place.tolist())}

    @cached_property
    def known_rewards(self) -> Float[Tensor, " F"]:
        """Rewards, 0 where missing, whatever is stored there."""
        return torch.where(self.valid, self.rewards, 0.0)

    @cached_property
    def siblings(self) -> Int[Tensor, " F"]:
        """One number for the entries that a loss which compares siblings compares with each other.

        Where a solve episode has attempts that count, it and they are compared with each other: its siblings began with other
        contexts.
        """
        anchored = torch.isin(self.beside, self.beside[self.trained & self.valid & ~self.own])
        return torch.where(anchored, len(self) + self.beside, self.compared_with[self.begun])

    @cached_property
    def begun(self) -> Int[Tensor, " F"]:
        """The own entry from whose beginning each went on: its own, or its parent's."""
        return torch.where(self.own, torch.arange(len(self)), self.parent)

    @cached_property
    def beside(self) -> Int[Tensor, " F"]:
        """One number for each own entry and the attempts that are compared with it: those that began with it, and, where an attempt
        has its name, all of that name."""
        each, names = torch.arange(len(self)), self.compared_with[~self.own]
        found = torch.where(torch.isin(self.compared_with, names), len(self) + self.compared_with, each)
        return found[torch.where(self.compared_with < 0, self.begun, each)]

    @cached_property
    def lifecycles(self) -> list[Int[Tensor, "L E"]]:
        """Own entries by lifecycle; one tensor for each order of kinds, with what programs say of returns, that lifecycles have."""
        lives: dict[tuple[int, int], list[int]] = {}
        for f, (g, k, _) in enumerate(self.place[self.own].tolist()):
            lives.setdefault((g, k), []).append(f)
        of = [(kind, self.weights.get(f)) for f, kind in enumerate(self.kinds.tolist())]
        orders: dict[tuple[object, ...], list[list[int]]] = {}
        for life in lives.values():
            orders.setdefault(tuple(of[f] for f in life), []).append(life)
        return [torch.tensor(found) for found in orders.values()]

    @cached_property
    def layouts(self) -> list[Int[Tensor, "G K C"]]:
        """Own entries by pack, by lifecycle, and by what they are compared with; -1 where a lifecycle has none.

        One for each shape that packs have: where siblings, tasks and episodes are equally many everywhere, a single one of all.
        A column has one kind. A lifecycle with several entries that are compared with each other has a row for each.
        """
        packs: dict[int, tuple[dict[int, int], dict[tuple[int, int], dict[int, int]]]] = {}
        compared = self.compared_with.tolist()
        for f, (g, k, _) in enumerate(self.place[self.own].tolist()):
            columns, rows = packs.setdefault(g, ({}, {}))
            column, more = columns.setdefault(compared[f], len(columns)), 0
            while column in rows.setdefault((k, more), {}):
                more += 1
            rows[k, more][column] = f
        kinds, shapes = self.kinds.tolist(), dict[tuple[object, ...], list[list[list[int]]]]()
        for columns, rows in packs.values():
            cells = [[row.get(c, -1) for c in range(len(columns))] for _, row in sorted(rows.items())]
            of = tuple(kinds[max(column)] for column in zip(*cells, strict=True))
            shapes.setdefault((len(cells), of), []).append(cells)
        return [torch.tensor(found) for found in shapes.values()]

    def solved(self) -> tuple[Float[Tensor, "G K P"], Bool[Tensor, "G K P"]]:
        """Rewards of solve episodes by pack, sibling and position, and which are known; places that a pack lacks are not."""
        chosen = (self.own & (self.kinds == kind_id(EpisodeKind.SOLVE))).nonzero().squeeze(1)
        g, k, _ = self.place[chosen].unbind(dim=1)
        where = (g, k, self.positions[chosen])
        shape = (self.num_packs, *(max(of.tolist(), default=0) + 1 for of in where[1:]))
        rewards = torch.zeros(shape).index_put(where, self.known_rewards[chosen])
        return rewards, torch.zeros(shape, dtype=torch.bool).index_put(where, self.valid[chosen])


def episode_table(packs: Sequence[Sequence[EpisodeFacts]]) -> EpisodeTable:
    """The table of these packs, each with all its episodes."""
    every = sorted(
        ((g, one) for g, facts in enumerate(packs) for one in facts), key=lambda entry: entry[1].parent is not None
    )
    numbers = {(g, one.sibling, one.episode): f for f, (g, one) in enumerate(every)}
    alike: dict[tuple[int, int, int | str], int] = {}
    compared = [
        -1
        if one.parent is not None and not (one.trained and one.compared_with)
        else alike.setdefault((g, one.kind, one.compared_with or one.position), len(alike))
        for g, one in every
    ]

    def column(values: Iterable[Any], dtype: torch.dtype = torch.long) -> Tensor:
        return torch.tensor(list(values), dtype=dtype)

    return EpisodeTable(
        num_packs=len(packs),
        place=column((g, one.sibling, one.episode) for g, one in every).view(-1, 3),
        parent=column(-1 if one.parent is None else numbers[g, one.sibling, one.parent] for g, one in every),
        kinds=column(one.kind for _, one in every),
        positions=column(one.position for _, one in every),
        rewards=column((one.reward or 0.0 for _, one in every), torch.float32),
        valid=column((one.reward is not None for _, one in every), torch.bool),
        trained=column((one.trained for _, one in every), torch.bool),
        action_counts=column(one.num_action_tokens for _, one in every),
        compared_with=column(compared),
        weights={f: one.weights for f, (_, one) in enumerate(every) if one.weights is not None},
    )
