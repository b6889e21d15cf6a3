"""Which packs training plays: the contract of a source, today's order, and what checks a source's answers."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from msgspec import structs

from cod_lightning.credit.credited import Credited
from cod_lightning.engines.base import Completion
from cod_lightning.envs.base import TextEnv, Variants, beside
from cod_lightning.errors import BadCompletion, ConfigError, answering
from cod_lightning.markdown import visible
from cod_lightning.rewards.base import LARGEST
from cod_lightning.rollout.boundaries import check_completion
from cod_lightning.rollout.segments import count_drift, segments_of
from cod_lightning.rollout.transcript import see_kept
from cod_lightning.types import EpisodeKind, Group, Lifecycle, Pack, Split, Turn

_VISIT = "~"
"""Before the number of the visit, at the end of a pack's id."""


@dataclass(frozen=True, slots=True)
class PackChoice:
    """The identity of a training pack, within the run seed and the pack size."""

    index: int
    """From 0 on; the `index` of `TextEnv.sample_pack`."""
    category: str | None = None
    """One of `Variants.categories`; None: the environment draws one by its own weights."""
    num_tasks: int | None = None
    """Tasks of the pack, at most `data.pack_size`; None: `data.pack_size`."""
    max_turns: int | None = None
    """Turns after which each of its tasks is cut off; None: the environment's own bound alone."""
    visit: int = 0
    """0 the first time; else a number that sets this time apart from all others, in the pack's id and so in sampling noise."""
    instead: int | None = None
    """Index of the pack that is played in its place; None: its own."""
    begin: int = 0
    """The task that comes first; those before it follow at the end."""
    context: str | None = None
    """What its lifecycles begin with, as `ContextMechanism.dump` writes it; None: the empty context."""


@dataclass(frozen=True, kw_only=True)
class PackOutcomes:
    """What came of all P packs that a training rollout played, on all ranks; the same on every rank."""

    choices: Sequence[PackChoice]
    """[P], those that are trained on first, then those that were replaced for want of an advantage (`data.resample_packs`)."""
    credit: Credited
    """Rewards and advantages of these packs, by their place."""
    contexts: Sequence[Sequence[Sequence[str | None]]] = ()
    """[P K N] what each task began with, as `ContextMechanism.dump` writes it; None where it did not take place. Empty unless the
    source `needs_contexts`."""


class PackSource(ABC):
    """Chooses the packs of every training rollout. Validation and suites play packs of their own, which no source changes.

    The order of calls is `next`, `observe`, `next`, `observe`, ...: packs are chosen once the outcomes of all earlier rollouts are
    known, with `data.max_staleness` 1 too (there, rollout n+1 is chosen when training on rollout n begins). With k above 1 the
    outcomes of the k-1 rollouts before are not known yet: rollout n+k is chosen when training on rollout n begins. With
    `data.resample_packs` there is a further `next` for each round of replacements, and one `observe` for all of them.

    Every rank has a source of its own, which sees the same calls with the same values; all choose the same packs where
    randomness derives from identities (`derive_seed`). `next` changes nothing, since a run that is resumed may ask again for
    packs that the interrupted one had begun to play; the state changes in `observe` alone.
    """

    categories: Sequence[str] = ()
    """Of the environment; `start` sets them."""
    seed: int = 0
    """Of the run; `start` sets it."""
    sizes: Sequence[int] = ()
    """Tasks that a pack may have, beside `data.pack_size`."""
    compares: bool = False
    """Whether it learns nothing of a single lifecycle of each pack."""
    needs_contexts: bool = False
    """Whether `observe` is shown the contexts that were written."""
    num_waiting: int = 0
    """Packs before those that `next` is asked for whose outcomes are still to come."""

    def start(self, categories: Sequence[str], seed: int) -> None:
        """Called once, before anything else. Raises `ConfigError` for an environment that this source cannot choose from."""
        self.categories, self.seed = tuple(categories), seed

    def check(self, env: TextEnv, pack_size: int) -> None:
        """Raise `ConfigError` where the environment, or the size of its packs, lacks what this source needs; follows `start`."""

    @abstractmethod
    def next(self, first: int, count: int) -> Sequence[PackChoice]:
        """The next packs, `count` different ones; the run has played `first` training packs before.

        Those that replace others, or that are played beside others out of their order, differ from these, too.
        """

    def collected(self, packs: Sequence[Pack], num_siblings: int) -> Sequence[Group] | None:
        """Groups of these packs, in their order, that were collected elsewhere, such as by another process; None: the engine plays.

        Args:
            packs: This rank's share of the packs that `next` chose.
            num_siblings: K, lifecycles of each group.
        """
        return None

    def observe(self, outcomes: PackOutcomes) -> None:
        """Learn from a rollout that is over."""

    def metrics(self) -> Mapping[str, float]:
        """Figures of the state, logged with every update as `source/NAME`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What `observe` has changed, in plain containers; a part of every checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""


class Uniform(PackSource):
    """Packs 0, 1, 2, ... as the environment draws them: no pack twice, categories by the environment's own weights."""

    def next(self, first: int, count: int) -> Sequence[PackChoice]:
        """The `count` packs after the first `first`.

        >>> [choice.index for choice in Uniform().next(6, 2)]
        [6, 7]
        """
        return [PackChoice(index) for index in range(first, first + count)]


class TrainingPacks:
    """The packs that a source chooses and the environment draws.

    What a source raises or answers wrongly becomes a `ConfigError` that names `data.source`; the run ends, and its last checkpoint
    is as it was.
    """

    def __init__(self, source: PackSource, env: TextEnv, pack_size: int, seed: int) -> None:
        self.source, self.env, self.pack_size, self.seed = source, env, pack_size, seed
        self._parts: dict[str | None, TextEnv] = {None: env}
        """The environment of each category that was drawn."""
        source.start(beside(env, Variants).categories(), seed)
        source.check(env, pack_size)

    def draw(self, first: int, count: int, num_waiting: int = 0) -> list[tuple[PackChoice, Pack]]:
        """The next packs; the outcomes of `num_waiting` before them are still to come."""
        self.source.num_waiting = num_waiting
        with self._checked("next"):
            choices = list(self.source.next(first, count))
        if len(choices) != count:
            raise self._error(f"a source that names {count} packs where {count} are asked for, not {len(choices)}")
        with self._checked("next", "names packs that the environment can draw"):
            drawn = [(choice, self.pack(choice)) for choice in choices]
        self.see_different([pack for _, pack in drawn])
        return drawn

    def see_different(self, packs: Sequence[Pack]) -> None:
        """Raise `ConfigError` for two packs of a rollout with one id, by which rows find what their episodes are credited with."""
        if len({pack.id for pack in packs}) < len(packs):
            raise self._error("a source that names different packs for one rollout, of one index told apart by `visit`")

    def collected(self, packs: Sequence[Pack], num_siblings: int, num_ids: int, window: int) -> list[Group] | None:
        """The groups of these packs that the source has from elsewhere; None where the engine is to play them.

        Token ids are below `num_ids`, the size of the policy's vocabulary, and no row is longer than its `window`.
        """
        with self._checked("collected"):
            found = self.source.collected(packs, num_siblings)
            if found is None:
                return None
            names = [(group.pack.id, [life.sibling for life in group.lifecycles]) for group in found]
            if names != [(pack.id, list(range(num_siblings))) for pack in packs]:
                expected = f"a source whose `collected` gives {num_siblings} lifecycles of each pack, in their order"
                raise self._error(expected)
            for life in chain.from_iterable(group.lifecycles for group in found):
                if wrong := _damage(life, num_ids):
                    raise self._error(f"whole lifecycles; sibling {life.sibling} of {life.pack_id} has {wrong}")
            if (longest := max((len(row.token_ids) for row in segments_of(found)), default=0)) > window:
                most = f"model.policy.window={window:,}"
                raise self._error(f"rows of at most {most} tokens; the longest has {longest:,}")
            if drift := count_drift(found):
                raise self._error(f"turns that continue the ids of their prompts, and {drift:,} tokens do not")
        return [structs.replace(group, pack=pack) for group, pack in zip(found, packs, strict=True)]

    def observe(self, outcomes: PackOutcomes) -> None:
        """Show the source what came of a rollout."""
        with self._checked("observe"):
            self.source.observe(outcomes)

    def metrics(self) -> Mapping[str, float]:
        with self._checked("metrics"):
            return {f"source/{name}": float(value) for name, value in self.source.metrics().items()}

    @property
    def collects(self) -> bool:
        """Whether the source has groups from elsewhere."""
        return type(self.source).collected is not PackSource.collected

    @property
    def learns(self) -> bool:
        """Whether the source looks at outcomes."""
        return type(self.source).observe is not PackSource.observe

    def state_dict(self) -> dict[str, Any]:
        """The source's state, and of which class it is."""
        with self._checked("state_dict"):
            return {"class": type(self.source).__qualname__, "state": self.source.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there; another class of source, which the person has accepted as a change, begins anew."""
        if state_dict["class"] == type(self.source).__qualname__:
            with self._checked("load_state_dict"):
                self.source.load_state_dict(state_dict["state"])

    def pack(self, choice: PackChoice) -> Pack:
        """The pack that a choice names, the same whenever it is asked for."""
        if choice.category not in self._parts:
            self._parts[choice.category] = beside(self.env, Variants).of_category(str(choice.category))
        env, num_tasks = self._parts[choice.category], choice.num_tasks or self.pack_size
        index = choice.index if choice.instead is None else choice.instead
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=num_tasks, seed=self.seed)
        first, rest = pack.tasks[: choice.begin], pack.tasks[choice.begin :]
        tasks = (*rest, *(replace(task, repeat=True) for task in first))
        if choice.max_turns is not None:
            tasks = tuple(replace(task, max_turns=choice.max_turns) for task in tasks)
        name = f"{pack.id}+{choice.begin}" if choice.begin else pack.id
        name = f"{name}{_VISIT}{choice.visit}" if choice.visit else name
        return see_kept(replace(pack, id=name, tasks=tasks, context=choice.context))

    def _checked(self, method: str, expected: str = "") -> AbstractContextManager[None]:
        return answering(self._error, f"a source that {expected or f'answers `{method}`'}")

    def _error(self, expected: str) -> ConfigError:
        remedy = "Correct the source, or choose source=Uniform; the run goes on with --ckpt_path auto."
        return ConfigError("data.source", type(self.source).__name__, expected, remedy)


def _damage(life: Lifecycle, num_ids: int) -> str:
    """What a lifecycle from elsewhere has that no rollout gives it, such as ids of another vocabulary; empty: nothing."""
    solved = sorted(one.position for one in life.solves)
    written = {one.position for one in life.own if one.kind is EpisodeKind.WRITE}
    updated = {one.position for one in life.updates}
    begins = solved or life.failed  # a program may end where a text that it asks for has failed
    if not begins or solved != list(range(len(solved))) or updated - {*solved} or written - {*solved, len(solved)}:
        return "episodes of which some belong to no solve episode"
    own = life.own
    begun = {(e, one.kind, one.position) for e, one in enumerate(own) if one.kind is EpisodeKind.SOLVE}
    attempted = {(one.parent, one.kind, one.position) for one in life.attempts}
    if attempted - begun or life.episodes != own + life.attempts:
        return "attempts beside no solve episode, or in front of one"
    for one in life.episodes:
        if not all(abs(value) <= LARGEST for value in (one.reward or 0.0, *one.parts.values())):
            return f"a reward, or a part of one, that is not finite or above {LARGEST:g}"
        if not all(0 <= e < len(own) and abs(weight) <= LARGEST for e, weight in one.weights or ()):
            return f"a weight of an episode that it lacks, or one that is not finite or above {LARGEST:g}"
        if wrong := [name for name in (*one.parts, one.fault) if not re.fullmatch(r"[\w.-]*", name, re.ASCII)]:
            return f"{visible(wrong[0]):.80} as the name of a part or a fault"
        for turn in one.turns:
            if wrong := _damage_of_turn(turn, num_ids):
                return wrong
    return ""


def _damage_of_turn(turn: Turn, num_ids: int) -> str:
    if wrong := [i for i in turn.new_ids if not 0 <= i < num_ids]:
        return f"token id {wrong[0]}, outside the vocabulary of {num_ids:,}"
    if not -1 <= turn.policy_version < 2**63:
        return "a policy version below -1, or beyond 64 bits"
    sampled = Completion(**{name: getattr(turn, name) for name in Completion.__struct_fields__})
    try:
        if turn.action_ids:
            check_completion(sampled, max_new_tokens=None, num_ids=num_ids, prompt_digest=turn.prompt_digest)
    except BadCompletion as error:
        return str(error)
    return ""


def without_visit(pack_id: str) -> str:
    """What is the same in the ids of a pack whenever it is played: its tasks, in their order.

    >>> without_visit("levers/train/1/7~33"), without_visit("levers/train/1/7")
    ('levers/train/1/7', 'levers/train/1/7')
    """
    return re.sub(rf"{_VISIT}\d+$", "", pack_id)
