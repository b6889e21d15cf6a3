"""Distillation by a divergence between the two directions of KL."""

import math
from dataclasses import dataclass

import torch

from cod_lightning.objective.terms import LARGEST, Divergence, TermInputs, TermSums
from cod_lightning.ranges import InnerShare, Positive


@dataclass(frozen=True, kw_only=True)
class JSD(Divergence):
    """Generalised Jensen-Shannon divergence from a teacher, per sampled token; between the two directions of KL.

    With P the teacher, Q the policy and M = beta P + (1 - beta) Q, the divergence is beta KL(P || M) + (1 - beta) KL(Q || M). It is
    estimated on the tokens that the policy sampled: with r = P / Q and m = beta r + 1 - beta at a token, the value is
    beta r log(r / m) - (1 - beta) log m. The loss has the gradient -(1 - beta) log m times that of log Q, whose expectation is the
    divergence's where the tokens are the policy's own. A token that the teacher likes much better pulls by log m, where forward KL
    (`KL` with `estimator: k3`) pulls by r - 1.

    Source: GKD (arXiv 2306.13649). What differs: the sampled token stands for the whole distribution, and samples are the
    student's alone.
    """

    coefficient: Positive = 1.0
    """Weight of the divergence, above 0."""
    to: str = "teacher"
    """The other model: reference, or a key of `model.scorers`."""
    beta: InnerShare = 0.5
    """Share of the teacher in M, in (0, 1). Divided by beta the gradient tends to that of forward KL as beta falls to 0."""

    @property
    def logged_as(self) -> str:
        return f"jsd_{self.to}"

    def __call__(self, inputs: TermInputs) -> TermSums:
        other, known, num_missing = self.others(inputs)
        log_ratio = torch.where(known, other - inputs.policy_logprobs.detach(), 0.0).clamp_max(LARGEST)
        log_mixed = torch.logaddexp(log_ratio + math.log(self.beta), torch.full_like(log_ratio, math.log1p(-self.beta)))
        value = self.beta * log_ratio.exp() * (log_ratio - log_mixed) - (1 - self.beta) * log_mixed
        pull = torch.where(known, -(1 - self.beta) * log_mixed, 0.0)
        loss = (pull * torch.where(known, inputs.policy_logprobs, 0.0)).sum()
        return TermSums(loss=loss, logged=float(value[known].sum()), num_missing=num_missing)
