"""Training rollouts out of groups in flight: which groups an update takes, which begin, and what of them a checkpoint keeps."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from msgspec import structs

from cod_lightning.errors import TooManyFailures
from cod_lightning.ranks import gathered, num_ranks, rank
from cod_lightning.rollout import transcript
from cod_lightning.rollout.in_flight import GroupInFlight, GroupsInFlight
from cod_lightning.rollout.runner import RolloutPart, RolloutRunner
from cod_lightning.rollout.stats import stop_if_too_many
from cod_lightning.training.packs import PackChoice, TrainingPacks
from cod_lightning.training.shares import owners
from cod_lightning.types import Group, Pack

Taken = tuple[PackChoice, Pack, int, Group | None]
"""A choice, its pack, the rank that played it, and the group; None on the other ranks."""


@dataclass(kw_only=True)
class RolloutsInFlight:
    """The groups of `data.max_staleness` rollouts are under way at a time; each rank plays and takes its own share of them.

    Source: PipelineRL (arXiv 2509.19128) and AReaL (arXiv 2505.24298), whose trainers take what is complete, within a bound of the
    staleness. What differs: a group is complete once all its lifecycles are.
    """

    packs: TrainingPacks
    play: Callable[[Pack], Coroutine[Any, Any, Group]] | None
    runner: RolloutRunner
    num_ahead: Callable[[], float] | None
    packs_per_rollout: int
    updates_per_rollout: int
    bound: int
    """Policy versions that a group may be behind the weights which train on it."""
    in_order: bool
    """Whether rollouts take groups in the order in which they began."""
    overtaken: int = 0
    """Groups of all ranks that began before one of the latest rollout, and are still under way."""
    _groups: GroupsInFlight | None = None
    _counted: tuple[int, int, int] = (0, 0, 0)
    _restored: list[dict[str, Any]] = field(default_factory=list)

    @property
    def groups(self) -> GroupsInFlight:
        """Those under way; the runner's from the first use on, when the engine is known to take weights meanwhile."""
        if self._groups is None:
            watched = partial(self.runner.watched, "the rollouts in flight")
            self.runner.ahead = self._groups = GroupsInFlight(self.runner.liveness, watched)
        return self._groups

    @property
    def num_own(self) -> int:
        """Groups of a rollout that are this rank's."""
        return self.packs_per_rollout // num_ranks()

    def take(self, number: int, first: int) -> tuple[list[Taken], RolloutPart] | None:
        """Rollout `number`, from training pack `first` on; None where no group was begun before. Every rank has to call it."""
        for kept in self._restored:
            self._again(kept)
        self._restored.clear()
        if not self.groups.begun:
            return None
        if len(self.groups.begun) < self.num_own:
            self._draw(number, first)
        with self.runner.interruptible():
            taken = self.groups.complete(self.num_own, number, self.bound, in_order=self.in_order)
        self.groups.take_groups(taken)
        self.overtaken = sum(gathered(sum(one.place < taken[-1].place for one in self.groups.begun)))
        return self._of_all_ranks(taken), self._part(taken)

    def _of_all_ranks(self, taken: Sequence[GroupInFlight]) -> list[Taken]:
        """In the order of updates, and of the ranks in each."""
        of_ranks = [iter(of_rank) for of_rank in gathered([one.key for one in taken])]
        groups = iter([one.future.result()[0] for one in taken])
        found: list[Taken] = []
        for r in owners(self.packs_per_rollout, self.updates_per_rollout):
            choice = next(of_ranks[r])
            group = next(groups) if r == rank() else None
            found.append((choice, self.packs.pack(choice) if group is None else group.pack, r, group))
        return found

    def _part(self, taken: Sequence[GroupInFlight]) -> RolloutPart:
        played, engine = [one.future.result() for one in taken], self.runner.engine
        before = self._counted
        self._counted = (engine.num_prompt_tokens, engine.num_cached_tokens, engine.num_interrupted_turns)
        prompts, cached, cut = (now - then for now, then in zip(self._counted, before, strict=True))
        return RolloutPart(
            groups=[group for group, _ in played],
            seconds=max(seconds for _, seconds in played),
            replacing=False,
            num_prompt_tokens=prompts,
            num_cached_tokens=cached,
            num_interrupted_turns=cut,
        )

    def begin(self, number: int, first: int) -> None:
        """Begin what training may take after rollout `number`; `first` training packs were taken."""
        assert self.num_ahead is not None, "rollouts ahead of training"
        while len(self.groups.begun) < self.num_ahead() * self.num_own:
            self._draw(number, first)

    def _draw(self, number: int, first: int) -> None:
        """Begin the groups of one more rollout."""
        waiting = len(self.groups.begun) * num_ranks()
        with self.runner.phase("choosing training packs"):
            drawn = self.packs.draw(first + waiting, self.packs_per_rollout, waiting)
        for (choice, pack), of in zip(drawn, owners(len(drawn), self.updates_per_rollout), strict=True):
            if of == rank():
                self._begin(choice, pack, number)

    def _begin(self, choice: PackChoice, pack: Pack, number: int) -> None:
        assert self.play is not None, "an engine whose weights change in flight"
        self.groups.begin_group(choice, number, partial(self.play, pack))

    def state(self) -> list[dict[str, Any]]:
        """The groups in flight of all ranks, those that are complete with their lifecycles; every rank has to call it."""
        own = [*self._restored, *([] if self._groups is None else map(self._saved, self._groups.begun))]
        return [kept for of_ranks in zip(*gathered(own), strict=True) for kept in of_ranks]

    def _saved(self, one: GroupInFlight) -> dict[str, Any]:
        kept: dict[str, Any] = {"choice": asdict(one.key), "rollout": one.rollout, "lines": None, "seconds": 0.0}
        if one.future.done() and not one.future.exception() and not self.packs.source.needs_contexts:
            group, kept["seconds"] = one.future.result()
            try:
                stop_if_too_many("train", [group], self.runner.max_failed_fraction)
            except TooManyFailures:  # the run that goes on plays it again, as one that is under way
                return kept
            kept["lines"] = transcript.dump(group)
        return kept

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Have these groups in flight again: those that were complete, and, once the engine serves, those that were not."""
        self._restored = state[rank() :: num_ranks()]

    def _again(self, kept: dict[str, Any]) -> None:
        choice = PackChoice(**kept["choice"])
        pack = self.packs.pack(choice)
        if kept["lines"] is None:
            self._begin(choice, pack, kept["rollout"])
            return
        (group,) = transcript.load(kept["lines"])
        self.groups.put_group(choice, kept["rollout"], (structs.replace(group, pack=pack), kept["seconds"]))
