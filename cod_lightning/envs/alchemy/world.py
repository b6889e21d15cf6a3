"""Alchemy-Random: a hidden graph of recipes, the same for a whole pack; each task asks for another of its elements.

A note of which pairs gave what, and which gave nothing, lets a policy make later targets without searching. Source of the world:
arXiv 2606.20002. Differences: targets come again only after all were asked for, and do not depend on the pack's length; with
limited materials every target can be made, as its plan with every copy of every intermediate is what the stock is counted
by; a task ends when its target can no longer be made; splits are disjoint by construction; crossing recipes really occur.
"""

from typing import Literal

from cod_lightning.envs.alchemy.compact import CompactAlchemy
from cod_lightning.envs.alchemy.graph import GraphRanges, book_of, fits_symbols, levels, slots_of, way_to
from cod_lightning.envs.alchemy.natural import NaturalAlchemy
from cod_lightning.envs.alchemy.notes import Facts
from cod_lightning.envs.alchemy.plan import Pair, pair_of
from cod_lightning.envs.alchemy.policies import AlchemyPlay
from cod_lightning.envs.alchemy.tasks import AlchemyTask, Drawing
from cod_lightning.envs.alchemy.wording import AlchemyView, AlchemyWording, Combination
from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Stepped
from cod_lightning.envs.checks import check_choice, check_share, check_span, check_turns, check_unused
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split, Task


class Alchemy(TaskWorld[AlchemyTask]):
    """Make a target by combining elements two by two; which pairs are recipes is hidden and shared by a pack.

    Defaults are close to the paper's easy setting, with more elements (a higher shrink factor) and crossing recipes.

    Args:
        tiers_min: Fewest tiers, the base elements' included, 2 to 5 (with limited materials 2 to 4).
        tiers_max: Most tiers.
        base_min: Fewest base elements, 2 to 8.
        base_max: Most base elements.
        shrink_min: Smallest size of a tier relative to the one below.
        shrink_max: Largest size of a tier relative to the one below, at most 2.
        recipes_min: Fewest recipes of an element above tier 0, 1 to 3; decoys have one.
        recipes_max: Most recipes of an element.
        max_tier_gap: How far the lower input may lie below the result; 1 means that recipes never cross tiers.
        cross_tier_min: Smallest probability that a recipe crosses tiers.
        cross_tier_max: Largest probability that a recipe crosses tiers.
        noise_min: Smallest number of decoys per element of a tier in the first round of drawing them.
        noise_max: Largest such number.
        noise_chain_depth: Rounds of decoys, each with half as many as the one before; they may build on one another.
        max_turns: Rounds per task. Elements that need more are never asked for.
        materials: Whether an attempt uses up one copy of each input (limited) or nothing (unlimited).
        multiplier_min: Smallest stock of a base element relative to the least that will do, with limited materials.
        multiplier_max: Largest such stock.
        end_when_dead: Whether a task ends as soon as the target cannot be made from what is left; else only when no pair is
            left, as in the paper.
        brute_force: Whether elements may be asked for that trying every pair of base elements must find in time.
        show_tiers: Whether the system text lists all elements by tier, decoys among them, and a task names its target's tier.
        length_penalty: A success with t turns is worth 1 - length_penalty * t / max_turns.
        lenient: Whether a task's first malformed answer only costs its turn.
        labels: Whether the noun and the order of listing are the same for all packs (fixed) or drawn (random); names are
            drawn for each pack in any case, except in compact words.
        protocol: Sentences for language models (natural) or fused words for tiny policies (compact), which need fixed sizes,
            no decoys, unlimited materials and fixed labels.
        teacher: How good the demonstrations of the warm start are.
    """

    task_type = AlchemyTask

    def __init__(
        self,
        tiers_min: int = 3,
        tiers_max: int = 4,
        base_min: int = 3,
        base_max: int = 4,
        shrink_min: float = 0.7,
        shrink_max: float = 1.0,
        recipes_min: int = 1,
        recipes_max: int = 1,
        max_tier_gap: int = 2,
        cross_tier_min: float = 0.0,
        cross_tier_max: float = 0.3,
        noise_min: float = 0.0,
        noise_max: float = 0.0,
        noise_chain_depth: int = 2,
        max_turns: int = 8,
        materials: Literal["unlimited", "limited"] = "unlimited",
        multiplier_min: float = 1.5,
        multiplier_max: float = 2.0,
        end_when_dead: bool = True,
        brute_force: bool = False,
        show_tiers: bool = True,
        length_penalty: float = 0.1,
        lenient: bool = False,
        labels: Literal["fixed", "random"] = "fixed",
        protocol: Literal["natural", "compact"] = "natural",
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        self.ranges = GraphRanges(
            tiers=(tiers_min, tiers_max),
            base=(base_min, base_max),
            shrink=(shrink_min, shrink_max),
            recipes=(recipes_min, recipes_max),
            max_tier_gap=max_tier_gap,
            cross_tier=(cross_tier_min, cross_tier_max),
            noise=(noise_min, noise_max),
            noise_chain_depth=noise_chain_depth,
        )
        self.max_turns, self.limited = max_turns, materials == "limited"
        self.multiplier, self.end_when_dead = (multiplier_min, multiplier_max), end_when_dead
        self.show_tiers, self.length_penalty = show_tiers, length_penalty
        self.lenient, self.labels, self.teacher, self.protocol = lenient, labels, teacher, protocol
        check_choice("data.env.materials", materials, ("unlimited", "limited"))
        self._check()
        single = self.ranges.recipes == (1, 1)
        self.wording: AlchemyWording = NaturalAlchemy(max_turns, self.limited, single, max_tier_gap, length_penalty)
        if protocol == "compact":
            sizes = self._fixed_sizes()
            self.wording = CompactAlchemy(sizes, max_tier_gap, cross_tier_max > 0, recipes_max == 1, max_turns)
        self.drawing = Drawing(
            ranges=self.ranges,
            max_turns=max_turns,
            limited=self.limited,
            multiplier=self.multiplier,
            brute_force=brute_force,
            random_labels=labels == "random",
            symbols=protocol == "compact",
        )
        self.name = self.drawing.name
        self._start(_EXAMPLE)

    @property
    def rules(self) -> str:
        return self.wording.rules(self._task.tiers if self.show_tiers else (), self._task.noun)

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """A graph of the split, and a target (with limited materials also a stock) for every task."""
        world_seed = derive_seed("alchemy pack", self.drawing.structure, str(split), seed, index)
        specs = self.drawing.draw(world_seed, split, num_tasks)
        tasks = tuple(
            Task(id=str(n), seed=derive_seed(world_seed, "task", n), spec=spec, repeat=spec.repeat)
            for n, spec in enumerate(specs)
        )
        return Pack(id=f"{self.name}/{split}/{seed}/{index}", split=split, world_seed=world_seed, tasks=tasks)

    def _drawn(self, seed: int) -> AlchemyTask:
        return self.drawing.draw(seed, None, 1)[0]

    def _observed(self) -> str:
        return self.wording.observation(self._view())

    def step(self, action: str) -> Stepped:
        assert not self._outcome, "the task is over; call reset()"
        names, complaint = _names_in(action)
        if complaint and (not self.lenient or self._warned):
            return self._end("malformed", complaint)
        self._turn += 1
        if complaint:
            self._warned, self._last = True, Combination(pair=("", ""), unread=complaint)
        else:
            self._last = self._combined(*names)
        if self._have.get(self._task.target):
            return self._end("win")
        if self._is_dead():
            return self._end("dead")
        if self._turn == self.max_turns:
            return self._end("late")
        return self._observed(), 0.0, False, False, {}

    def render(self) -> str:
        have = " ".join(f"{name}:{count}" for name, count in self._have.items())
        tried = " ".join(f"{a}+{b}={result or 0}" for (a, b), result in self._tried)
        return f"round {self._turn} of {self.max_turns}, target {self._task.target} | {have} | {tried}"

    def _start(self, task: AlchemyTask) -> None:
        self._task, self._outcome, self._turn, self._warned = task, "", 0, False
        self._have = dict.fromkeys(task.tiers[0], task.stock or 1)
        self._last: Combination | None = None
        self._tried: tuple[tuple[Pair, str], ...] = ()

    def _combined(self, first: str, second: str) -> Combination:
        """Combine two named elements if they are at hand."""
        pair = pair_of(first, second)
        for name in (first, second):
            if self._have.get(name, 0) < (2 if self.limited and first == second else 1):
                return Combination(pair=("", ""), lacking=name[:40])
        result = book_of(self._task.recipes).get(pair, "")
        if self.limited:
            for name in pair:
                self._have[name] -= 1
        if result:
            self._have[result] = self._have.get(result, 0) + 1 if self.limited else 1
        self._tried = (*self._tried, (pair, result))
        return Combination(pair=pair, result=result)

    def _is_dead(self) -> bool:
        if not self.limited:
            return False
        if sum(self._have.values()) < 2:
            return True
        task = self._task
        plan = way_to(task.recipes, task.tiers, task.target, self._have, consume=True, most=self.max_turns)
        return self.end_when_dead and plan is None

    def _view(self) -> AlchemyView:
        task = self._task
        return AlchemyView(
            target=task.target,
            tier=levels(task.tiers)[task.target] if self.show_tiers else None,
            at_hand=tuple(self._have.items()),
            num_base=len(task.tiers[0]),
            turn=self._turn,
            last=self._last,
            tried=self._tried,
        )

    def _end(self, outcome: str, complaint: str = "") -> Stepped:
        self._outcome = outcome
        reward = 1 - self.length_penalty * self._turn / self.max_turns if outcome == "win" else 0.0
        return self._ended(self.wording.feedback(outcome, self._view(), complaint), max(0.0, reward))

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Other recipes among the same elements from task `at` on; targets stay, and stocks wherever they suffice."""
        change, old = derive_seed("alchemy change", pack.id, seed), [self._spec(task) for task in pack.tasks[at:]]
        return self._with_specs(pack, at, self.drawing.redraw(change, pack.split, old))

    def _play(self, pack: Pack, *, teaches: bool = False) -> tuple[AlchemyPlay, Facts]:
        """Recipes; in compact words, where a note has a word for every pair, also the failures."""
        task = self._spec(pack.tasks[0])
        play, truth = AlchemyPlay(self.wording, levels(task.tiers)), book_of(task.recipes)
        if self.protocol == "natural":
            return play, truth
        slots = slots_of(task.tiers, self.ranges.max_tier_gap, self.ranges.cross_tier[1] > 0)
        return play, {**dict.fromkeys(slots, ""), **truth}

    def _fixed_sizes(self) -> tuple[int, ...]:
        ranges = self.ranges
        spans = {"tiers": ranges.tiers, "base": ranges.base, "shrink": ranges.shrink}
        for key, (low, high) in spans.items():
            if low != high:
                expected = f"{key}_min ({low}), since compact notes have a fixed shape"
                raise ConfigError(f"data.env.{key}_max", high, expected, "Use one value.")
        for key, value, wanted in (
            ("noise_max", ranges.noise[1], 0),
            ("materials", "limited" if self.limited else "unlimited", "unlimited"),
            ("labels", self.labels, "fixed"),
            ("show_tiers", self.show_tiers, True),
        ):
            if value != wanted:
                remedy = "Change it, or data.env.protocol to natural."
                raise ConfigError(f"data.env.{key}", value, f"{wanted} in compact words", remedy)
        sizes = ranges.sizes(ranges.tiers[0], ranges.base[0], ranges.shrink[0])
        if not fits_symbols(sizes):
            expected = "at most 4, 4, 3 and 3 elements above"
            raise ConfigError("data.env.shrink_max", ranges.shrink[1], expected, "Lower it.")
        return sizes

    def _check(self) -> None:
        check_turns(self.max_turns, "8 is the reference's easy setting, 15 its hard one.")
        check_share("data.env.length_penalty", self.length_penalty, "0.1 is the reference's.")
        check_choice("data.env.labels", self.labels, ("fixed", "random"))
        check_choice("data.env.protocol", self.protocol, ("natural", "compact"))
        ranges = self.ranges
        for key, (low, high), least, most in (
            ("tiers", ranges.tiers, 2, 4 if self.limited else 5),
            ("base", ranges.base, 2, 8),
            ("shrink", ranges.shrink, 0.1, 2.0),
            ("recipes", ranges.recipes, 1, 3),
            ("cross_tier", ranges.cross_tier, 0.0, 1.0),
            ("noise", ranges.noise, 0.0, 1.0),
            ("multiplier", self.multiplier, 1.0, 10.0),
        ):
            check_span(f"{key}_min", low, f"{key}_max", high, least, most, "Leave both out.")
        for key, value in (("max_tier_gap", ranges.max_tier_gap), ("noise_chain_depth", ranges.noise_chain_depth)):
            if not 1 <= value <= 5:
                raise ConfigError(f"data.env.{key}", value, "1 to 5", "2 is the default.")
        if not self.limited:
            multiplier = {"multiplier_min": self.multiplier[0], "multiplier_max": self.multiplier[1]}
            check_unused(Alchemy, "with materials=unlimited", **multiplier, end_when_dead=self.end_when_dead)


_EXAMPLE = AlchemyTask(
    tiers=(("a", "b"), ("k",)), decoys=(), recipes=(("a", "b", "k"),), target="k", repeat=False, stock=0
)


def _names_in(response: str) -> tuple[tuple[str, str], str]:
    """((first, second), "") in small letters, or (("", ""), which rule was broken).

    >>> _names_in("<answer>Abc + def</answer>")
    (('abc', 'def'), '')
    >>> _names_in("<answer>abc</answer>")
    (('', ''), 'the answer is not two names joined by one +')
    """
    answer, complaint = answer_of(response)
    if complaint:
        return ("", ""), complaint
    names = [part.strip().lower() for part in answer.split("+", 2)]
    if len(names) != 2 or not all(names):
        return ("", ""), "the answer is not two names joined by one +"
    return (names[0], names[1]), ""
