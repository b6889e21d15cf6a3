"""What a world hides in each split: how many different rules, and what a player without memory could learn of them in training."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cod_lightning.envs.alchemy.graph import book_of, pair_of
from cod_lightning.envs.apps.facts import CHOICES
from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.doors.wording import KEYS
from cod_lightning.envs.textworld import houses
from cod_lightning.envs.ways import apps, terminal
from cod_lightning.types import Pack, Split

HIDDEN = {
    "LeverTask": ("colours",), "ForbiddenTask": ("colours",), "DoorTask": ("keys",), "LakeTask": ("mapping",),
    "AlchemyTask": ("recipes",), "GridTask": ("costs",), "PDETask": ("terms", "coefficients"), "ControlTask": ("a", "b"),
    "ClinicTask": ("required",), "TerminalTask": ("site",), "AppsTask": ("facts",), "InventedTask": ("rule",),
}  # fmt: skip
"""Fields that all tasks of a pack have in common and hide, by the class of a task's spec."""
UNNAMED: dict[str, Callable[[Any], Hashable]] = {
    "AlchemyTask": lambda spec: _numbered(spec),
    "TerminalTask": lambda spec: _unnamed(spec.site.quirks),
    "HouseSpec": lambda spec: (houses.map_text(spec), houses.places_text(spec)),
}
"""The same where names are drawn for each pack, without them."""


class Tries(NamedTuple):
    """A task as a game of guesses: what shows at first, the guesses, and what each would show; None: it is right."""

    shown: Hashable
    guesses: Sequence[str]
    answers: dict[str, str | None]
    wins: int
    """Right guesses that solve the task."""
    misses: int
    """Wrong guesses that end it."""


def rule_of(pack: Pack) -> Hashable:
    """What the pack hides."""
    spec = pack.tasks[0].spec
    spec = getattr(spec, "house", spec)
    kind = type(spec).__name__
    return UNNAMED[kind](spec) if kind in UNNAMED else tuple(getattr(spec, name) for name in HIDDEN[kind])


def num_rules(world: TextEnv, split: Split, num_packs: int = 512) -> int:
    """Different rules in the first packs of the split."""
    return len({rule_of(world.sample_pack(split=split, index=i, num_tasks=1)) for i in range(num_packs)})


def _unnamed(quirks: Any) -> Hashable:
    """Without the account and the folder, whose names come from the site's own."""
    return replace(quirks, login=str(bool(quirks.login)), place=quirks.place.partition(" ")[0])


def _numbered(spec: Any) -> Hashable:
    number = {name: n for n, name in enumerate(name for names in spec.tiers for name in names)}
    return tuple(map(len, spec.tiers)), frozenset(
        (*sorted((number[a], number[b])), number[c]) for a, b, c in spec.recipes
    )


# ---------------------------------------------------------------------- the best player without memory


def _levers(spec: Any, misses: int) -> Tries:
    codes = [str(code) for code in range(1, 5)]
    answers = {code: None if colour == spec.goal else colour for code, colour in zip(codes, spec.colours, strict=True)}
    return Tries(spec.goal, codes, answers, 1, misses)


def _doors(spec: Any, misses: int) -> Tries:
    return Tries(spec.door, KEYS, {key: None if key == spec.keys[spec.door - 1] else "no" for key in KEYS}, 1, misses)


def _alchemy(spec: Any, misses: int) -> Tries:
    base = spec.tiers[0]
    pairs = {f"{a}+{b}": book_of(spec.recipes).get(pair_of(a, b), "") for a in base for b in base if a <= b}
    answers = {pair: None if made == spec.target else made for pair, made in pairs.items()}
    return Tries(spec.target, list(pairs), answers, 1, misses)


def _terminal(spec: Any, misses: int) -> Tries:
    (slot,) = terminal.GOALS[spec.type]
    ways, right = terminal.WAYS[slot], terminal.ways_of(spec.site)[slot]
    return Tries(spec.type, ways, {way: None if way == right else "no" for way in ways}, 1, misses)


def _apps(spec: Any, misses: int) -> Tries:
    slots = apps.GOALS[spec.template]
    answers = {v: None if v == getattr(spec.facts, s) else "no" for s in slots for v in CHOICES[s]}
    return Tries(spec.template, list(answers), answers, len(slots), misses)


TRIES: dict[str, tuple[Callable[[Any, int], Tries], int]] = {
    "levers": (_levers, 2),
    "doors": (_doors, 2),
    "alchemy_compact": (_alchemy, 3),
    "terminal_compact": (_terminal, 2),
    "apps_compact": (_apps, 2),
}
"""Shipped worlds whose tasks are guesses, with the wrong ones that end a task."""


def games(world: TextEnv, name: str, split: Split, indices: Iterable[int]) -> list[Tries]:
    """Tasks of packs of four as guesses."""
    made, misses = TRIES[name]
    packs = (world.sample_pack(split=split, index=i, num_tasks=4) for i in indices)
    return [made(task.spec, misses) for pack in packs for task in pack.tasks]


def memoryless_success(learnt: Sequence[Tries], played: Sequence[Tries]) -> float:
    """Share of the tasks played that the player solves who is best at those it learnt from, going by what the task itself shows."""
    by_shown: dict[Hashable, tuple[list[Tries], list[Tries]]] = defaultdict(lambda: ([], []))
    for which, tasks in enumerate((learnt, played)):
        for task in tasks:
            by_shown[task.shown][which].append(task)
    return sum(_best(mine, theirs, (), 0, 0)[1] for mine, theirs in by_shown.values()) / len(played)


def _best(learnt: list[Tries], played: list[Tries], said: tuple[str, ...], wins: int, misses: int) -> tuple[int, int]:
    """Tasks solved of those learnt from and of those played, from here on: the next guess is the best one for the former."""
    if not learnt:
        return 0, 0
    like = learnt[0]
    if wins == like.wins:
        return len(learnt), len(played)
    if misses == like.misses:
        return 0, 0
    best = (-1, 0)
    for guess in (guess for guess in like.guesses if guess not in said):
        split: dict[str | None, tuple[list[Tries], list[Tries]]] = defaultdict(lambda: ([], []))
        for which, tasks in enumerate((learnt, played)):
            for task in tasks:
                split[task.answers[guess]][which].append(task)
        found = [
            _best(mine, theirs, (*said, guess), wins + (shown is None), misses + (shown is not None))
            for shown, (mine, theirs) in split.items()
        ]
        best = max(best, (sum(one for one, _ in found), sum(two for _, two in found)), key=lambda pair: pair[0])
    return best


def memoryless_gap(world: TextEnv, name: str, num_packs: int) -> tuple[float, float]:
    """The best player without memory on training packs: its success on further training packs, and on test packs."""
    learnt = games(world, name, Split.TRAIN, range(num_packs))
    fresh = games(world, name, Split.TRAIN, range(num_packs, 2 * num_packs))
    tests = games(world, name, Split.TEST, range(num_packs))
    return memoryless_success(learnt, fresh), memoryless_success(learnt, tests)


def commonest(world: TextEnv, split: Split, num_packs: int = 512) -> float:
    """Share of the packs that have the most frequent rule."""
    counts = Counter(rule_of(world.sample_pack(split=split, index=i, num_tasks=1)) for i in range(num_packs))
    return max(counts.values()) / num_packs
