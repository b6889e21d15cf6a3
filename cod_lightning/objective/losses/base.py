"""What every policy loss is given and gives back, and what a ratio is taken of: a token, a turn or an episode."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What a loss may look at: rows of one micro-batch, which holds every row of each of its episodes."""

    policy_logprobs: Float[Tensor, "B T"]
    """Under the weights being trained (nats), with gradient."""
    behaviour_logprobs: Float[Tensor, "B T"]
    """Under the sampler (nats)."""
    advantages: Float[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    episode: Int[Tensor, " B"]
    """Which episode a row is of; any integers."""
    num_action_tokens: int
    """Of the whole update, over all ranks and micro-batches: a denominator."""
    num_episodes: int
    """Of the whole update, with at least one action token each: the other denominator."""
    siblings: Int[Tensor, " B"] | None = None
    """Which rows are compared with each other, by `EpisodeTable.siblings`; any integers. For losses that compare siblings."""


@dataclass(frozen=True, kw_only=True)
class LossOutputs:
    """A scalar to differentiate, and what to log."""

    loss: Float[Tensor, ""]
    num_clipped: float = 0.0
    """Action tokens whose gradient the clip removed or, where the loss clips weights, whose weight it changed."""


class PolicyLoss(ABC):
    """Log-probabilities and advantages to a scalar."""

    compares_siblings: ClassVar[bool] = False
    """Whether a micro-batch has to hold all rows of the siblings at one place of a pack, and not of an episode alone."""

    @abstractmethod
    def __call__(self, inputs: LossInputs) -> LossOutputs:
        """The micro-batch's share of the update's loss."""


def num_clipped(inputs: LossInputs, clipped: Bool[Tensor, "B T"]) -> float:
    """How many action tokens are among these."""
    return float((inputs.action_mask & clipped).sum())


Level = Literal["token", "turn", "episode"]


@dataclass(frozen=True)
class Units:
    """Groups of action tokens, numbered 0 .. num - 1."""

    index: Int[Tensor, "B T"]
    """The unit of each action token; without meaning elsewhere."""
    num: int
    action_mask: Bool[Tensor, "B T"]

    def sum(self, values: Float[Tensor, "B T"]) -> Float[Tensor, " U"]:
        """Of each unit's tokens."""
        return values.new_zeros(self.num).index_add(0, self.index[self.action_mask], values[self.action_mask])

    def counts(self, like: Float[Tensor, "B T"]) -> Float[Tensor, " U"]:
        """Tokens of each unit."""
        return self.sum(torch.ones_like(like))

    def means(self, values: Float[Tensor, "B T"]) -> Float[Tensor, " U"]:
        """Of each unit's tokens; 0 for a unit without any."""
        return self.sum(values) / self.counts(values).clamp_min(1)

    def spread(self, values: Float[Tensor, " U"]) -> Float[Tensor, "B T"]:
        """Every action token gets its unit's value; all others get 0."""
        out = values.new_zeros(self.action_mask.shape)
        return out.masked_scatter(self.action_mask, values[self.index[self.action_mask]])


def units_of(level: Level, inputs: LossInputs) -> Units:
    """The units of a micro-batch. A turn is a maximal run of action tokens in a row; an episode has all its rows.

    Between two turns of a row there is always the markup of the next prompt, so runs never merge.
    """
    mask = inputs.action_mask
    if level == "token":
        index = mask.flatten().cumsum(0).view(mask.shape) - 1
        return Units(index, int(mask.sum()), mask)
    if level == "turn":
        starts = mask & ~torch.nn.functional.pad(mask[:, :-1], (1, 0))
        return Units(starts.flatten().cumsum(0).view(mask.shape) - 1, int(starts.sum()), mask)
    ids, index = torch.unique(inputs.episode, return_inverse=True)
    return Units(index[:, None].expand(mask.shape), len(ids), mask)


def log_ratio(inputs: LossInputs) -> Float[Tensor, "B T"]:
    """policy - behaviour (nats) with gradient; 0 where the policy did not sample, whatever is stored there."""
    return torch.where(inputs.action_mask, inputs.policy_logprobs - inputs.behaviour_logprobs, 0.0)


def token_share(inputs: LossInputs) -> Float[Tensor, "B T"]:
    """1 / num_action_tokens for every action token: the mean over the update's tokens."""
    return inputs.action_mask / inputs.policy_logprobs.new_tensor(max(1, inputs.num_action_tokens))


def episode_share(inputs: LossInputs, level: Level = "token") -> Float[Tensor, "B T"]:
    """Shares with which a sum over tokens is a mean over units in each episode, then a mean over the update's episodes.

    share_t = 1 / (tokens of t's unit * units of its episode * num_episodes)

    What every token of a unit carries alike counts once for the unit.
    """
    like = torch.zeros_like(inputs.policy_logprobs)
    unit, episode = units_of(level, inputs), units_of("episode", inputs)
    of_unit = unit.spread(1 / unit.counts(like).clamp_min(1))
    units_in_episode = episode.sum(of_unit)
    return of_unit * episode.spread(1 / units_in_episode.clamp_min(1)) / max(1, inputs.num_episodes)
