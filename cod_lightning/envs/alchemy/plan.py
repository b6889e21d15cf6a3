"""The shortest way to make something from what is at hand, with or without using materials up."""

from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement

Pair = tuple[str, str]
"""Two inputs, in alphabetical order; they may be equal."""
Ways = Mapping[str, tuple[Pair, ...]]
"""Of each element the pairs that give it."""
_MOST_STATES = 20_000


def pair_of(first: str, second: str) -> Pair:
    """Order does not matter to a recipe.

    >>> pair_of("b", "a")
    ('a', 'b')
    """
    return (first, second) if first <= second else (second, first)


def ways_of(recipes: Mapping[Pair, str], levels: Mapping[str, int]) -> dict[str, tuple[Pair, ...]]:
    """Recipes by result; those whose result does not lie above both inputs are left out, so there are no circles.

    Elements without a level count as level 0; failures (an empty result) are no ways.
    """
    found: dict[str, tuple[Pair, ...]] = {}
    for pair, result in recipes.items():
        if result and levels.get(result, 0) > max(levels.get(name, 0) for name in pair):
            found[result] = (*found.get(result, ()), pair)
    return found


def shortest_plan(
    ways: Ways,
    levels: Mapping[str, int],
    needs: Mapping[str, int],
    have: Mapping[str, int],
    *,
    consume: bool,
    most: int = 64,
) -> tuple[Pair, ...] | None:
    """Fewest attempts, in the order in which they can be made, after which all that is needed is at hand; None if there is none.

    Without `consume` one copy serves for ever. With it every copy of every intermediate is counted: what is at hand is used
    first, which is never worse since all copies are alike, and the rest is made, each copy in any of its ways. Elements are
    settled from the highest level down, so that all needs of an element are known when it is settled; the states are the
    open needs. Exact up to 20,000 of them, far more than come up within a world's bounds; plans of more than `most` attempts are
    not looked for.
    """
    states: dict[tuple[tuple[str, int], ...], tuple[Pair, ...]] = {tuple(sorted(needs.items())): ()}
    for name in _downwards(ways, levels, needs):
        grown: dict[tuple[tuple[str, int], ...], tuple[Pair, ...]] = {}
        for open_needs, steps in states.items():
            for rest, chosen in _settled(name, dict(open_needs), ways, have, consume):
                key, plan = tuple(sorted(rest.items())), (*steps, *chosen)
                if len(plan) <= most and (key not in grown or len(plan) < len(grown[key])):
                    grown[key] = plan
        if len(grown) > _MOST_STATES:
            grown = dict(sorted(grown.items(), key=lambda state: len(state[1]))[:_MOST_STATES])
        states = grown
    plan = states.get(())
    return None if plan is None else plan[::-1]


def _downwards(ways: Ways, levels: Mapping[str, int], needs: Mapping[str, int]) -> list[str]:
    """All that may be needed, from the highest level down."""
    found, fresh = set(needs), list(needs)
    while fresh:
        parts = {part for pair in ways.get(fresh.pop(), ()) for part in pair} - found
        found |= parts
        fresh.extend(parts)
    return sorted(found, key=lambda name: (-levels.get(name, 0), name))


def _settled(
    name: str, needs: dict[str, int], ways: Ways, have: Mapping[str, int], consume: bool
) -> Iterator[tuple[dict[str, int], tuple[Pair, ...]]]:
    """The needs that are left after this element's are met, and the attempts that make it, for every choice of ways."""
    lacking = max(0, needs.pop(name, 0) - have.get(name, 0))
    if not lacking:
        yield needs, ()
        return
    for chosen in combinations_with_replacement(ways.get(name, ()), lacking):
        rest = dict(needs)
        for part in (part for pair in chosen for part in pair):
            rest[part] = rest.get(part, 0) + 1 if consume else 1
        if all(count <= have.get(part, 0) for part, count in rest.items() if part not in ways):
            yield rest, chosen
