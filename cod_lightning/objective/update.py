"""What of a batch goes into an update: which rows, with which denominators, and which tokens a loss singles out."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.objective.batch import Batch, episode_keys
from cod_lightning.objective.credited import NO_ADVANTAGE, Credited
from cod_lightning.objective.losses.base import PolicyLoss, UpdateTokens


@dataclass(frozen=True, kw_only=True)
class Update:
    """The plan of one optimizer update, made before any forward pass."""

    rows: Int[Tensor, " b"]
    """Rows that may have a gradient; the others are not looked at."""
    advantages: Float[Tensor, "B T"]
    """Of the batch's tokens."""
    marked: Bool[Tensor, "B T"]
    """Tokens that the loss treats differently."""
    keys: Int[Tensor, " B"]
    """The episode of each row, as one integer."""
    num_action_tokens: int
    """Denominator: action tokens, rows of zero advantage included; those of filtered packs and unknown episodes not."""
    num_episodes: int
    """The other denominator: episodes with a row, counted likewise."""


def plan_update(
    batch: Batch,
    advantages: Credited,
    loss: PolicyLoss,
    *,
    filter_packs: bool,
    every_row: bool,
    seed: int,
) -> Update:
    """Choose rows and count denominators.

    An episode whose advantage is not known, because a reward is missing or too few siblings have theirs, is not one with an
    advantage of 0: it is in no row and in no denominator, as if it had not been sampled.

    With `filter_packs`, packs without signal are taken out of the update and of its denominators (the filtering half of
    DAPO's dynamic sampling, arXiv 2503.14476; the other half is `data.resample_packs`). Without, they count there. Of what is
    left, rows of zero advantage are skipped unless they are marked, or `every_row` is set because some term of the
    objective (a divergence, an entropy bonus) has a gradient there too.
    """
    token_advantages, keys = advantages.spread(batch), episode_keys(batch)
    mask, num_action_tokens = batch.action_mask, batch.num_action_tokens
    known = advantages.known(batch)
    all_known = bool(known.all())
    if not all_known:
        mask = mask & known[:, None]
    if filter_packs:
        mask = mask & advantages.packs_with_signal()[batch.episode_index[:, 0]][:, None]
    if not all_known or filter_packs:
        num_action_tokens = int(mask.sum())
    there = mask.any(dim=1)
    tokens = UpdateTokens(behaviour_logprobs=batch.behaviour_logprobs, advantages=token_advantages, action_mask=mask)
    marked = loss.mark(tokens, seed)
    needed = token_advantages.abs().amax(dim=1).gt(NO_ADVANTAGE) | marked.any(dim=1) | every_row | loss.every_row
    return Update(
        rows=(needed & there).nonzero().squeeze(1),
        advantages=token_advantages,
        marked=marked,
        keys=keys,
        num_action_tokens=num_action_tokens,
        num_episodes=len(torch.unique(keys[there])),
    )
