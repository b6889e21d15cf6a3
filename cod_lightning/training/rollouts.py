"""From packs to updates: packs are chosen, shared out among ranks, played, credited, and made into rows and shares of them.

A rollout that was played and is not trained on yet is kept by checkpoints.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import torch

from cod_lightning.contexts.base import Stored, beside
from cod_lightning.credit.credited import Credit, Credited
from cod_lightning.objective.batch import Batch, collate
from cod_lightning.ranks import gathered, owners, rank
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.runner import RolloutPart, RolloutRunner
from cod_lightning.rollout.segments import segments_of
from cod_lightning.rollout.setting import Setting
from cod_lightning.rollout.stats import RolloutStats
from cod_lightning.seeds import derive_seed
from cod_lightning.training.ahead import RolloutBuffer, RolloutsAhead
from cod_lightning.training.packs import PackOutcomes, TrainingPacks
from cod_lightning.training.played import Contexts, PlayedPack, PlayedRollout, own_groups, table_of
from cod_lightning.training.scorers import Played
from cod_lightning.training.stream import Rollout
from cod_lightning.types import Episode, Group, Pack

if TYPE_CHECKING:
    from cod_lightning.training.replay_buffer import ReplayBuffer


Score = Callable[[Batch, Played, int], Batch]
"""The rows of a rollout with what their loss needs beside advantages, for so many updates: log-probs of other models, and with a
critic an advantage for each token."""


@dataclass(frozen=True, kw_only=True)
class TrainingRollouts:
    """The training rollouts of a run, one after another; everything that is settled before the run starts is a field."""

    packs: TrainingPacks
    setting: Callable[[], Setting]
    """Environment, agent and program, with the engine's weights as they are now."""
    group_size: int
    """K, siblings of each pack."""
    runner: RolloutRunner
    replay: "ReplayBuffer | None" = None
    """Episodes of earlier rollouts; None replays none."""
    max_staleness: int = 0
    """Policy versions that a group in flight may be behind the weights which train on it; without a buffer also rollouts ahead."""
    num_needed: Callable[[], float] = lambda: math.inf
    """How many rollouts the run needs after the one that training takes now."""
    buffer: RolloutBuffer | None = None
    """Which of those ahead is taken, or dropped as too old; None takes them in their order."""
    in_order: bool = True
    """Whether rollouts take groups in flight in the order in which they began."""
    packs_per_rollout: int
    updates_per_rollout: int
    """Of one pass."""
    passes_per_rollout: int = 1
    shuffle_episodes: bool | int = False
    """Whether an update takes episodes of all packs, shuffled, with those that they are compared with; else whole packs. A number
    above 1: so many, where these make `updates_per_rollout` of a pass."""
    resample_packs: int = 0
    seed: int = 0

    @property
    def num_shares(self) -> int:
        """Parts of a rollout that ranks play evenly: the packs of each update, or all, where updates take episodes of all."""
        return 1 if self.shuffle_episodes else self.updates_per_rollout

    @cached_property
    def ahead(self) -> RolloutsAhead:
        return RolloutsAhead(rollouts=self)

    def next(self, number: int, first: int, credit: Credit, score: Score) -> Rollout:
        """Rollout `number`, from training pack `first` on: from groups to this rank's rows, and the updates that are made of them.

        Each of these updates is then `GRPOModule.training_step`.
        """
        played, num_packs, figures = self._next_played(number, first, credit)
        credited = credit(
            table_of(played.packs)
        )  # an entry for each episode, of all ranks: rewards -> returns -> advantages
        rows, shares = self._rows(played, credited), self._shares(number, credited, credit.compares_siblings)
        if self.replay is not None:
            rows, shares = self.replay.join(number, rows, credited, shares)
            figures |= self.replay.metrics
        self.runner.engine.sleep()  # what scores takes memory as training does
        own = {g: one.group for g, one in enumerate(played.packs) if one.group is not None}
        rows = score(rows, Played(own, self.setting()), len(shares))
        self._observe(played, credited, credit)
        stats = reduce(RolloutStats.__add__, [part.stats for part in played.parts])
        figures |= {**credited.figures(), **stats.figures(self.runner.engine.in_flight), **self.packs.metrics()}
        if self.max_staleness:
            self.ahead.begin(number, first + num_packs)
        return Rollout(batch=replace(rows, figures={**rows.figures, **figures}), shares=shares, num_packs=num_packs)

    def _rows(self, played: PlayedRollout, credited: Credited) -> Batch:
        """The token rows of this rank's episodes, each with its advantage."""
        self.packs.see_different([one.pack for one in played.packs])
        index = {one.pack.id: g for g, one in enumerate(played.packs)}
        segments, pad_id = segments_of(own_groups(played.packs)), self.setting().sampler.chat.pad_id
        rows = collate(segments, credited.table, index, pad_id=pad_id)
        return replace(rows, advantages=credited.advantages[rows.episode], returns=credited.known_returns[rows.episode])

    def _next_played(self, number: int, first: int, credit: Credit) -> tuple[PlayedRollout, int, dict[str, float]]:
        """A rollout that was played ahead, else one that is played now; with the training packs taken, those of dropped rollouts
        included, and what is logged of it."""
        played, dropped, figures = self.ahead.take(number, first)
        for part in chain.from_iterable(one.parts for one in (*dropped, *([played] if played else []))):
            self.runner.report("train", part)
        num_dropped, played_s = sum(one.num_packs for one in dropped), 0.0
        if played is None:
            played = self.played(first + num_dropped, credit)
            played_s = sum(part.seconds for part in played.parts)
        waited = {"time/wait_s": max(gathered(self.runner.ahead.waited_s() + played_s))} if self.max_staleness else {}
        return played, num_dropped + played.num_packs, {**figures, **waited}

    def draw(self, first: int, count: int, num_waiting: int = 0, *, replacing: bool = False) -> list[PlayedPack]:
        """The next packs, from training pack `first` on, each with the rank that plays it; `num_waiting` before it are not observed
        yet. Replacements are shared out as they come."""
        with self.runner.phase("choosing training packs"):
            drawn = self.packs.draw(first, count, num_waiting)
        ranks = owners(count, 1 if replacing else self.num_shares)
        return [PlayedPack(choice, pack, of) for (choice, pack), of in zip(drawn, ranks, strict=True)]

    def played(self, first: int, credit: Credit) -> PlayedRollout:
        """The packs of a rollout, from training pack `first` on, of which this rank plays its share.

        Dynamic sampling (DAPO, arXiv 2503.14476): packs in which no sibling did better than another are replaced by as many
        further ones, in at most `resample_packs` rounds. What differs: the source goes on until the batch is full; here
        packs without signal fill what is missing after the last round, so that every update has as many packs.
        """
        kept: list[PlayedPack] = []
        without: list[PlayedPack] = []
        parts: list[RolloutPart] = []
        for number in range(1 + self.resample_packs):
            num_missing = self.packs_per_rollout - len(kept)
            drawn = self.draw(first + len(kept) + len(without), num_missing, replacing=number > 0)
            own = [one.pack for one in drawn if one.rank == rank()]
            parts.append(self.runner.run("train", partial(self.play, own), replacing=number > 0))
            groups = iter(parts[-1].groups)
            packs = [replace(one, group=next(groups)) if one.rank == rank() else one for one in drawn]
            if not self.resample_packs:
                return PlayedRollout(packs=packs, parts=parts)
            signal = credit.compared(table_of(packs)).packs_with_signal.tolist()
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
        by = setting.sampler
        collected = self.packs.collected(packs, self.group_size, by.vocabulary_size, by.window)
        return run_groups(packs, self.group_size, setting, label="train") if collected is None else collected

    def _observe(self, played: PlayedRollout, credited: Credited, credit: Credit) -> None:
        """Every rank shows its source the rewards of all ranks, and advantages as they are trained on."""
        if not self.packs.learns:
            return
        packs = [*played.packs, *played.replaced]
        if played.replaced:
            credited = credited.beside(credit(table_of(played.replaced)), table_of(packs))
        self.packs.observe(
            PackOutcomes(
                choices=[one.choice for one in packs],
                credit=credited,
                contexts=self.contexts(played) if self.packs.source.needs_contexts else (),
            )
        )

    def contexts(self, played: PlayedRollout) -> Sequence[Contexts]:
        """[P K N] what each task of all ranks' groups began with; every rank has to call it."""
        packs = [*played.packs, *played.replaced]
        own = [one.contexts or self.contexts_of(one.group) for one in packs if one.group is not None]
        of_ranks = [iter(of_rank) for of_rank in gathered(own)]
        return [next(of_ranks[one.rank]) for one in packs]

    def contexts_of(self, group: Group) -> Contexts:
        """[K N] what each task of the group began with."""
        stored = beside(self.setting().mechanism, Stored)

        def dumped(solve: Episode) -> str | None:
            return None if solve.reward is None else stored.dump(solve.state_before)

        return [list(map(dumped, life.solves)) for life in group.lifecycles]

    def _shares(self, number: int, credited: Credited, with_siblings: bool) -> list[list[int]]:
        """The episodes of each update, by their entries: packs in order in the first pass, shuffled anew for each further one;
        or what is trained on, if asked with its siblings, shuffled for every pass and dealt out by so many or evenly."""
        table, shares = credited.table, list[list[int]]()
        if self.shuffle_episodes:
            of = table.siblings if with_siblings else torch.arange(len(table))
            entries, units = credited.trained.nonzero().squeeze(1), dict[int, list[int]]()
        else:
            of, entries = table.place[:, 0], torch.arange(len(table))
            units = {g: [] for g in range(self.packs_per_rollout)}
        for entry, unit in zip(entries.tolist(), of[entries].tolist(), strict=True):
            units.setdefault(unit, []).append(entry)
        for done in range(self.passes_per_rollout):
            order = list(units.values())
            if done or self.shuffle_episodes:
                random.Random(derive_seed("pass", self.seed, number, done)).shuffle(order)
            cuts = self._cuts(len(order))
            shares += [list(chain.from_iterable(order[start:end])) for start, end in pairwise(cuts)]
        return shares

    def _cuts(self, length: int) -> list[int]:
        """Where each update of a pass over so many begins, and where the last ends."""
        size, number = int(self.shuffle_episodes), self.updates_per_rollout
        if size * (number - 1) < length <= size * number:
            return [min(length, size * update) for update in range(number + 1)]
        return [length * update // number for update in range(number + 1)]

    def state_dict(self) -> dict[str, Any]:
        """The state of packs and replay, and the rollouts ahead; every rank has to call it."""
        replay = {} if self.replay is None else {"replay": self.replay.state_dict()}
        return {"source": self.packs.state_dict(), **replay, **self.ahead.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.packs.load_state_dict(state_dict["source"])
        if self.replay is not None and "replay" in state_dict:
            self.replay.load_state_dict(state_dict["replay"])
        self.ahead.load_state_dict(state_dict)
