"""How a run sharpens what is believed about a plant's two hidden numbers."""

from collections.abc import Sequence

import numpy as np

from cod_lightning.envs.control.draws import ControlParameters
from cod_lightning.envs.control.plant import EXACT, PlantBelief

_ROUNDING = 0.0006
"""Standard error of one equation due to tables with three decimals."""
_SURPRISE = 25.0
"""Mean squared misfit, in units of what is expected, from which an old belief is dropped."""


def learned(old: PlantBelief, parameters: ControlParameters, vs: Sequence[float], us: Sequence[float]) -> PlantBelief:
    """A belief after a run with velocities v_0..v_T and controls u_0..u_{T-1}: least squares with the old belief as prior.

    Where the run contradicts the old belief plainly, as after a change of the hidden rule, it is judged alone.
    """
    rows, after = np.column_stack([vs[:-1], us]), np.asarray(vs[1:])
    misfit = after - rows @ np.array([old.a, old.b])
    expected = _ROUNDING**2 + (rows**2) @ np.array([old.a_error**2, old.b_error**2])
    if float(np.mean(misfit**2 / expected)) > _SURPRISE:
        old = parameters.prior
    weights = np.diag([old.a_error**-2, old.b_error**-2])
    covariance = np.linalg.inv(rows.T @ rows / _ROUNDING**2 + weights)
    mean = covariance @ (rows.T @ after / _ROUNDING**2 + weights @ np.array([old.a, old.b]))
    errors = np.maximum(np.sqrt(np.diag(covariance)), EXACT)
    return PlantBelief(float(mean[0]), float(mean[1]), float(errors[0]), float(errors[1]))
