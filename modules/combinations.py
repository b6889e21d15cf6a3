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
    _check_passes(module, data.passes_per_rollout)
    _check_staleness(module, data.max_staleness)
    _check_branching(module, data.branching, data.plan, data.pack_size)
    if data.resample_packs and isinstance(module.baseline, AsymRE) and module.baseline.shift < 0:
        raise ConfigError(
            "data.resample_packs",
            data.resample_packs,
            "0 with baseline=asymre, which gives every pack an advantage, so that none is ever replaced",
            "Leave it out, or choose another baseline.",
        )


def _check_passes(module: "GRPOModule", passes: int) -> None:
    if passes > 1 and not module.loss.reuses_tokens:
        raise ConfigError(
            "data.passes_per_rollout",
            passes,
            f"1 with model.loss={type(module.loss).__name__} as it is set, which neither clips nor weighs tokens by their "
            "ratio and so would push the same ones further in every pass",
            "Choose loss=loop, grpo, cispo or rec.",
        )


def _check_staleness(module: "GRPOModule", max_staleness: int) -> None:
    if max_staleness > 0 and not module.loss.reuses_tokens:
        raise ConfigError(
            "data.max_staleness",
            max_staleness,
            f"0 with model.loss={type(module.loss).__name__} as it is set, which neither clips nor weighs tokens by their "
            "ratio and so would take those of older weights for the policy's own",
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
