"""Random credit tables and the definitions written as loops, for comparison."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cod_lightning.credit.credited import Credit, Credited
from cod_lightning.credit.table import EpisodeTable, PerEpisode, episode_table, facts_of, kind_id
from cod_lightning.lifecycles import ConnectTheDots, Program, outline
from cod_lightning.objective.batch import Batch
from cod_lightning.training.packs import PackChoice, PackOutcomes


@dataclass(frozen=True, kw_only=True)
class AttemptTable:
    """Attempts as the tests' definitions read them: (g, k, e) of the solve episode beside each of X."""

    of: Any
    same_context: Any
    rewards: Any
    valid: Any
    action_counts: Any


@dataclass(frozen=True, kw_only=True)
class CreditTable:
    """A rollout whose packs are all alike, [G K E], as the tests' definitions read it."""

    rewards: Any
    valid: Any
    kinds: Any
    action_counts: Any
    weights: Any = field(default_factory=dict)
    """e -> what programs say of the returns of such episodes: f -> weight of its reward."""
    attempts: AttemptTable = AttemptTable(
        of=torch.zeros(0, 3).long(),
        same_context=torch.zeros(0).bool(),
        rewards=torch.zeros(0),
        valid=torch.zeros(0).bool(),
        action_counts=torch.zeros(0).long(),
    )

    @property
    def known_rewards(self):
        return torch.where(self.valid, self.rewards, 0.0)

    def flat(self) -> EpisodeTable:
        """The same as one entry an episode."""
        groups, siblings, episodes = self.valid.shape
        where = torch.cartesian_prod(*map(torch.arange, (groups, siblings, episodes))).view(-1, 3)
        of, num = self.attempts.of, len(where)
        parent = (of[:, 0] * siblings + of[:, 1]) * episodes + of[:, 2]
        same_kind = self.kinds[:, None] == self.kinds
        positions = torch.tril(same_kind).sum(dim=1) - 1
        begun = torch.cat([where, of])
        place = torch.cat([where, of + torch.tensor([0, 0, episodes]) * torch.arange(1, len(of) + 1)[:, None]])
        return EpisodeTable(
            num_packs=groups,
            place=place,
            parent=torch.cat([torch.full((num,), -1), parent]),
            kinds=self.kinds[begun[:, 2]],
            positions=positions[begun[:, 2]],
            rewards=torch.cat([self.rewards.flatten(), self.attempts.rewards]),
            valid=torch.cat([self.valid.flatten(), self.attempts.valid]),
            trained=torch.cat([torch.ones(num).bool(), self.attempts.same_context]),
            action_counts=torch.cat([self.action_counts.flatten(), self.attempts.action_counts]),
            compared_with=torch.cat([where[:, 0] * episodes + where[:, 2], torch.full((len(of),), -1)]),
            weights={
                f: tuple(self.weights[e].items()) for f, (*_, e) in enumerate(where.tolist()) if e in self.weights
            },
        )


@dataclass(frozen=True, kw_only=True)
class CubeCredit:
    """What a flat table's credit is, as [G K E] and [X]."""

    whole: Credited
    values: Any
    valid: Any
    attempts: Any
    attempts_valid: Any
    tilted: Any
    temperature: float


def credited_entries(table: EpisodeTable, *rules, **more) -> Credited:
    """Credit of a rollout."""
    return Credit(*rules, **more)(table)


def credited(table: CreditTable, *rules, **more) -> CubeCredit:
    """Credit of a rollout whose packs are all alike."""
    found = credited_entries(table.flat(), *rules, **more)
    shape, num = table.valid.shape, table.valid.numel()
    return CubeCredit(
        whole=found,
        values=found.values[:num].view(shape),
        valid=found.valid[:num].view(shape),
        attempts=found.values[num:],
        attempts_valid=found.valid[num:],
        tilted=found.tilted,
        temperature=found.temperature,
    )


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


def with_attempts(seed: int, missing=0.2, per_place=3, fraction=0.5) -> CreditTable:
    """A random table with attempts, of both kinds, beside about that share of its solve episodes."""
    table = random_table(seed, missing=missing)
    rng = torch.Generator().manual_seed(seed + 1000)
    places = [
        (g, k, e)
        for g, k, e in cells(table)
        if e % 2 == 0 and e and torch.rand(1, generator=rng) < fraction
        for _ in range(per_place)
    ]
    num = len(places)
    valid = torch.rand(num, generator=rng) >= missing
    attempts = AttemptTable(
        of=torch.tensor(places),
        same_context=torch.rand(num, generator=rng) < 0.6,
        rewards=torch.rand(num, generator=rng) * valid,
        valid=valid,
        action_counts=torch.randint(1, 30, (num,), generator=rng),
    )
    return replace(table, attempts=attempts)


def rewards_to_go(table: CreditTable, g: int, k: int, e: int) -> list[float] | None:
    """The list of the paper for one episode: its own reward, then those of later solve episodes; None for a missing one.

    Where a program says whose rewards count, it is these.
    """
    later = [f for f in range(e + 1, table.valid.shape[-1]) if table.kinds[f] == 0]
    entries = table.weights.get(e, [e, *later])
    return [table.rewards[g, k, f].item() if table.valid[g, k, f] else None for f in entries]


def plain_credit(
    values, valid=None, *, attempts=(), of=(), attempts_valid=None, table=None, filtered=False
) -> Credited:
    """These advantages, [G K E], and [X] of attempts beside the episodes `of`, without a reweighting."""
    values, extra = torch.as_tensor(values), torch.tensor(attempts, dtype=torch.float32)
    valid = values.isfinite() if valid is None else torch.as_tensor(valid)
    known = extra.isfinite() if attempts_valid is None else torch.tensor(attempts_valid)
    if table is None:
        table = CreditTable(
            rewards=values,
            valid=valid,
            action_counts=torch.ones_like(valid).long(),
            kinds=torch.arange(values.shape[2]) % 2,
            attempts=AttemptTable(
                of=torch.tensor(of, dtype=torch.long).view(-1, 3),
                same_context=torch.ones(len(extra)).bool(),
                rewards=extra,
                valid=extra.isfinite(),
                action_counts=torch.ones(len(extra)).long(),
            ),
        ).flat()
    flat = torch.cat([values.flatten(), extra])
    return Credited(
        table=table,
        returns=PerEpisode(flat, torch.cat([valid.flatten(), torch.zeros_like(known)])),
        values=flat,
        valid=torch.cat([valid.flatten(), known]),
        tilted=flat,
        filtered=filtered,
    )


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


def cube_table(groups) -> CreditTable:
    """The same, as [G K E] and [X]; all packs are alike."""
    table, num = credit_table(groups), sum(len(life.own) for group in groups for life in group.lifecycles)
    rewards, valid, counts = (cube(of, table) for of in (table.rewards, table.valid, table.action_counts))
    extra = AttemptTable(
        of=table.place[table.parent[num:]],
        same_context=table.trained[num:],
        rewards=table.rewards[num:],
        valid=table.valid[num:],
        action_counts=table.action_counts[num:],
    )
    kinds = table.kinds[: rewards.shape[2]]
    return CreditTable(rewards=rewards, valid=valid, action_counts=counts, kinds=kinds, attempts=extra)


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
