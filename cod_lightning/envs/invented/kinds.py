"""Kinds of domains by name, and the names that domains are made of.

`lookup-4-4` is a family with sizes, `lookup` all sizes that ship.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from cod_lightning.envs.invented.family import Family, Sizes
from cod_lightning.envs.invented.moves import Graph, StateMachine
from cod_lightning.envs.invented.relations import Composition, Forbidden, HiddenOrder
from cod_lightning.envs.invented.rule import Rule
from cod_lightning.envs.invented.tables import Locks, Lookup, Offset, Threshold
from cod_lightning.errors import check_one_of
from cod_lightning.seeds import derive_seed

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Lookup(),
        Graph(),
        Composition(),
        Locks(),
        StateMachine(),
        HiddenOrder(),
        Threshold(),
        Forbidden(),
        Offset(),
    )
}
_SIZED = {name: tuple("-".join([name, *map(str, sizes)]) for sizes in one.sizes) for name, one in FAMILIES.items()}
_KINDS = _SIZED | {kind: (kind,) for kinds in _SIZED.values() for kind in kinds}
"""Families, and families with sizes, with the kinds that each stands for."""


def _pool(count: int) -> tuple[str, ...]:
    """So many different nonce words of two syllables."""
    consonants, vowels, rng = "bdfgklmnprtvz", "aeiou", random.Random(derive_seed("invented names"))
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(map(rng.choice, (consonants, vowels, consonants, vowels, "bdfgkmpvxz")))] = None
    return tuple(words)


MOST_HELD_OUT = 1792
POOL = _pool(2 * MOST_HELD_OUT)
"""All names. The first half are for training: with 512 of them, unseen ones were read much worse than seen ones. No policy meets
the others before it is tested on them."""
MOST_NAMES = 40
"""Of a domain."""


def names_of(words: str, held_out: int = MOST_HELD_OUT) -> tuple[str, ...]:
    """Those for training (seen), so many that are held out (unseen), or both (all)."""
    pool = POOL[: MOST_HELD_OUT + held_out]
    return {"seen": pool[:MOST_HELD_OUT], "unseen": pool[MOST_HELD_OUT:], "all": pool}[words]


def family_of(rule: Rule) -> Family:
    """The family that a rule is of."""
    return FAMILIES[rule.kind.partition("-")[0]]


def expand(kinds: Sequence[str]) -> tuple[str, ...]:
    """Each kind with its sizes; a family without sizes stands for all that ship.

    >>> expand(["offset", "locks-2-4"])
    ('offset-4', 'offset-5', 'offset-6', 'offset-7', 'locks-2-4')

    Raises `ConfigError` for a kind that there is not, and where none is named.
    """
    for kind in kinds or ["none"]:
        check_one_of("data.env.kinds", kind, list(_KINDS))
    return tuple(dict.fromkeys(sized for kind in kinds for sized in _KINDS[kind]))


def draw(kind: str, words: Sequence[str], rng: random.Random) -> Rule:
    """The rule of a new domain, with names of its own."""
    names, (name, sizes) = iter(rng.sample(words, MOST_NAMES)), _read(kind)
    return redrawn(FAMILIES[name].roles(kind, sizes, names), rng)


def redrawn(rule: Rule, rng: random.Random) -> Rule:
    """The same names with another hidden table."""
    return replace(rule, table=family_of(rule).table(rule, rng))


def turns_of(kind: str) -> int:
    """Turns that a task of this kind may take."""
    rule = draw(kind, POOL, random.Random(0))
    return family_of(rule).task(rule, random.Random(0)).turns


def _read(kind: str) -> tuple[str, Sizes]:
    """Name of the family, and sizes."""
    name, *sizes = kind.split("-")
    return name, tuple(map(int, sizes))
