"""Options of the objective and of the data that have no meaning together, refused before anything is trained or played."""

from typing import TYPE_CHECKING, Any

import torch

from cod_lightning.errors import ConfigError
from cod_lightning.objective.anchors import next_solve
from cod_lightning.objective.baselines import AsymRE
from cod_lightning.objective.batch import kind_id
from cod_lightning.plans import LifecyclePlan, planned
from cod_lightning.rollout.attempts import Branching
from cod_lightning.types import EpisodeKind

if TYPE_CHECKING:
    from modules.grpo import GRPOModule


def check_combination(module: "GRPOModule", data: Any) -> None:
    """Raise `ConfigError` naming the key, and why. `data` is the RolloutDataModule."""
    module.credit.check(data.pack_size)
    _check_reuse(module, data)
    _check_branching(module, data.branching, data.plan, data.pack_size)
    if data.resample_packs and isinstance(module.baseline, AsymRE) and module.baseline.shift < 0:
        raise ConfigError(
            "data.resample_packs",
            data.resample_packs,
            "0 with baseline=asymre, which gives every pack an advantage, so that none is ever replaced",
            "Leave it out, or choose another baseline.",
        )


def _check_reuse(module: "GRPOModule", data: Any) -> None:
    for key, value, most, harm in (
        ("passes_per_rollout", data.passes_per_rollout, 1, "push the same ones further in every pass"),
        ("max_staleness", data.max_staleness, 0, "take those of older weights for the policy's own"),
    ):
        if value > most and not module.loss.reuses_tokens:
            raise ConfigError(
                f"data.{key}",
                value,
                f"{most} with model.loss={type(module.loss).__name__} as it is set, which neither clips nor weighs tokens by "
                f"their ratio and so would {harm}",
                "Choose loss=loop, grpo, cispo or rec.",
            )


def _check_branching(module: "GRPOModule", branching: Branching, plan: LifecyclePlan, num_tasks: int) -> None:
    if branching.anchors is not None:
        branching.anchors.check(num_tasks)
    if branching.anchors is None and branching.counterfactual is None:
        return
    kinds = torch.tensor([kind_id(kind) for kind, _ in planned(plan, num_tasks)])
    of_next = module.credit.weights(kinds).gather(1, next_solve(kinds)[:, None])[kinds == kind_id(EpisodeKind.UPDATE)]
    if branching.counterfactual is not None and not bool((of_next > 0).all()):
        raise ConfigError(
            "data.counterfactual",
            "set",
            f"null with model.credit={type(module.credit).__name__} as it is set, which credits no context with the next task",
            "Choose credit=episode or a window of at least 2, or leave it out.",
        )
