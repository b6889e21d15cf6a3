"""From packs to updates: packs are chosen, shared out among ranks, played, credited, and made into rows and shares of them.

A rollout that was played and is not trained on yet is kept by checkpoints.
"""

import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial, reduce
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import torch

from cod_lightning.contexts.base import Stored, beside
from cod_lightning.credit.credited import Credited
from cod_lightning.credit.table import EpisodeTable
from cod_lightning.errors import ConfigError
from cod_lightning.objective.batch import Batch, collate
from cod_lightning.ranks import gathered, owners, rank
from cod_lightning.rollout.group import run_group, run_groups
from cod_lightning.rollout.runner import Owed, RolloutPart, RolloutRunner
from cod_lightning.rollout.segments import segments_of
from cod_lightning.rollout.setting import Setting
from cod_lightning.rollout.stats import RolloutStats
from cod_lightning.seeds import derive_seed
from cod_lightning.training.packs import PackChoice, PackOutcomes, TrainingPacks
from cod_lightning.training.played import (
    PlayedPack,
    PlayedRollout,
    own_groups,
    restored,
    saved,
    table_of,
)
from cod_lightning.training.priority_buffer import PriorityBuffer
from cod_lightning.training.scorers import Played
from cod_lightning.training.stream import Rollout
from cod_lightning.types import Episode, Group, Pack

if TYPE_CHECKING:
    from cod_lightning.training.in_flight import RolloutsInFlight
    from cod_lightning.training.replay_buffer import ReplayBuffer


class Learner(Protocol):
    """What is trained: how it credits episodes, and whose log-probs its loss needs."""

    credited: Callable[[EpisodeTable], Credited]
    """Advantages of a rollout of all ranks."""
    compares_siblings: bool
    """Whether what its loss compares (`EpisodeTable.siblings`) has to be in one update."""

    def score(self, rows: Batch, played: Played, *, several_updates: bool) -> Batch:
        """The rows with the log-probs of other models, and, where several updates need them, of the weights as they are now; with a
        critic also with an advantage for each token."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainingRollouts:
    """The training rollouts of a run, one after another; everything that is settled before the run starts is a field.

    Of a checkpoint of a run that played ahead in another form, what it kept ahead is dropped and played again.
    """

    packs: TrainingPacks
    setting: Callable[[], Setting]
    """Environment, agent and program, with the engine's weights as they are now."""
    group_size: int
    """K, siblings of each pack."""
    runner: RolloutRunner
    learner: Callable[[], Learner]
    replay: "ReplayBuffer | None" = None
    """Episodes of earlier rollouts; None replays none."""
    num_ahead: Callable[[], float] | None = None
    """How many rollouts after the one that training takes now are to be begun by then, with a buffer how many are needed at all;
    None plays none ahead of training."""
    buffer: PriorityBuffer | None = None
    """Which of them is taken; None takes them in their order."""
    max_staleness: int = 0
    """Policy versions that a group in flight may be behind the weights which train on it."""
    in_order: bool = True
    """Whether rollouts take groups in flight in the order in which they began."""
    packs_per_rollout: int
    updates_per_rollout: int
    """Of one pass."""
    passes_per_rollout: int = 1
    shuffle_episodes: bool = False
    """Whether an update takes episodes of all packs, shuffled, with those that they are compared with; else whole packs."""
    resample_packs: int = 0
    seed: int = 0

    @cached_property
    def in_flight(self) -> "RolloutsInFlight":
        """Those ahead of training with an engine whose weights change meanwhile."""
        from cod_lightning.training.in_flight import RolloutsInFlight

        return RolloutsInFlight(rollouts=self)

    def next(self, number: int, first: int) -> Rollout:
        """Rollout `number`, from training pack `first` on: from groups to this rank's rows, and the updates that are made of them.

        Each of these updates is then `GRPOModule.training_step`.
        """
        played, num_packs, figures = self._next_played(number, first)
        table = table_of(played.packs)  # an entry for each episode, of all ranks
        credit = self.learner().credited(table)  # rewards -> returns -> advantages
        rows, shares = self._rows(played, table, credit), self._shares(number, credit)
        if self.replay is not None:
            rows, shares = self.replay.join(number, rows, credit, shares)
            figures |= self.replay.metrics
        self.runner.engine.sleep()  # what scores takes memory as training does
        own = {g: one.group for g, one in enumerate(played.packs) if one.group is not None}
        rows = self.learner().score(rows, Played(own, self.setting()), several_updates=len(shares) > 1)
        self._observe(played, credit)
        stats = reduce(RolloutStats.__add__, [part.stats for part in played.parts])
        figures |= {**credit.figures(), **stats.figures(self.runner.engine.in_flight), **self.packs.metrics()}
        self._begin_others(number, first + num_packs)
        return Rollout(batch=replace(rows, figures={**rows.figures, **figures}), shares=shares, num_packs=num_packs)

    def _rows(self, played: PlayedRollout, table: EpisodeTable, credit: Credited) -> Batch:
        """The token rows of this rank's episodes, each with its advantage."""
        index = {one.pack.id: g for g, one in enumerate(played.packs)}
        rows = collate(segments_of(own_groups(played.packs)), table, index, pad_id=self.setting().sampler.chat.pad_id)
        return replace(rows, advantages=credit.advantages[rows.episode], returns=credit.known_returns[rows.episode])

    def _next_played(self, number: int, first: int) -> tuple[PlayedRollout, int, dict[str, float]]:
        """A rollout that was played ahead, else one that is played now; with the training packs taken, those of dropped rollouts
        included, and what is logged of it."""
        dropped, played = self._taken(number, first)
        for part in chain.from_iterable(one.parts for one in (*dropped, *([played] if played else []))):
            self.runner.report("train", part)
        num_dropped, played_s = sum(one.num_packs for one in dropped), 0.0
        if played is None:
            played = self.played(first + num_dropped, partial(self.runner.run, "train"))
            played_s = sum(part.seconds for part in played.parts)
        figures = {} if self.buffer is None else {"train/dropped_rollouts": float(len(dropped))}
        if self.num_ahead is not None:
            figures["time/wait_s"] = max(gathered(self.runner.ahead.waited_s() + played_s))
            if self.flies:
                figures["rollout/num_overtaken_groups"] = float(self.in_flight.overtaken)
        return played, num_dropped + played.num_packs, figures

    def _begin_others(self, number: int, first: int) -> None:
        """Begin what is to be ahead of training after rollout `number`; `first` training packs were taken."""
        if self.num_ahead is None:
            return
        if self.flies:
            self.in_flight.begin(number, first)
        for number_ahead in self._to_begin(number, self.num_ahead()):
            self._begin(first, number_ahead * self.packs_per_rollout)
            if self.buffer is not None:
                self.buffer.begin(number, self.seed, first + number_ahead * self.packs_per_rollout)

    @property
    def flies(self) -> bool:
        """Whether groups ahead of training are begun and taken one by one; a buffer takes whole rollouts."""
        return self.runner.engine.in_flight and self.buffer is None

    def _taken(self, number: int, first: int) -> tuple[list[PlayedRollout], PlayedRollout | None]:
        """Rollouts ahead that are dropped, and the one that is trained on; None where none was begun."""
        if self.flies:
            taken = self.in_flight.take(number, first)
            return [], taken and PlayedRollout(packs=taken[0], parts=[taken[1]])
        self.runner.play_owed(self._played_again)
        with self.runner.interruptible():  # a signal ends the wait
            self.runner.ahead.settle(1 if self.buffer is None else self.buffer.num_eligible(number))
        if self.buffer is None:
            return [], self.runner.ahead.take()
        num_dropped, place = self.buffer.choose(number)
        dropped = [self.runner.ahead.take() for _ in range(num_dropped)]
        return dropped, None if place is None else self.runner.ahead.take(place)

    def _played_again(self, key: dict[str, Any]) -> PlayedRollout:
        """The rollout that was begun by this key (`_begin`)."""
        choices = [PackChoice(**choice) for choice in key["choices"]]
        drawn = [(choice, self.packs.pack(choice)) for choice in choices]
        return self.played(key["first"], partial(self.runner.timed, "train"), drawn)

    def _to_begin(self, number: int, most: float) -> range:
        """The places in the queue of the rollouts that begin now: until `most` are ahead, or as a buffer says."""
        waiting = len(self.runner.ahead)
        if self.buffer is None:
            return range(0) if self.flies else range(waiting, int(most))
        return range(waiting, waiting + self.buffer.num_to_begin(number, most))

    def _begin(self, first: int, num_waiting: int) -> None:
        """Begin the rollout from training pack `first + num_waiting` on; `num_waiting` packs before it are not observed yet.

        Its packs are chosen here and now, on all ranks at the same place in the order of observations.
        """
        try:
            with self.runner.phase("choosing training packs"):
                drawn = self.packs.draw(first + num_waiting, self.packs_per_rollout, num_waiting)
        except ConfigError as error:  # raised again where the rollout is taken
            self.runner.ahead.begin(partial(_raise, error))
        else:
            key = {"first": first + num_waiting, "choices": [asdict(choice) for choice, _ in drawn]}
            run = partial(self.runner.timed, "train")
            self.runner.ahead.begin(partial(self.played, first + num_waiting, run, drawn), key)

    def played(
        self,
        first: int,
        run: Callable[..., RolloutPart],
        drawn: Sequence[tuple[PackChoice, Pack]] = (),
    ) -> PlayedRollout:
        """The packs of a rollout, from training pack `first` on, the first of them `drawn` already or drawn now.

        `run` plays this rank's share of them: `RolloutRunner.run`, or, in a thread of its own, `timed`; observers, other ranks and
        signals then wait until the rollout is taken.

        Dynamic sampling (DAPO, arXiv 2503.14476): packs in which no sibling did better than another are replaced by as many
        further ones, in at most `resample_packs` rounds. What differs: the source goes on until the batch is full; here
        packs without signal fill what is missing after the last round, so that every update has as many packs.
        """
        kept: list[PlayedPack] = []
        without: list[PlayedPack] = []
        parts: list[RolloutPart] = []
        for number in range(1 + self.resample_packs):
            if number or not drawn:
                with self.runner.phase("choosing training packs"):
                    drawn = self.packs.draw(first + len(kept) + len(without), self.packs_per_rollout - len(kept))
            ranks = owners(
                len(drawn), 1 if number else self.updates_per_rollout
            )  # replacements are shared out as they come
            own = [pack for (_, pack), of in zip(drawn, ranks, strict=True) if of == rank()]
            parts.append(run(partial(self.play, own), replacing=number > 0))
            groups = iter(parts[-1].groups)
            packs = [
                PlayedPack(choice, pack, of, next(groups) if of == rank() else None)
                for (choice, pack), of in zip(drawn, ranks, strict=True)
            ]
            if not self.resample_packs:
                return PlayedRollout(packs=packs, parts=parts)
            signal = self.learner().credited(table_of(packs)).packs_with_signal.tolist()
            kept += [one for one, has in zip(packs, signal, strict=True) if has]
            without += [one for one, has in zip(packs, signal, strict=True) if not has]
            if len(kept) == self.packs_per_rollout:
                break
        packs = kept + without
        size = self.packs_per_rollout
        return PlayedRollout(packs=packs[:size], replaced=packs[size:], parts=parts)

    def play(self, packs: Sequence[Pack]) -> list[Group]:
        """Siblings of each pack, played by the engine, or as the source has them."""
        setting = self.setting()
        of = setting.sampler
        sizes = of.num_ids or of.chat.num_ids, of.window
        collected = self.packs.collected(packs, self.group_size, of.policy_version, *sizes)
        return run_groups(packs, self.group_size, setting, label="train") if collected is None else collected

    def play_group(self, pack: Pack) -> Coroutine[Any, Any, Group]:
        """The siblings of a pack, by an engine whose weights change while they are under way."""
        return run_group(pack, self.group_size, self.setting())

    def _observe(self, played: PlayedRollout, credit: Credited) -> None:
        """Every rank shows its source the rewards of all ranks."""
        if not self.packs.learns:
            return
        packs = [*played.packs, *played.replaced]
        self.packs.observe(
            PackOutcomes(
                choices=[one.choice for one in packs],
                credit=self.learner().credited(table_of(packs)) if played.replaced else credit,
                contexts=self._contexts(played) if self.packs.source.needs_contexts else (),
            )
        )

    def _contexts(self, played: PlayedRollout) -> Sequence[Sequence[Sequence[str | None]]]:
        """[P K N] what each task of all ranks' groups began with; every rank has to call it."""
        if played.contexts is not None:
            return played.contexts
        packs, stored = [*played.packs, *played.replaced], beside(self.setting().mechanism, Stored)

        def dumped(solve: Episode) -> str | None:
            return None if solve.reward is None else stored.dump(solve.state_before)

        own = [[list(map(dumped, life.solves)) for life in group.lifecycles] for group in own_groups(packs)]
        of_ranks = [iter(of_rank) for of_rank in gathered(own)]
        return [next(of_ranks[one.rank]) for one in packs]

    def _shares(self, number: int, credit: Credited) -> list[list[int]]:
        """The episodes of each update, by their entries: packs in order in the first pass, shuffled anew for each further one;
        or what is trained on, shuffled for every pass and dealt out as evenly as can be."""
        table, trained, shares = credit.table, credit.trained.tolist(), list[list[int]]()
        of = table.place[:, 0]
        if self.shuffle_episodes:
            of = table.siblings if self.learner().compares_siblings else torch.arange(len(table))
        units: dict[int, list[int]] = {} if self.shuffle_episodes else {g: [] for g in range(self.packs_per_rollout)}
        for entry, unit in enumerate(of.tolist()):
            if trained[entry] or not self.shuffle_episodes:
                units.setdefault(unit, []).append(entry)
        for done in range(self.passes_per_rollout):
            order = list(units.values())
            if done or self.shuffle_episodes:
                random.Random(derive_seed("pass", self.seed, number, done)).shuffle(order)
            cuts = [len(order) * update // self.updates_per_rollout for update in range(self.updates_per_rollout + 1)]
            shares += [list(chain.from_iterable(order[start:end])) for start, end in pairwise(cuts)]
        return shares

    def state_dict(self) -> dict[str, Any]:
        """The state of source and replay, and the rollouts ahead; every rank has to call it.

        All that were begun are waited for, except where weights change in flight, or after a signal.
        """
        replay = {} if self.replay is None else {"replay": self.replay.state_dict()}
        buffer = {} if self.buffer is None else {"buffer": self.buffer.state_dict()}
        kept = {"source": self.packs.state_dict(), **replay, **buffer}
        if self.flies:
            return kept | {"ahead": [], "in_flight": self.in_flight.state()}
        self.runner.settle()
        over, owed = self._kept(), self.runner.owed
        if owed is None or len(over) + len(owed.rollouts) < len(
            self.runner.ahead
        ):  # one that failed comes before those
            return kept | {"ahead": over}
        return kept | {"ahead": over, "owed": vars(owed)}

    def _kept(self) -> list[dict[str, Any]]:
        over = self.runner.ahead.over()
        kept: list[dict[str, Any]] = []
        for played in over[: min(gathered(len(over)))]:
            state = saved(played, self.runner.max_failed_fraction)
            if state is None:
                break
            kept.append(state)
            if self.packs.source.needs_contexts:
                state["contexts"] = self._contexts(played)
        return kept

    def forget(self) -> None:
        """The run is over, and no rollout of it waits for the next one in this process."""
        if self.buffer is not None:
            self.buffer.waiting.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.packs.load_state_dict(state_dict["source"])
        if self.replay is not None and "replay" in state_dict:
            self.replay.load_state_dict(state_dict["replay"])
        owed = Owed(**state_dict["owed"]) if "owed" in state_dict else None
        self.runner.restore([restored(state, self.packs.pack) for state in state_dict["ahead"]], owed)
        flying = state_dict.get("in_flight", [])
        if flying or "in_flight" in vars(self):
            self.in_flight.restore(flying)
        if self.buffer is not None and "buffer" in state_dict:
            self.buffer.load_state_dict(state_dict["buffer"])
            num_owed = 0 if owed is None else len(owed.rollouts)
            del self.buffer.waiting[len(self.runner.ahead) + num_owed :]


def _raise(error: Exception) -> None:
    raise error
