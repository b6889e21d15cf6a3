"""What of a batch goes into an update: which rows, with which denominators, and which tokens a loss singles out."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.objective.batch import Batch, episode_keys
from cod_lightning.objective.credited import NO_ADVANTAGE, Credited
from cod_lightning.objective.losses.base import PolicyLoss, UpdateTokens
from cod_lightning.ranks import gathered, rank


@dataclass(frozen=True, kw_only=True)
class Update:
    """This rank's part in one optimizer update, planned before any forward pass."""

    rows: Int[Tensor, " b"]
    """Rows that may have a gradient; the others are not looked at."""
    advantages: Float[Tensor, "B T"]
    """Of the batch's tokens."""
    marked: Bool[Tensor, "B T"]
    """Tokens that the loss treats differently."""
    keys: Int[Tensor, " B"]
    """The episode of each row, as one integer."""
    num_action_tokens: int
    """Denominator, over all ranks: action tokens, those of zero advantage included, of filtered packs and unknown episodes not."""
    num_episodes: int
    """The other denominator: episodes of all ranks with a row, counted likewise."""


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
    objective (a divergence, an entropy bonus) has a gradient there too. An episode's rows are all on one rank.
    """
    token_advantages, keys = advantages.spread(batch), episode_keys(batch)
    mask = batch.action_mask & advantages.known(batch)[:, None]
    if filter_packs:
        mask = mask & advantages.packs_with_signal()[batch.episode_index[:, 0]][:, None]
    there = mask.any(dim=1)
    tokens = UpdateTokens(behaviour_logprobs=batch.behaviour_logprobs, advantages=token_advantages, action_mask=mask)
    marked = _marked(loss, tokens, seed)
    counts = gathered((int(mask.sum()), len(torch.unique(keys[there]))))
    needed = token_advantages.abs().amax(dim=1).gt(NO_ADVANTAGE) | marked.any(dim=1) | every_row | loss.every_row
    return Update(
        rows=(needed & there).nonzero().squeeze(1),
        advantages=token_advantages,
        marked=marked,
        keys=keys,
        num_action_tokens=sum(tokens for tokens, _ in counts),
        num_episodes=sum(episodes for _, episodes in counts),
    )


def _marked(loss: PolicyLoss, tokens: UpdateTokens, seed: int) -> Bool[Tensor, "B T"]:
    """Every rank chooses out of all ranks' tokens, put into one row in the order of ranks, and keeps what is its own."""
    mask = tokens.action_mask
    out = torch.zeros_like(mask)
    if type(loss).mark is PolicyLoss.mark:
        return out
    own = torch.stack([tokens.behaviour_logprobs[mask].double(), tokens.advantages[mask].double()]).cpu()
    parts = gathered(own)
    behaviour, advantages = torch.cat(parts, dim=1)[:, None]
    whole = UpdateTokens(
        behaviour_logprobs=behaviour, advantages=advantages, action_mask=torch.ones_like(behaviour).bool()
    )
    chosen = loss.mark(whole, seed)[0].split([part.shape[1] for part in parts])[rank()]
    out[mask] = chosen.to(out.device)
    return out
