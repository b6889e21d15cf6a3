"""Log-probs of all rows of a rollout by some model, in micro-batches, before its updates need them."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from cod_lightning.objective.batch import Batch, one_token
from cod_lightning.objective.microbatch import padded, split_by_token_budget
from cod_lightning.ranks import gathered


@torch.no_grad()
def scored_rows(
    batch: Batch, score: Callable[[Batch], Tensor], *, token_budget: int, device: torch.device | str
) -> Float[Tensor, "B T"]:
    """`score` of all rows of the batch; computed on `device`, kept where the batch is.

    All ranks score equally often, since sharded parameters are put together by all of them.
    """
    found = torch.zeros_like(batch.behaviour_logprobs)
    parts = split_by_token_budget(batch.lengths, torch.arange(len(batch)), token_budget)
    for rows in padded(parts, max(gathered(len(parts)))):
        if rows is None:
            score(one_token(batch).to(device))
            continue
        part = batch.rows(rows)
        found[rows, : part.token_ids.shape[1]] = score(part.to(device)).to(found)
    return found
