"""Log-probs of several teachers, each for the rows of its own environment."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from cod_lightning.errors import ConfigError
from cod_lightning.objective.batch import Batch
from cod_lightning.training.scorers import Forward, Scorer


class ScorerByWorld(Scorer):
    """Several teachers, each for the packs of its own environment: specialists that are distilled into one student.

    Rows of other environments have no score.

    Source: the on-policy distillation of CoD's release (arXiv 2606.20002, `pde_control_grid_opd.yaml`), in which each row likewise
    has the one teacher of its environment. What differs: teachers are told apart by the packs' ids, there by tasksets. Its loss,
    without clip and weight, has the gradient of `KL` with `coefficient: 1`.

    Args:
        teachers: By what the ids of an environment's packs begin with (`levers`; transcripts show ids); the longest one counts.
    """

    def __init__(self, teachers: dict[str, Scorer]) -> None:
        if wrong := [name for name, teacher in teachers.items() if teacher.needs_oracle]:
            expected = "a scorer that is asked about the rows as they are"
            name = type(teachers[wrong[0]]).__name__
            remedy = f"Make the ScorerByWorld the teacher of the {name}."
            raise ConfigError(f"model.scorers.teachers.{wrong[0]}", name, expected, remedy)
        self.teachers = teachers

    def check(self, key: str, vocabulary: dict[str, int]) -> None:
        for name, teacher in self.teachers.items():
            teacher.check(f"{key}.teachers.{name}", vocabulary)

    def num_weight_bytes(self) -> int:
        return sum(teacher.num_weight_bytes() for teacher in self.teachers.values())

    def score(self, rows: Batch, forward: Forward) -> Float[Tensor, "B T"]:
        scores = torch.full_like(rows.behaviour_logprobs, math.nan)
        packs = [rows.pack_ids.get(g, "") for g in rows.place[:, 0].tolist()]
        named = [max((name for name in self.teachers if pack.startswith(name)), key=len, default="") for pack in packs]
        for name, teacher in self.teachers.items():
            its = torch.tensor([b for b, of in enumerate(named) if of == name], device=scores.device).long()
            if len(its):
                part = rows.rows(its)
                scores[its, : part.token_ids.shape[1]] = teacher.score(part, forward).to(scores)
        return scores.masked_fill(~rows.action_mask, 0.0)
