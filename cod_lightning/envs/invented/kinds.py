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
from cod_lightning.errors import ConfigError
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

    Raises `ConfigError` for a kind that there is not.
    """
    found: dict[str, None] = {}
    for kind in kinds:
        if kind in FAMILIES:
            found |= dict.fromkeys("-".join([kind, *map(str, sizes)]) for sizes in FAMILIES[kind].sizes)
            continue
        name, sizes = _read(kind)
        if name not in FAMILIES or sizes not in FAMILIES[name].sizes:
            raise ConfigError(
                "data.env.kinds",
                kind,
                "families, or families with sizes that ship",
                f"There are {', '.join('-'.join([name, *map(str, f.sizes[0])]) for name, f in FAMILIES.items())} and others.",
            )
        found[kind] = None
    if not found:
        raise ConfigError("data.env.kinds", "[]", "at least one kind", "lookup is one.")
    return tuple(found)


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
    return name, tuple(int(size) if size.isascii() and size.isdigit() else 0 for size in sizes)
