"""Recovery after the rule has changed: success aligned at each pack's own change."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from cod_lightning.evaluation.bundle import Bundle, figure
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.schema import Recovery


def recovery(trained: Outcomes, controls: Mapping[str, Outcomes], changes: Sequence[int], seed: int = 0) -> Recovery:
    """Success at offsets from the change, of the trained policy and of every control on the same packs."""
    size = trained.num_positions
    offsets = list(range(-1, size - min(changes)))
    bundle = Bundle(trained.pack_ids)
    rows: dict[str, int] = {}
    for name, outcomes in {"trained": trained, **controls}.items():
        success = bundle.aligned(outcomes, outcomes.success)
        rows[name] = bundle.columns(align(success, changes, offsets))
        for unit in np.eye(len(offsets)):
            bundle.statistic(rows[name], unit)
    own = align(trained.success, changes, offsets)
    last = np.where(np.array(changes) < size - 1, trained.success[:, -1], np.nan)
    drop = bundle.statistic(bundle.columns((own[:, 1] - own[:, 0])[:, None]), np.ones(1))
    regained = bundle.statistic(bundle.columns((last - own[:, 1])[:, None]), np.ones(1))
    found = list(map(figure, bundle.estimates(seed)))
    return Recovery(
        offsets=offsets,
        rows={name: found[first : first + len(offsets)] for name, first in rows.items()},
        drop=found[drop],
        regained=found[regained],
    )


def align(values: Float[np.ndarray, "P N"], changes: Sequence[int], offsets: Sequence[int]) -> Float[np.ndarray, "P D"]:
    """Values at `change + offset` of each pack; NaN outside the pack.

    >>> align(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), [1, 2], [-1, 0, 1]).tolist()
    [[1.0, 2.0, 3.0], [5.0, 6.0, nan]]
    """
    positions = np.array(changes)[:, None] + np.array(offsets)[None, :]
    inside = (positions >= 0) & (positions < values.shape[1])
    taken = np.take_along_axis(values, np.clip(positions, 0, values.shape[1] - 1), axis=1)
    return np.where(inside, taken, np.nan)
