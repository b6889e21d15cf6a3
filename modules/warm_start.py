"""Supervised learning on scripted demonstrations: teaches a policy the protocol before there is anything to reinforce."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.errors import ConfigError
from cod_lightning.models.base import Policy
from cod_lightning.modules.policy import OptimizerName, PolicyModule
from cod_lightning.objective.batch import Batch
from cod_lightning.ranges import Count, Natural, Positive
from cod_lightning.ranks import gathered
from cod_lightning.training.update import padded

_BETAS = (0.9, 0.95)
"""Decay rates of AdamW's moments."""
_WEIGHT_DECAY = 0.0
_LARGEST_NORM = 1.0
"""Of an update's gradient."""


class WarmStartModule(PolicyModule):
    """Cross-entropy on the demonstrators' action tokens, AdamW with warm-up and linear decay to 0.

    Args:
        policy: How the model and its tokenizer are made.
        optimizer: AdamW with moments in float32 (`adamw`), for weights in bfloat16 `adamw_stochastic`, or with moments in 8 bits
            (`adamw_8bit`, `paged_adamw_8bit`, which need bitsandbytes); see `GRPOModule`.
        lr: Largest learning rate.
        warmup_updates: Updates over which the learning rate rises linearly from 0.
        token_budget: Most tokens of a micro-batch, padding included; null takes an update whole. Rows of like length go together,
            and what they all begin with is computed once, which pays where prompts are long.
    """

    def __init__(
        self,
        policy: Policy,
        optimizer: OptimizerName = "adamw",
        lr: Positive = 3e-3,
        warmup_updates: Natural = 50,
        token_budget: Count | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        if not policy.has_weights:
            raise ConfigError(
                "model.policy", type(policy).__name__, "a policy with weights to train", "Choose another."
            )
        self._take_optimizer(optimizer, lr, _BETAS, _WEIGHT_DECAY)
        self.policy, self.warmup_updates, self.token_budget = policy, warmup_updates, token_budget
        self.model: PreTrainedModel | None = None

    def configure_model(self) -> None:
        """Build the policy once the DataModule has its tokenizer."""
        if self.model is None:
            self.model = self._shared_out(self._made())

    def configure_optimizers(self) -> Any:
        """AdamW; the learning rate rises over `warmup_updates` and falls linearly to 0 after the last update."""
        total = max(1, int(self.trainer.estimated_stepping_batches))

        def factor(update: int) -> float:
            return min((update + 1) / max(1, self.warmup_updates), 1 - update / total)

        return self._optimized(factor)

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """One update on this rank's part of a batch of demonstrations."""
        self._see_text(batch)
        every = torch.arange(len(batch), device=batch.lengths.device)
        whole = [every] if len(batch) else []
        own = whole if self.token_budget is None else self._split(batch, every, every)
        num_tokens = max(1, sum(gathered(int(batch.action_mask.sum()))))
        total = 0.0

        def loss_of(rows: Tensor) -> Tensor:
            nonlocal total
            logprobs, _ = self._scored(self._model, batch.rows(rows))
            loss = -logprobs.sum() / num_tokens
            total += float(loss.detach())
            return loss

        self._updated(batch, padded(own), loss_of, _LARGEST_NORM)
        self.log("warm_start/loss", sum(gathered(total)), on_step=True, on_epoch=False, batch_size=1)
