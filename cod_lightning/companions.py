"""What stands beside an environment or a context mechanism, and is found in one way."""

from typing import Any, TypeVar

C = TypeVar("C")


def beside(whole: Any, kind: type[C]) -> C:
    """The companion of this kind that `whole` names in `companions`; where it names none, that of what it has `inside`, or the kind
    itself, with its defaults.

    >>> from cod_lightning.envs.base import Vocabulary
    >>> from cod_lightning.envs.levers import Levers
    >>> beside(Levers(protocol="compact"), Vocabulary).words()[:3]
    ('levers', 'want=red', 'want=blue')
    """
    for own in whole.companions:
        if issubclass(own, kind):
            return own(whole)
    inside = getattr(whole, "inside", None)  # of one that delegates
    return kind(whole) if inside is None else beside(inside, kind)
