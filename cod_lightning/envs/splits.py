"""A world belongs to one split, by the hash of its canonical text, so that splits are disjoint by construction."""

import hashlib

from cod_lightning.types import Split

OPENING = 4
"""Tasks that decide the split of a pack together with its rule, where rules are few, however many tasks it has."""


def split_of_text(text: str) -> Split:
    """8 of 10 worlds train, 1 validates, 1 tests.

    >>> split_of_text("SF/FG") is split_of_text("SF/FG")
    True
    """
    bucket = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10
    return Split.TRAIN if bucket < 8 else (Split.VALIDATION, Split.TEST)[bucket - 8]
