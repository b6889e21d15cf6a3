"""What stands beside an environment or a context mechanism, and is found in one way."""

from typing import Any, TypeVar

C = TypeVar("C")


def beside(whole: Any, kind: type[C]) -> C:
    """The companion of this kind that `whole` names in `companions`; where it names none, that of what it has `inside`, or the kind
    itself, with its defaults.

    >>> from cod_lightning.envs.base import Vocabulary
    >>> from cod_lightning.envs.levers import Levers
    >>> beside(Levers(protocol="compact"), Vocabulary).words()[:3]
    ('levers', 'want=red', 'want=green')
    """
    own: Any = next((one for one in whole.companions if issubclass(one, kind)), None)
    inside = getattr(whole, "inside", None)  # of one that delegates
    if own is None and inside is not None:
        return beside(inside, kind)
    made: Any = own or kind
    return made(whole)
