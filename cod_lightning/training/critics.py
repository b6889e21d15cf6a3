"""Critics: values of what the policy has seen so far, from which each token's advantage follows in place of a baseline's."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cod_lightning.objective.batch import Batch, one_token
from cod_lightning.ranks import gathered
from cod_lightning.seeds import derive_seed


class Critic(ABC):
    """A network from hidden states to values, and how advantages come of them. A frozen dataclass, chosen with `model.critic`.

    The value before an action token estimates the return of the row's episode, which the credit rule says; no sibling is needed.
    Baseline, scale and reweighting have no say in rows that have one. Extra attempts and replayed rows keep theirs, and a return is
    without what attempts have of it (`cod_lightning/credit/credited.py`).
    """

    lr: float
    """Of the network's own AdamW, which takes one step a rollout."""

    @abstractmethod
    def net(self, hidden_size: int) -> nn.Module:
        """The network: [N, hidden_size] hidden states of the policy, without gradient -> [N, 1] values, in units of return."""

    @abstractmethod
    def advantages(
        self, values: Float[Tensor, "B T"], returns: Float[Tensor, " B"], action_mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Of action tokens, whatever elsewhere; `values[:, t]` belongs to what comes before token t."""


class CriticAtWork:
    """A critic's network and optimizer in a training; the same on every rank.

    Args:
        critic: What they are made by.
        hidden_size: Of the policy.
        device: Where they are.
        seed: Of the run.
    """

    def __init__(self, critic: Critic, hidden_size: int, device: torch.device, seed: int) -> None:
        self.critic = critic
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed("critic", seed))
            self.net = critic.net(hidden_size).to(device, torch.float32)  # under bf16-true it was made in bfloat16
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=critic.lr, weight_decay=0.0)
        self._sums = (0.0, 0.0, 0.0)

    def criticised(
        self,
        batch: Batch,
        known: Bool[Tensor, " B"],
        parts: Sequence[Int[Tensor, " b"] | None],
        hidden: Callable[[Batch], Float[Tensor, "b T H"]],
    ) -> Batch:
        """The rows, those whose return is `known` with an advantage for each token; then the network learns from them.

        Args:
            batch: All rows of this rank.
            known: Which have a value.
            parts: Indices of these, in micro-batches; None where other ranks have more.
            hidden: The policy's last hidden states in a micro-batch: [:, t] of what comes before token t.
        """
        assert batch.returns is not None, "rows without returns"
        values = torch.zeros_like(batch.behaviour_logprobs)
        for rows in parts:
            part = one_token(batch) if rows is None else batch.rows(rows)
            states = hidden(part)
            if rows is not None:
                assert part.returns is not None
                found = self._values(states, part.returns.to(states.device), part.action_mask.to(states.device))
                values[rows, : found.shape[1]] = found.to(values)
        of_tokens = self.critic.advantages(values, batch.returns, batch.action_mask)
        by_token = torch.where(known[:, None], of_tokens, batch.advantages[:, None])
        return replace(batch, by_token=by_token, figures={**batch.figures, **self._step()})

    def _values(
        self, hidden: Float[Tensor, "B T H"], returns: Float[Tensor, " B"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Values of these rows, whose errors the next step learns from."""
        with torch.enable_grad():
            found = self.net(hidden[mask].float()).squeeze(1)
            targets = returns[:, None].expand_as(mask)[mask]
            error = ((found - targets) ** 2).sum()
            error.backward()
        errors, num, squares = self._sums
        self._sums = (errors + float(error.detach()), num + len(targets), squares + float((targets**2).sum()))
        values = torch.zeros(mask.shape, device=mask.device)
        values[mask] = found.detach()
        return values

    def _step(self) -> dict[str, float]:
        """One step on the mean squared error over all ranks' tokens; what a training logs of it. Every rank has to call it."""
        parameters = list(self.net.parameters())
        own = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        of_ranks = gathered(([gradient.cpu() for gradient in own], self._sums))
        errors, num, squares = (sum(sums) for sums in zip(*(sums for _, sums in of_ranks), strict=True))
        for parameter, gradients in zip(parameters, zip(*(found for found, _ in of_ranks), strict=True), strict=True):
            parameter.grad = torch.stack(gradients).sum(dim=0).to(parameter) / max(1.0, num)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._sums = (0.0, 0.0, 0.0)
        return {"train/value_error": errors / max(1.0, num), "train/return_square": squares / max(1.0, num)}

    def state_dict(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.net.load_state_dict(state_dict["net"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.optimizer.param_groups[0]["lr"] = self.critic.lr  # a change that was accepted
