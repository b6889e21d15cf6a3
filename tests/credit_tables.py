"""Random credit tables and the definitions written as loops, for comparison."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cod_lightning.credit.credited import Credit, Credited
from cod_lightning.credit.table import EpisodeFacts, EpisodeTable, PerEpisode, episode_table, facts_of, kind_id
from cod_lightning.lifecycles import ConnectTheDots, Program, outline
from cod_lightning.objective.batch import Batch
from cod_lightning.training.packs import PackChoice, PackOutcomes


@dataclass(frozen=True, kw_only=True)
class CreditTable:
    """A rollout whose packs are all alike, [G K E], as the tests' definitions read it."""

    rewards: Any
    valid: Any
    kinds: Any
    action_counts: Any
    weights: Any = field(default_factory=dict)
    """e -> what programs say of the returns of such episodes: f -> weight of its reward."""

    def flat(self) -> EpisodeTable:
        """The same as one entry an episode."""
        groups, siblings, episodes = self.valid.shape
        place = torch.cartesian_prod(*map(torch.arange, (groups, siblings, episodes))).view(-1, 3)
        positions = torch.tril(self.kinds[:, None] == self.kinds).sum(dim=1) - 1
        return EpisodeTable(
            num_packs=groups,
            place=place,
            parent=torch.full((len(place),), -1),
            kinds=self.kinds.repeat(groups * siblings),
            positions=positions.repeat(groups * siblings),
            rewards=self.rewards.flatten(),
            valid=self.valid.flatten(),
            trained=torch.ones(len(place)).bool(),
            action_counts=self.action_counts.flatten(),
            compared_with=place[:, 0] * episodes + place[:, 2],
            weights={
                f: tuple(self.weights[e].items()) for f, (*_, e) in enumerate(place.tolist()) if e in self.weights
            },
        )


def credited_entries(table: EpisodeTable, *rules, **more) -> Credited:
    """Credit of a rollout."""
    return Credit(*rules, **more)(table)


def returns_of(rule, table: CreditTable) -> PerEpisode:
    """[G K E] returns of a rollout whose packs are all alike."""
    flat = table.flat()
    found = rule(flat)
    return PerEpisode(cube(found.values, flat), cube(found.valid, flat))


def random_table(seed: int, groups=3, siblings=5, tasks=4, missing=0.2, program: Program | None = None) -> CreditTable:
    rng = torch.Generator().manual_seed(seed)
    order = outline(program or ConnectTheDots(), tasks)
    kinds = torch.tensor([kind_id(step.kind) for step in order])
    valid = torch.rand(groups, siblings, len(order), generator=rng) >= missing
    solve = torch.rand(groups, siblings, len(order), generator=rng)
    update = -0.1 * (torch.rand(groups, siblings, len(order), generator=rng) < 0.3)
    counts = torch.randint(1, 30, valid.shape, generator=rng)
    return CreditTable(
        rewards=torch.where(kinds == 0, solve, update) * valid, valid=valid, action_counts=counts, kinds=kinds
    )


def with_attempts(seed: int, missing=0.2) -> EpisodeTable:
    """A random table with three attempts, of both kinds, beside about half of its later solve episodes."""
    table, rng = random_table(seed, missing=missing), random.Random(seed)
    groups, siblings, episodes = table.valid.shape

    def facts(g, k):
        for e in range(episodes):
            reward = float(table.rewards[g, k, e]) if table.valid[g, k, e] else None
            yield EpisodeFacts(k, e, None, True, e % 2, e // 2, reward, int(table.action_counts[g, k, e]))
        beside = [e for e in range(2, episodes, 2) if rng.random() < 0.5 for _ in range(3)]
        for x, e in enumerate(beside, start=episodes):
            reward = None if rng.random() < missing else rng.random()
            yield EpisodeFacts(k, x, e, rng.random() < 0.6, 0, e // 2, reward, rng.randint(1, 29))

    return episode_table([[one for k in range(siblings) for one in facts(g, k)] for g in range(groups)])


def rewards_to_go(table: CreditTable, g: int, k: int, e: int) -> list[float] | None:
    """The list of the paper for one episode: its own reward, then those of later solve episodes; None for a missing one.

    Where a program says whose rewards count, it is these.
    """
    later = [f for f in range(e + 1, table.valid.shape[-1]) if table.kinds[f] == 0]
    entries = table.weights.get(e, [e, *later])
    return [table.rewards[g, k, f].item() if table.valid[g, k, f] else None for f in entries]


def plain_credit(values, valid=None, *, table=None, filtered=False) -> Credited:
    """These advantages, [G K E] or of the entries of the table, without a reweighting."""
    values = torch.as_tensor(values)
    valid = values.isfinite() if valid is None else torch.as_tensor(valid)
    if table is None:
        counts, kinds = torch.ones_like(valid).long(), torch.arange(values.shape[2]) % 2
        table = CreditTable(rewards=values, valid=valid, action_counts=counts, kinds=kinds).flat()
    flat, known = values.flatten(), valid.flatten()
    returns = PerEpisode(flat, known & table.own)
    return Credited(table=table, returns=returns, values=flat, valid=known, tilted=flat, filtered=filtered)


def outcomes(categories, values, valid=None):
    """Of packs of these categories, with these advantages."""
    choices = [PackChoice(index, category) for index, category in enumerate(categories)]
    return PackOutcomes(choices=choices, credit=plain_credit(torch.tensor(values), valid))


def cube(values: torch.Tensor, table: EpisodeTable) -> torch.Tensor:
    """[G K E] of the own episodes of a table in which all packs are alike."""
    return values[table.own].view(*(int(n) + 1 for n in table.place[table.own].amax(dim=0)))


def stamped(credit: Credited, batch: Batch) -> Batch:
    """The rows with their advantages."""
    return replace(batch, advantages=credit.advantages[batch.episode])


def credit_table(groups) -> EpisodeTable:
    """The table of a rollout of these groups."""
    return episode_table(list(map(facts_of, groups)))


def advantage(credit: Credited, batch: Batch, row: int) -> float:
    """What this row of the rollout is to have, after the reweighting."""
    return float(credit.tilted[batch.episode[row]])


def kept_credit(module) -> list[Credited]:
    """What is credited by the module's options from now on, one for each rollout."""
    seen = []

    class Kept(Credit):
        def __call__(self, table):
            seen.append(super().__call__(table))
            return seen[-1]

    module.credited = Kept(**vars(module.credited))
    return seen


def cells(table: CreditTable):
    groups, siblings, episodes = table.valid.shape
    return [(g, k, e) for g in range(groups) for k in range(siblings) for e in range(episodes)]


def made_batch(place, mask, **fields):
    """Rows of these places [B 3] (pack, sibling, episode) and action masks [B T], every row an episode; `fields` say otherwise."""
    num, width = mask.shape
    zeros = torch.zeros(num, dtype=torch.long)
    rows = {"token_ids": torch.zeros(num, width, dtype=torch.long), "behaviour_logprobs": torch.zeros(num, width)}
    own = {"lengths": zeros + width, "policy_version": zeros, "kinds": zeros, "advantages": torch.zeros(num)}
    own |= {"is_attempt": zeros.bool(), "is_replayed": zeros.bool()}
    own |= {"episode": torch.arange(num), "siblings": torch.arange(num)}
    return Batch(place=place, action_mask=mask, **rows | own | fields)
