"""Log-probs by the weights that sampled a rollout, for those of its updates that come after the weights have changed."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from cod_lightning.objective.batch import Batch
from cod_lightning.objective.microbatch import split_by_token_budget


@torch.no_grad()
def with_old_logprobs(
    batch: Batch, score: Callable[[Batch], Tensor], *, token_budget: int, device: torch.device | str
) -> Batch:
    """The batch with `score` of its rows as `old_logprobs`; computed on `device`, kept where the batch is."""
    old = torch.zeros_like(batch.behaviour_logprobs)
    for rows in split_by_token_budget(batch.lengths, torch.arange(len(batch)), token_budget):
        part = batch.rows(rows)
        old[rows, : part.token_ids.shape[1]] = score(part.to(device)).to(old)
    return replace(batch, old_logprobs=old)
