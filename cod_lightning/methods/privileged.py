"""A teacher that sees the hidden rule: the policy, or another model, with the oracle's context in its prompts."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.objective.batch import Batch
from cod_lightning.training.scorers import Forward, Prompt, Scorer


class PrivilegedScorer(Scorer):
    """A teacher that sees more: every prompt shows the context that the environment's oracle writes, in place of the agent's own.

    In solve episodes it knows the pack's hidden rule, in updates it knew that before the task; the policy sampled the tokens
    without that knowledge. Rows whose prompt begins anew in the middle of an episode, replayed ones, and those that would no
    longer fit into the window have no score.

    Source: on-policy self-distillation (OPSD, arXiv 2601.18734), on-policy context distillation (arXiv 2602.12275). What differs:
    the privilege is the context that the environment's oracle writes; one sampled token stands for the whole distribution.

    Args:
        teacher: What scores these rows; null: the policy itself, with its weights as they are before the rollout's first update.
    """

    needs_oracle = True

    def __init__(self, teacher: Scorer | None = None) -> None:
        self.teacher = teacher

    def check(self, key: str, vocabulary: dict[str, int]) -> None:
        if self.teacher is not None:
            self.teacher.check(f"{key}.teacher", vocabulary)

    def num_weight_bytes(self) -> int:
        return 0 if self.teacher is None else self.teacher.num_weight_bytes()

    def rows(self, rows: Batch, prompt: Prompt) -> tuple[Batch, Bool[Tensor, " B"]]:
        """The same responses after other prompts."""
        first = [row.index(True) for row in rows.action_mask.tolist()]
        ids = [row[:length] for row, length in zip(rows.token_ids.tolist(), rows.lengths.tolist(), strict=True)]
        known, begins = torch.ones(len(rows), dtype=torch.bool), []
        for b, place in enumerate(rows.place.tolist()):
            g, k, e = place
            found = None if rows.is_replayed[b] else prompt(g, k, e, ids[b])
            known[b] = found is not None
            begins.append(ids[b][: first[b]] if found is None else list(found))
        rest = [(row[at:], mask[at : len(row)]) for row, mask, at in zip(ids, rows.action_mask, first, strict=True)]
        lengths = rows.lengths.new_tensor([len(begin) + len(row) for begin, (row, _) in zip(begins, rest, strict=True)])
        token_ids = rows.token_ids.new_zeros(len(rows), int(lengths.max()) if len(rows) else 0)
        action_mask = torch.zeros_like(token_ids, dtype=torch.bool)
        for b, (begin, (row, mask)) in enumerate(zip(begins, rest, strict=True)):
            token_ids[b, : lengths[b]] = torch.tensor(begin + row)
            action_mask[b, len(begin) : lengths[b]] = mask
        none = torch.zeros_like(token_ids, dtype=rows.behaviour_logprobs.dtype)
        return replace(
            rows,
            token_ids=token_ids,
            action_mask=action_mask,
            lengths=lengths,
            behaviour_logprobs=none,
            old_logprobs=None,
            scores={},
        ), known

    def score(self, rows: Batch, forward: Forward) -> Float[Tensor, "B T"]:
        return forward(None, rows) if self.teacher is None else self.teacher.score(rows, forward)
