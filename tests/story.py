"""Streams of rollouts without Lightning: packs are numbers, and what is played of them, and its credit, is made up."""

import random
from itertools import islice

import torch

from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.credited import Credit
from cod_lightning.credit.returns import TaskCredit
from cod_lightning.envs.base import Variants
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.training.packs import TrainingPacks, Uniform
from cod_lightning.training.replay import RecordedEpisode, RecordedRollout, Replay, ReplayedEpisode
from cod_lightning.training.replay_buffer import ReplayBuffer
from cod_lightning.training.rollouts import TrainingRollouts
from cod_lightning.training.stream import TrainStream
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Group, Lifecycle, Pack, Split
from tests import records
from tests.stubs import PADDED_BY_0, FunctionEngine, WordWorld


def pack(number):
    return Pack(id=f"p{number}", split=Split.TRAIN, world_seed=number, tasks=())


class NumberWorldVariants(Variants):
    def categories(self):
        return ("a", "b")


class NumberWorld(WordWorld):
    """Packs whose number is their seed."""

    companions = (NumberWorldVariants, *WordWorld.companions)

    def sample_pack(self, *, split, index, num_tasks, seed=0):
        return pack(index)


class StoryCredit:
    """What a story says of credit."""

    def __init__(self, story):
        self.story, self.compares_siblings = story, story.compares

    def __call__(self, table):
        return self.story.credited(table)

    def compared(self, table):
        return self.story.compared(table)


class Story:
    """A stream, and the figures of its rollouts; a subclass says what is `played` of packs, and how it is `credited`
    and, to see which have a signal, `compared`."""

    siblings, compares = 2, False

    def __init__(self, rollouts=2, packs=4, updates=2, passes=1, source=None, seed=5, ahead=False, **options):
        class Rollouts(TrainingRollouts):
            def play(_, packs):
                return self.played(packs)

        runner = RolloutRunner(FunctionEngine(lambda _: (2,)))
        self.figures = []
        self.rollouts = Rollouts(
            setting=lambda: PADDED_BY_0,
            group_size=self.siblings,
            packs=TrainingPacks(source or Uniform(), NumberWorld(), 1, 5),
            runner=runner,
            packs_per_rollout=packs,
            updates_per_rollout=updates,
            passes_per_rollout=passes,
            seed=seed,
            max_staleness=int(ahead),
            num_needed=lambda: rollouts - 1 - self.stream.num_rollouts,
            **options,
        )
        self.stream = TrainStream(self.next_rollout, rollouts, updates * passes, runner)

    def compared(self, table):
        return self.credited(table)

    def score(self, rows, played, num_updates):
        return rows

    def next_rollout(self, number, first):
        made = self.rollouts.next(number, first, StoryCredit(self), self.score)
        self.figures.append(made.batch.figures)
        return made


def updates(stream, number=None):
    """So many, or those of an epoch."""
    return [sealed.item for sealed in islice(stream, len(stream) if number is None else number)]


def assert_goes_on(make, done, number):
    """Stopped after so many of this number of updates, a story goes on as one that was not."""
    uninterrupted, story, other = make(), make(), make()
    expected, before = updates(uninterrupted.stream, number), updates(story.stream, done)
    other.stream.restore(story.stream.saved())
    other.rollouts.load_state_dict(story.rollouts.state_dict())
    for found, wanted in zip(before + updates(other.stream, number - done), expected, strict=True):
        for name, value in vars(wanted).items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(getattr(found, name).nan_to_num(7.0), value.nan_to_num(7.0)), name
        assert untimed(found.figures) == untimed(wanted.figures)
        assert found.updates_left == wanted.updates_left
    assert other.stream.num_packs == uninterrupted.stream.num_packs
    assert same(other.rollouts.state_dict(), uninterrupted.rollouts.state_dict())


def untimed(figures):
    return {name: value for name, value in figures.items() if not name.startswith(("time/", "throughput/"))}


def same(one, other):
    """Equal containers, tensors included."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


# ------------------------------------------------------------------ with a replay

SIBLINGS, TASKS = 3, 2


class Everything(Replay):
    """All that is stored joins the first update, with a tenth of its advantage."""

    def choose(self, stored, rollout):
        return [[ReplayedEpisode(one, one.advantage / 10) for one in stored], *[[] for _ in rollout.updates[1:]]]


class Replayed(Story):
    """With a replay, and the credit of GroupMean over own rewards."""

    siblings = SIBLINGS

    def __init__(self, replay, *, rollouts=3, failing=(), filtered=False, **options):
        self.failing, self.filtered, self.credits = failing, filtered, []
        buffer = None if replay is None else ReplayBuffer(replay, 5)
        super().__init__(rollouts=rollouts, replay=buffer, **options)

    def played(self, packs):
        numbers = [one.world_seed for one in packs]
        return [failed(n) if n in self.failing else lives_of(n, self.rollouts_begun()) for n in numbers]

    def credited(self, table):
        self.credits.append(Credit(TaskCredit(), GroupMean(), filtered=self.filtered)(table))
        return self.credits[-1]

    def rollouts_begun(self):
        """A version for each rollout."""
        return self.stream.num_rollouts

    @property
    def of_replay(self):
        """The figures of the latest rollout."""
        return {name: of for name, of in self.figures[-1].items() if name.startswith("replay/")}

    @property
    def buffer(self):
        return self.rollouts.replay


def reward(number, sibling, task):
    """Every fourth pack has no signal."""
    return 0.0 if number % 4 == 3 else float((number + 2 * sibling + task) % 3) / 2


def lives_of(number, version):
    """Lifecycles of two solve episodes; the first one has two turns that do not extend one another, so two rows."""

    def turn(k, n, i):
        rng = random.Random(f"{number} {k} {n} {i}")
        num_actions = rng.randint(1, 3)
        return records.turn(
            new_ids=(1,) * rng.randint(1, 4),
            action_ids=tuple(rng.randint(2, 90) for _ in range(num_actions)),
            logprobs=tuple(-rng.random() for _ in range(num_actions)),
            policy_version=version,
        )

    def life(k):
        turns = [tuple(turn(k, n, i) for i in range(2 - n)) for n in range(TASKS)]
        episodes = tuple(records.episode(position=n, turns=turns[n], reward=reward(number, k, n)) for n in range(TASKS))
        return Lifecycle(pack_id=f"p{number}", sibling=k, episodes=episodes)

    return Group(pack=pack(number), lifecycles=tuple(map(life, range(SIBLINGS))))


def failed(number):
    """Lifecycles whose world broke before the first turn."""
    broken = Episode(kind=EpisodeKind.SOLVE, position=0, status=EpisodeStatus.FAILED)
    lives = (Lifecycle(pack_id=f"p{number}", sibling=k, episodes=(broken,)) for k in range(SIBLINGS))
    return Group(pack=pack(number), lifecycles=tuple(lives))


def row_key(batch, row):
    """What makes a row: ids, mask and log-probs."""
    length = int(batch.lengths[row])
    parts = (batch.token_ids, batch.action_mask, batch.behaviour_logprobs)
    return tuple(tuple(part[row, :length].tolist()) for part in parts)


def recorded(**options):
    plain = {"rollout": 0, "pack_id": "p", "sibling": 0, "episode": 0, "policy_version": 0, "num_tokens": 5}
    plain |= {"kind": "solve", "position": options.get("episode", 0)}
    return RecordedEpisode(**plain | {"episode_return": 1.0, "group_return": 0.5, "advantage": 0.5} | options)


def of_rollout(episodes=(), number=1, without=(), updates=((0,),), packs=None):
    return RecordedRollout(
        number=number,
        policy_version=number,
        episodes=episodes,
        packs=packs or {0: "p"},
        without_signal=frozenset(without),
        updates=updates,
    )
