"""Plans: the shortest ones, replayed, and compared with a plain search over inventories."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.alchemy.graph import book_of, draw_recipes, draw_shape, least_stock, levels, way_to
from cod_lightning.envs.alchemy.parameters import AlchemyParameters
from cod_lightning.envs.alchemy.plan import shortest_plan, ways_of

SMALL = AlchemyParameters(
    base_min=2,
    base_max=3,
    shrink_min=0.5,
    shrink_max=1.0,
    recipes_max=2,
    max_tier_gap=3,
    cross_tier_max=0.6,
    noise_max=0.5,
)
CHAIN = (("a", "b", "k"), ("k", "k", "p"))
TIERS = (("a", "b"), ("k",), ("p",))


def _drawn(seed):
    rng = random.Random(seed)
    for _ in range(100):
        shape = draw_shape(rng, rng, SMALL)
        recipes = draw_recipes(rng, shape, SMALL)
        if recipes is not None:
            return shape, recipes
    raise AssertionError("no graph was drawn")


def _replayed(recipes, have, plan, consume):
    """What is at hand after the plan; each attempt must be possible."""
    book, have = book_of(recipes), Counter(have)
    for pair in plan:
        needed = Counter(pair) if consume else Counter(set(pair))
        assert all(have[name] >= count for name, count in needed.items())
        if consume:
            have -= needed
        have[book[pair]] += 1
    return have


def _searched(recipes, have, target, consume, most):
    """Attempts of a shortest plan, breadth-first over inventories."""
    frontier, seen = {frozenset(Counter(have).items())}, set()
    for attempts in range(most + 1):
        if any(target in dict(state) for state in frontier):
            return attempts
        seen |= frontier
        grown = set()
        for state in frontier:
            for first, second, result in recipes:
                at_hand = Counter(dict(state))
                if not consume:
                    if at_hand[first] and at_hand[second] and not at_hand[result]:
                        grown.add(frozenset({**at_hand, result: 1}.items()))
                    continue
                at_hand.subtract([first, second])
                if min(at_hand.values()) >= 0:
                    at_hand[result] += 1
                    grown.add(frozenset((+at_hand).items()))
        frontier = {frozenset((n, c) for n, c in state if c) for state in grown} - seen
    return None


@given(seed=st.integers(0, 10**9), consume=st.booleans())
def test_a_plan_can_be_replayed_and_none_is_shorter(seed, consume):
    shape, recipes = _drawn(seed)
    rng = random.Random(seed)
    target = rng.choice([name for tier in shape.tiers[1:] for name in tier])
    have = {name: rng.randint(1, 3) if consume else 1 for name in shape.tiers[0]}
    for name in shape.tiers[1]:
        if rng.random() < 0.3 and name != target:
            have[name] = 1
    plan = way_to(recipes, shape.tiers, target, have, consume=consume, most=7)
    shortest = _searched(recipes, have, target, consume, 7)
    assert (None if plan is None else len(plan)) == shortest
    if plan is not None:
        assert _replayed(recipes, have, plan, consume)[target] == 1


@given(seed=st.integers(0, 10**9))
def test_the_least_stock_will_do_and_one_copy_less_will_not(seed):
    shape, recipes = _drawn(seed)
    for target in shape.tiers[-1]:
        least = least_stock(recipes, shape.tiers, target, most=7)
        for copies, possible in ((least, True), (least - 1, False)):
            if copies > 0:
                have = dict.fromkeys(shape.tiers[0], copies)
                assert (_searched(recipes, have, target, True, 7) is not None) == possible


def test_every_copy_of_an_intermediate_counts():
    assert least_stock(CHAIN, TIERS, "p", most=8) == 2, "k is needed twice, and each takes an a and a b"
    plan = way_to(CHAIN, TIERS, "p", {"a": 2, "b": 2}, consume=True, most=8)
    assert plan == (("a", "b"), ("a", "b"), ("k", "k"))
    assert way_to(CHAIN, TIERS, "p", {"a": 9, "b": 1}, consume=True, most=8) is None
    assert way_to(CHAIN, TIERS, "p", {"a": 1, "b": 1, "k": 1}, consume=True, most=8) == (("a", "b"), ("k", "k"))


def test_circles_and_unknown_parts_lead_nowhere():
    junk = {("a", "p"): "k", ("k", "k"): "p", ("a", "a"): "a", ("a", "b"): ""}
    level = levels(TIERS)
    assert ways_of(junk, level) == {"p": (("k", "k"),)}
    assert shortest_plan(ways_of(junk, level), level, {"p": 1}, {"a": 1, "b": 1}, consume=False) is None
