"""A linear critic: values from the policy's own hidden states, and advantages by GAE."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cod_lightning.ranges import Positive, Share
from cod_lightning.training.critics import Critic


@dataclass(frozen=True, kw_only=True)
class ValueHead(Critic):
    """A linear value of the policy's last hidden state, and GAE without a discount over a row's action tokens:

        d_i = v_{i+1} - v_i,   d_{n-1} = R - v_{n-1},   A_i = d_i + lambda A_{i+1}

    Source: GAE (arXiv 1506.02438), as PPO (arXiv 1707.06347) uses it. What differs: the hidden states are the policy's own and get
    no gradient, values are those before the rollout's step, and every row of an episode ends with its return.
    """

    lr: Positive = 1e-2
    gae_lambda: Share = 1.0
    """1 is the return less the value, the least biased."""

    def net(self, hidden_size: int) -> nn.Module:
        head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head

    def advantages(
        self, values: Float[Tensor, "B T"], returns: Float[Tensor, " B"], action_mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        found, after, following = torch.zeros_like(values), torch.zeros_like(returns), returns
        for t in reversed(range(values.shape[1])):
            here, value = action_mask[:, t], values[:, t]
            after = torch.where(here, following - value + self.gae_lambda * after, after)
            following = torch.where(here, value, following)
            found[:, t] = after
        return found
