"""Rows as tests spell them."""

import numpy as np

from cod_lightning.forward.packed import Rows


def rows_of(slots, starts, chunks) -> Rows:
    """A row for each chunk of new ids."""
    return Rows(
        slots=np.array(slots),
        starts=np.array(starts),
        lengths=np.array([len(chunk) for chunk in chunks]),
        ids=np.array([i for chunk in chunks for i in chunk]),
    )
