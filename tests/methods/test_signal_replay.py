"""Replay for packs without signal, where a source brings packs back: they are the same packs under other ids."""

from cod_lightning.envs.levers import Levers
from cod_lightning.methods.revisits import Revisits
from cod_lightning.methods.signal_replay import SignalReplay
from cod_lightning.training.packs import PackChoice, TrainingPacks, without_visit
from tests.cases import each
from tests.methods.test_revisits import played
from tests.story import of_rollout, recorded


class Named(Revisits):
    """Choices that a test names."""

    chosen = ()

    def next(self, first, count):
        return self.chosen


def ids(*choices):
    source = Named()
    packs = TrainingPacks(source, Levers(), 3, 7)
    source.chosen = choices
    return [pack.id for _, pack in packs.draw(0, len(choices))]


def test_a_stored_pack_takes_the_place_of_each_pack_without_signal_with_the_advantages_it_had():
    replay = SignalReplay()
    replay.start(1)
    stored = [recorded(pack_id=f"old{p}", sibling=k, advantage=a) for p in range(3) for k, a in ((0, 0.5), (1, -0.5))]
    rollout = of_rollout(
        without=(1, 2, 5), updates=((0, 1, 2), (3, 4, 5)), packs={g: f"new{g}" for g in range(6)}, number=4
    )
    chosen = replay.choose(stored, rollout)
    assert [len({one.episode.pack_id for one in of}) for of in chosen] == [2, 1]
    assert [len(of) for of in chosen] == [4, 2]
    assert all(one.advantage == one.episode.advantage for of in chosen for one in of)
    assert replay.choose(stored, of_rollout(updates=((0,),))) == [[]]
    many, silent = [recorded(pack_id=f"old{p}") for p in range(9)], {g: f"new{g}" for g in range(6)}
    chosen = replay.choose(many, of_rollout(without=silent, updates=[(g,) for g in silent], packs=silent))
    assert len({of[0].episode.pack_id for of in chosen}) > 1, "every update has a draw of its own"


def test_the_same_pack_played_again_is_joined_by_its_best_lifecycle_of_before():
    replay = SignalReplay()
    replay.start(1)
    of_before = [
        recorded(pack_id="a", sibling=k, episode=e, advantage=a, episode_return=r)
        for k, e, a, r in ((0, 0, 0.3, 0.9), (0, 1, 0.2, 0.1), (1, 0, 0.4, 0.8), (1, 1, 0.3, 0.9), (2, 0, -0.7, 0.0))
    ]
    now = [recorded(pack_id="a", episode=e, group_return=0.2, rollout=3) for e in range(2)]
    rollout = of_rollout(now, without=(0, 1), updates=((0, 1),), packs={0: "a", 1: "b"}, number=3)
    others = [recorded(pack_id=name, advantage=0.1) for name in "cd"]
    chosen = replay.choose([*of_before, *others], rollout)[0]
    again = [one for one in chosen if one.episode.pack_id == "a"]
    assert [(one.episode.sibling, one.episode.episode, one.advantage) for one in again] == [(1, 0, 0.4), (1, 1, 0.3)]
    assert len({one.episode.pack_id for one in chosen} - {"a"}) == 1, "one for b alone"


def joining(stored, *packs):
    """What of these episodes joins an update of these packs, whose siblings now come to 0.2 and leave no signal."""
    replay = SignalReplay()
    replay.start(1)
    now = [recorded(pack_id=name, group_return=0.2, rollout=3) for name in packs]
    places = dict(enumerate(packs))
    rollout = of_rollout(now, without=tuple(places), updates=(tuple(places),), packs=places, number=3)
    return replay.choose(stored, rollout)[0]


def test_a_pack_that_comes_back_as_it_was_is_joined_by_what_was_better_before():
    before, now = ids(PackChoice(4), PackChoice(4, visit=33))
    stored = [recorded(pack_id=before, sibling=k, episode_return=r, advantage=r - 0.5) for k, r in ((0, 0.9), (1, 0.1))]
    assert [one.episode for one in joining(stored, now)] == stored[:1]


def test_two_visits_of_one_pack_in_an_update_are_joined_once():
    before, one, other = ids(PackChoice(4), PackChoice(4, visit=33), PackChoice(4, visit=34))
    assert len(joining([recorded(pack_id=before, episode_return=0.9)], one, other)) == 1


def test_what_was_better_before_was_so_in_its_kind_and_position_whatever_its_index_in_the_lifecycle_of_now():
    replay = SignalReplay()
    replay.start(1)
    before = [
        recorded(pack_id="a", sibling=k, episode=1, position=1, episode_return=r, advantage=r - 0.25)
        for k, r in ((0, 0.5), (1, 0.0))
    ]
    now = [
        recorded(pack_id="a", episode=1, kind="update", position=0, group_return=0.9),
        recorded(pack_id="a", episode=2, position=1, group_return=0.2),
    ]
    rollout = of_rollout(now, without=(0,), packs={0: "a"})
    assert [one.episode for one in replay.choose(before, rollout)[0]] == before[:1]


@each("choice", [PackChoice(5, visit=33), PackChoice(4, visit=33, begin=1, context="x")])
def test_another_pack_and_one_that_begins_at_another_task_are_not_the_same_and_joined_by_all_of_it(choice):
    before, now = ids(PackChoice(4), choice)
    stored = [recorded(pack_id=before, sibling=k, episode_return=r, advantage=r - 0.5) for k, r in ((0, 0.9), (1, 0.1))]
    assert [one.episode for one in joining(stored, now)] == stored


@each("back", ["same", "near", "continued"])
def test_packs_of_one_name_without_the_visit_have_the_same_tasks_in_their_order(back):
    tasks = {}
    for rollout in played(TrainingPacks(Revisits(back=back), Levers(), 3, 7), 4):
        for _, pack in rollout:
            assert tasks.setdefault(without_visit(pack.id), [task.spec for task in pack.tasks]) == [
                task.spec for task in pack.tasks
            ]
    assert len(tasks) > 8


@each(("advantage", "num_joining"), [(0.4, 1), (0.0, 2), (-0.3, 2)])
def test_an_episode_above_the_siblings_of_now_joins_alone_only_if_it_was_above_those_of_then_too(
    advantage, num_joining
):
    before, now = ids(PackChoice(4), PackChoice(4, visit=33))
    stored = [
        recorded(pack_id=before, sibling=0, episode_return=0.9, advantage=advantage),
        recorded(pack_id=before, sibling=1, episode_return=0.1, advantage=-0.5),
    ]
    assert [one.episode for one in joining(stored, now)] == stored[:num_joining]
