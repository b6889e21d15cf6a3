"""Figures that compare: what the trained policy has over each control, position by position and in the mean.

Every comparison is a difference within packs, taken before the mean over packs, on the packs that both sides played.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from cod_lightning.evaluation.intervals import DIFFERENCE, SHARE, Limits, bootstrap
from cod_lightning.evaluation.outcomes import Outcomes, pass_at
from cod_lightning.evaluation.schema import (
    Both,
    Difference,
    Figure,
    Figures,
    ForwardTransfer,
    Recovery,
    Regret,
    TrainingAdds,
)

Estimating = Callable[[Float[np.ndarray, "P M"], Float[np.ndarray, "S M"], Limits], list[Figure]]
"""Gives the figure sum_m c_m * (mean over packs of column m) for each contrast c, with what values a column can have."""


def figures(
    trained: Outcomes,
    controls: Mapping[str, Outcomes],
    changes: tuple[int | None, ...] | None = None,
    seed: int = 0,
    own_reward: bool = False,
    best_warm_start: tuple[str, float] | None = None,
) -> Figures:
    """All figures of a suite; `changes` are the positions [P] of the trained policy's packs at which their rule changes, if so;
    without `own_reward` the reward has parts, which the oracle's has not, so that there is no regret; `best_warm_start` is
    the control that is the warm start at its best temperature, and that temperature."""
    num = trained.num_positions
    mean, each = np.full(num, 1 / num), np.eye(num)
    later = np.where(np.arange(num) > 0, 1 / max(1, num - 1), 0.0)

    def estimated(
        values: Float[np.ndarray, "P M"], contrasts: Float[np.ndarray, "S M"], limits: Limits = None
    ) -> list[Figure]:
        found = bootstrap(values, contrasts, rules=trained.rules, limits=limits, seed=seed)
        return [one.figure() for one in found]

    def one(values: Float[np.ndarray, "P M"], contrast: Float[np.ndarray, " M"], limits: Limits = None) -> Figure:
        return estimated(values, contrast[None], limits)[0]

    sides = {"trained": trained} | {name: of.rows(trained.pack_ids) for name, of in controls.items()}
    success = {name: side.success for name, side in sides.items()}
    rewards = {name: side.rewards for name, side in sides.items()}
    over = {name: trained.success - success[name] for name in controls}
    over_in_reward = {name: trained.rewards - rewards[name] for name in controls}
    found = Figures(
        area={name: Both(success=one(success[name], mean, SHARE), reward=one(rewards[name], mean)) for name in sides},
        whole_packs={
            name: one(values.min(axis=1, keepdims=True), np.ones(1), SHARE) for name, values in success.items()
        },
        differences={
            name: Difference(
                success=one(over[name], mean, DIFFERENCE),
                reward=one(over_in_reward[name], mean),
                gain=one(over[name], each[-1] - each[0], DIFFERENCE),
                by_position=estimated(over[name], each, DIFFERENCE),
            )
            for name in controls
        },
        forward_transfer=None,
        regret=None,
        recovery=None if changes is None else _recovery(estimated, success, changes),
        training_adds=None,
    )
    without = next((c for c in ("no_context", "blanked_context") if c in controls), None)
    if without:
        found["forward_transfer"] = ForwardTransfer(
            control=without, success=one(over[without], later, DIFFERENCE), reward=one(over_in_reward[without], later)
        )
    if "oracle" in controls and own_reward:
        regret = -over_in_reward["oracle"]
        found["regret"] = Regret(mean=one(regret, mean), by_position=estimated(regret, each))
    best, temperature = best_warm_start or ("", 0.0)
    if best and controls.keys() >= {"blanked_context", "warm_start_blanked"} and num > 1:
        own, its = success["trained"] - success["blanked_context"], success[best] - success["warm_start_blanked"]
        found["training_adds"] = TrainingAdds(
            temperature=temperature,
            trained=one(own, later, DIFFERENCE),
            warm_start=one(its, later, DIFFERENCE),
            difference=one(own - its, later, (-2.0, 2.0)),
        )
    if trained.attempts is not None:
        most = trained.attempts.shape[-1]
        numbers = sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | {most})
        found["pass_at"] = {str(k): one(pass_at(trained.attempts, k), mean, SHARE) for k in numbers}
    return found


def _recovery(
    estimated: Estimating, success: Mapping[str, Float[np.ndarray, "P N"]], found: Sequence[int | None]
) -> Recovery:
    """Success at offsets from the change, of the trained policy and of every control on the same packs that have one."""
    trained = success["trained"]
    changes = [
        2 * trained.shape[1] if at is None else at for at in found
    ]  # all offsets from there are outside the pack
    offsets = list(range(-1, trained.shape[1] - min(changes)))
    own, each = align(trained, changes, offsets), np.eye(len(offsets))
    last = np.where(np.array(changes) < trained.shape[1] - 1, trained[:, -1], np.nan)
    (drop,) = estimated((own[:, 1] - own[:, 0])[:, None], np.eye(1), DIFFERENCE)
    (regained,) = estimated((last - own[:, 1])[:, None], np.eye(1), DIFFERENCE)
    rows = {name: estimated(align(values, changes, offsets), each, SHARE) for name, values in success.items()}
    return Recovery(offsets=offsets, rows=rows, drop=drop, regained=regained)


def align(values: Float[np.ndarray, "P N"], changes: Sequence[int], offsets: Sequence[int]) -> Float[np.ndarray, "P D"]:
    """Values at `change + offset` of each pack; NaN outside the pack.

    >>> align(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), [1, 2], [-1, 0, 1]).tolist()
    [[1.0, 2.0, 3.0], [5.0, 6.0, nan]]
    """
    positions = np.array(changes)[:, None] + np.array(offsets)[None, :]
    inside = (positions >= 0) & (positions < values.shape[1])
    taken = np.take_along_axis(values, np.clip(positions, 0, values.shape[1] - 1), axis=1)
    return np.where(inside, taken, np.nan)
