"""Random inputs of a policy loss, and every loss written from its definition as a loop over episodes, turns and tokens."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cod_lightning.methods.nft import NFT
from cod_lightning.methods.sdpo import SDPO
from cod_lightning.objective.losses import (
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    LOOP,
    REC,
    RLOO,
    DrGRPO,
    LossInputs,
    PolicyLoss,
)

EPISODES = [7, 7, 2, 4, 4, 4, 9]
"""Of rows: two episodes have several."""
SIBLINGS = {7: 0, 9: 0, 2: 1, 4: 1}
"""Which episodes are compared."""


def inputs(seed: int, width=9, dtype=torch.float64, spread=0.5, episodes=tuple(EPISODES)) -> LossInputs:
    rng = torch.Generator().manual_seed(seed)
    shape = (len(episodes), width)
    behaviour = -torch.rand(shape, generator=rng, dtype=dtype) * 3
    policy = behaviour + spread * torch.randn(shape, generator=rng, dtype=dtype)
    mask = torch.rand(shape, generator=rng) < 0.6
    mask[:, 1] = True
    of_episode = torch.randn(10, generator=rng, dtype=dtype)
    of_episode[9] = 0.0
    episode = torch.tensor(episodes)
    return LossInputs(
        policy_logprobs=policy.requires_grad_(),
        behaviour_logprobs=torch.where(mask, behaviour, 0.0),
        advantages=of_episode[episode][:, None] * mask,
        action_mask=mask,
        episode=episode,
        num_action_tokens=int(mask.sum()) + 20,
        num_episodes=6,
        siblings=torch.tensor([SIBLINGS.get(one, one) for one in episodes]),
    )


def rows_of(x: LossInputs, rows: Tensor) -> LossInputs:
    """The same numbers for some rows."""
    return replace(x, **{k: v[rows] for k, v in vars(x).items() if isinstance(v, Tensor)})


def gradient(loss: PolicyLoss, x: LossInputs) -> tuple[Tensor, Tensor]:
    value = loss(x).loss
    return value, torch.autograd.grad(value, x.policy_logprobs)[0]


# ------------------------------------------------------------------ definitions

Token = tuple[int, int]


def episodes_of(x: LossInputs) -> Iterator[list[Token]]:
    """Action tokens of each episode."""
    for key in sorted(set(x.episode.tolist())):
        yield [(b, t) for b, t in x.action_mask.nonzero().tolist() if x.episode[b] == key]


def turns_of(tokens: list[Token]) -> list[list[Token]]:
    turns: list[list[Token]] = []
    for b, t in tokens:
        if turns and turns[-1][-1] == (b, t - 1):
            turns[-1].append((b, t))
        else:
            turns.append([(b, t)])
    return turns


def gap(x: LossInputs, token: Token) -> Tensor:
    return x.policy_logprobs[token] - x.behaviour_logprobs[token]


def clip_term(ratio: Tensor, a: Tensor, low: float, high: float) -> Tensor:
    return torch.min(ratio * a, ratio.clamp(1 - low, 1 + high) * a)


def by_units(cut: Callable[[list[Token]], list[list[Token]]], low=0.2, high=0.2, mean=False):
    """Mean of the clipped terms over an episode's units, then over the update's episodes."""

    def loop(x: LossInputs) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for tokens in episodes_of(x):
            terms = []
            for unit in cut(tokens):
                log_ratio = torch.stack([gap(x, token) for token in unit]).sum() / (len(unit) if mean else 1)
                terms.append(clip_term(torch.exp(log_ratio), x.advantages[unit[0]], low, high))
            total = total + sum(terms) / len(terms)
        return -total / x.num_episodes

    return loop


def by_tokens(term: Callable[[LossInputs, Token], Tensor], divide: Callable[[LossInputs], float]):
    def loop(x: LossInputs) -> Tensor:
        tokens = [(b, t) for b, t in x.action_mask.nonzero().tolist()]
        return -sum((term(x, token) for token in tokens), torch.zeros((), dtype=torch.float64)) / divide(x)

    return loop


def per_token(x: LossInputs) -> float:
    return x.num_action_tokens


def ppo_token(low: float, high: float):
    return lambda x, token: clip_term(gap(x, token).exp(), x.advantages[token], low, high)


def rec_token(keeps: Callable[[float, float], bool], weighted: bool):
    def term(x: LossInputs, token: Token) -> Tensor:
        a, ratio = x.advantages[token].item(), gap(x, token).exp().item()
        return a * (ratio if weighted else 1.0) * keeps(a, ratio) * x.policy_logprobs[token]

    return term


def cispo_token(x: LossInputs, token: Token) -> Tensor:
    weight = min(max(gap(x, token).exp().item(), 1 - 0.3), 1 + 0.4)
    return weight * x.advantages[token] * x.policy_logprobs[token]


def sibling_episodes(x: LossInputs) -> Iterator[list[tuple[list[Token], Tensor]]]:
    """Tokens and advantage of the episodes that are compared with each other."""
    groups: dict[int, list[tuple[list[Token], Tensor]]] = {}
    for tokens in episodes_of(x):
        if tokens:
            groups.setdefault(int(x.siblings[tokens[0][0]]), []).append((tokens, x.advantages[tokens[0]]))
    yield from groups.values()


def nft(weight: float, bound: float):
    def loop(x: LossInputs) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for group in sibling_episodes(x):
            good, bad = (sum(bool(sign * a > 0) for _, a in group) for sign in (1, -1))
            r = min(max(good / max(1, good + bad), 0.02), 0.98)
            for tokens, a in group:
                for token in tokens:
                    ratio = gap(x, token).exp()
                    negative = (1 - r * ratio) / (1 - r)
                    held = negative if negative > bound else bound + negative - negative.detach()
                    term = gap(x, token) if a > 0 else weight * torch.log(held) if a < 0 else 0.0
                    total = total - (1 - r) * term
        return total / x.num_action_tokens

    return loop


def sdpo(beta: float):
    def loop(x: LossInputs) -> Tensor:
        total = 0.0 * x.policy_logprobs.sum()
        for group in sibling_episodes(x):
            pairs = [(better, worse) for better, a in group if a > 0 for worse, b in group if b < 0]
            for better, worse in pairs:
                num = min(len(turns_of(better)), len(turns_of(worse)))
                h = [sum(gap(x, t) for turn in turns_of(one)[:num] for t in turn) for one in (better, worse)]
                share = sum(bool(a != 0) for _, a in group) / len(pairs)
                total = total - share * torch.log(torch.sigmoid(beta * (h[0] - h[1])))
        return total / x.num_episodes

    return loop


def one_side(a, ratio):
    return (a >= 0 and ratio <= 1.3) or (a <= 0 and ratio >= 0.8)


def two_side(a, ratio):
    return 0.8 <= ratio <= 1.3


def ring(a, ratio):
    return two_side(a, ratio) or (a >= 0 and ratio <= 0.4) or (a <= 0 and ratio >= 2.0)


def each(tokens: list[Token]) -> list[list[Token]]:
    return [[token] for token in tokens]


def whole(tokens: list[Token]) -> list[list[Token]]:
    return [tokens]


RANGE: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.3}
LOSSES: dict[str, tuple[PolicyLoss, Callable[[LossInputs], Tensor]]] = {
    "rec": (REC(**RANGE), by_tokens(rec_token(one_side, False), per_token)),
    "rec weighted": (REC(**RANGE, importance_weights=True), by_tokens(rec_token(one_side, True), per_token)),
    "rec two-side": (REC(**RANGE, clip="two_side"), by_tokens(rec_token(two_side, False), per_token)),
    "rec two-side weighted": (
        REC(**RANGE, clip="two_side", importance_weights=True),
        by_tokens(rec_token(two_side, True), per_token),
    ),
    "rec ring": (
        REC(**RANGE, clip="ring", outer_low=0.6, outer_high=1.0),
        by_tokens(rec_token(ring, False), per_token),
    ),
    "rec none": (REC(clip="none"), by_tokens(rec_token(lambda a, ratio: True, False), per_token)),
    "rec none weighted": (
        REC(clip="none", importance_weights=True),
        by_tokens(rec_token(lambda a, ratio: True, True), per_token),
    ),
    "grpo": (GRPO(clip_low=0.2, clip_high=0.3), by_units(each, 0.2, 0.3)),
    "dr grpo": (
        DrGRPO(clip_low=0.2, clip_high=0.3, max_tokens=5),
        by_tokens(ppo_token(0.2, 0.3), lambda x: x.num_episodes * 5),
    ),
    "dapo": (DAPO(), by_tokens(ppo_token(0.2, 0.28), per_token)),
    "loop token": (LOOP(), by_units(each, 1 - 1 / 1.1, 0.1)),
    "loop turn": (LOOP(epsilon=0.3, level="turn"), by_units(turns_of, 1 - 1 / 1.3, 0.3)),
    "loop episode": (LOOP(level="episode"), by_units(whole, 1 - 1 / 1.1, 0.1)),
    "gspo": (GSPO(sequence_low=0.03, sequence_high=0.04), by_units(whole, 0.03, 0.04, mean=True)),
    "cispo": (CISPO(min_ratio=0.7, max_ratio=1.4), by_tokens(cispo_token, per_token)),
    "rloo": (
        RLOO(),
        by_tokens(lambda x, token: x.advantages[token] * x.policy_logprobs[token], lambda x: x.num_episodes),
    ),
    "nft": (NFT(), nft(1.0, 1.0)),
    "nft soft": (NFT(negative_weight=0.5, least_negative=0.3), nft(0.5, 0.3)),
    "sdpo": (SDPO(beta=0.7), sdpo(0.7)),
}
