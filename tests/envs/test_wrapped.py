"""Worlds around another one, which answers where they change nothing: loops, changed rules, no memory."""

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import HiddenRules, Players, Reference, Traits, Variants, Vocabulary, beside
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.envs.wrapped import WrappedWorld, innermost
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.references import play_reference
from cod_lightning.seeds import derive_seed
from cod_lightning.types import EpisodeStatus, Split
from tests.cases import each
from tests.envs.cases import WORLDS, every_world
from tests.envs.scripted_life import by_position, live
from tests.stubs import WordWorld


class UnusualRules(HiddenRules):
    def changed(self, pack, at, seed):
        self.env.asked = (at, seed)
        return pack


class Unusual(WordWorld):
    """Differs from every default in all that a rollout asks a world for."""

    companions = (UnusualRules, *WordWorld.companions)

    traits = Traits(reward_range=(-3.0, 8.0), blocking=True)
    closed = 0

    def __init__(self):
        super().__init__(max_turns=7)

    @property
    def status(self):
        return EpisodeStatus.TRUNCATED

    @property
    def success(self):
        return True

    @property
    def rules(self):
        return "unusual rules"

    def close(self):
        self.closed += 1


def test_what_a_rollout_asks_of_a_wrapped_world_is_answered_by_the_one_inside():
    inside = Unusual()
    for outside in (WrappedWorld(inside), RalphLoop(inside), NonStationary(inside, change_at=1)):
        for name in ("traits", "max_turns", "status", "success", "rules"):
            assert getattr(outside, name) == getattr(inside, name), name
        assert beside(outside, Vocabulary).words() == beside(inside, Vocabulary).words()
        before = inside.closed
        outside.close()
        assert inside.closed == before + 1


def test_a_world_that_holds_another_as_inside_and_does_not_delegate_to_it_is_its_own_innermost():
    world, holder = WordWorld(), WordWorld()
    holder.inside = world
    assert innermost(RalphLoop(holder)) is holder
    assert innermost(NonStationary(RalphLoop(world))) is world


def test_a_rule_changes_into_another_one_for_every_run_seed_and_pack():
    inside = Unusual()
    world = NonStationary(inside, change_at=2)
    seen = set()
    for seed in range(3):
        for index in range(4):
            world.sample_pack(split=Split.TRAIN, index=index, num_tasks=4, seed=seed)
            assert inside.asked[0] == 2
            seen.add(inside.asked[1])
    assert len(seen) == 12


@each("name", ["levers-compact", "grid-natural", "apps-code"])
def test_a_pack_is_one_task_again_and_again_whose_later_attempts_are_repeats(name):
    inner = WORLDS[name].make()
    env = RalphLoop(inner)
    pack = env.sample_pack(split=Split.TEST, index=2, num_tasks=5)
    first = inner.sample_pack(split=Split.TEST, index=2, num_tasks=1).tasks[0]
    assert [(task.id, task.spec, task.seed, task.repeat) for task in pack.tasks] == [
        (str(n), first.spec, first.seed, n > 0) for n in range(5)
    ]
    assert pack.id.startswith(env.name)
    assert len(live(env, pack, Reference.SCRIPTED)) == 5


def test_later_attempts_go_better():
    first, *_, last = by_position(RalphLoop(WORLDS["levers-compact"].make()), Reference.SCRIPTED, 60)
    assert last == 1 > first + 0.25


@every_world
def test_from_the_chosen_task_on_a_pack_has_the_changed_rule_and_it_can_be_played(name):
    inner = WORLDS[name].make()
    env = NonStationary(inner, change_at=2)
    pack = env.sample_pack(split=Split.TRAIN, index=1, num_tasks=4)
    plain = inner.sample_pack(split=Split.TRAIN, index=1, num_tasks=4)
    assert pack.tasks == beside(inner, HiddenRules).changed(plain, 2, derive_seed("change", 0, 1)).tasks
    assert pack.id != plain.id
    assert len(live(env, pack, Reference.SCRIPTED)) == 4


def test_a_drawn_position_is_every_later_task_sometimes_and_the_same_each_time():
    env = NonStationary(Levers())
    packs = [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4) for index in range(60)]
    positions = [env.change_position(pack) for pack in packs]
    assert set(positions) == {1, 2, 3}
    hidden = [pack.tasks[0].spec.colours for pack in packs]
    assert len(set(zip(hidden, positions, strict=True))) > len(set(hidden)), (
        "what is hidden does not foretell the change"
    )
    for pack, at in zip(packs, positions, strict=True):
        colours = [task.spec.colours for task in pack.tasks]
        assert len(set(colours)) == 2
        assert colours[at] != colours[at - 1]
    assert packs == [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4) for index in range(60)]


def test_where_the_rule_changes_is_known_through_worlds_around_it_that_keep_it():
    inside = NonStationary(Levers(), change_at=2)
    mixture = Mixture({"changing": inside, "other": Levers(max_turns=2)})
    for world in (inside, WrappedWorld(inside), mixture, RalphLoop(inside), NonStationary(RalphLoop(Levers()), 2)):
        for index in range(8):
            pack = world.sample_pack(split=Split.TEST, index=index, num_tasks=4)
            hidden = [getattr(task.spec, "spec", task.spec).colours for task in pack.tasks]
            expected = next((n for n in range(1, 4) if hidden[n] != hidden[n - 1]), None)
            assert beside(world, HiddenRules).changes_at(pack) == expected


def test_a_change_costs_the_scripted_policy_which_recovers_and_is_within_the_pack():
    _, before, at, after = by_position(NonStationary(Levers(protocol="compact"), change_at=2), Reference.SCRIPTED, 200)
    assert min(before, after) > at + 0.1
    assert len(NonStationary(Levers()).sample_pack(split=Split.TEST, index=0, num_tasks=1)) == 1
    with pytest.raises(ConfigError, match=r"in 1\.\.3"):
        NonStationary(Levers(), change_at=4).sample_pack(split=Split.TEST, index=0, num_tasks=4)


def without(world):
    return beside(world, Variants).without_world_memory()


@every_world
def test_packs_and_identity_stay_and_what_a_task_shows_does_not_depend_on_the_task_before(name: str) -> None:
    world = WORLDS[name].make()
    twin, mechanism = without(world), HintContext(WORLDS[name].protocol, response_limit=None)
    pack = world.sample_pack(split=Split.TEST, index=1, num_tasks=3)
    assert twin.name == world.name
    assert twin.sample_pack(split=Split.TEST, index=1, num_tasks=3) == pack
    assert without(twin) is twin, "a second call changes nothing"
    assert beside(twin, Vocabulary).words() == beside(world, Vocabulary).words()
    (life,) = play_reference(twin, [pack], Reference.SCRIPTED, mechanism)
    for solve, task in zip(life.solves, pack.tasks, strict=True):
        assert solve.turns[0].observation == without(WORLDS[name].make()).reset(options={"task": task})[0]


def test_the_world_itself_still_remembers_afterwards() -> None:
    world = GridNavigation(side_min=4, side_max=4)
    twin = without(world)
    pack = world.sample_pack(split=Split.TEST, index=0, num_tasks=2)
    (kept,), (lost,) = (
        play_reference(one, [pack], Reference.SCRIPTED, HintContext(response_limit=None)) for one in (world, twin)
    )
    assert world.rules != twin.rules
    unknown = [life.solves[1].turns[0].observation.count("?") for life in (kept, lost)]
    assert unknown[0] < unknown[1]


def test_wrapped_and_mixed_worlds_take_it_from_those_inside_and_the_small_equations_stay_in_fused_words() -> None:
    grid = GridNavigation(side_min=4, side_max=4)
    looped, mixed = RalphLoop(grid), Mixture({"grid": grid, "levers": Levers()})
    for world in (looped, mixed):
        twin = without(world)
        assert type(twin) is type(world)
        assert twin is not world
        assert without(twin) is twin
    plain = Levers()
    for wrapped in (RalphLoop(plain), NonStationary(plain), Mixture({"levers": plain})):
        assert without(wrapped) is wrapped
    pack = looped.sample_pack(split=Split.TEST, index=0, num_tasks=2)
    assert without(looped).sample_pack(split=Split.TEST, index=0, num_tasks=2) == pack
    assert beside(without(looped), Players).reference(Reference.SCRIPTED, pack)
    world = PDEDiscovery(protocol="compact", world_memory=True)
    (task,) = world.sample_pack(split=Split.TEST, index=0, num_tasks=1).tasks
    assert without(world).reset(options={"task": task}) == world.reset(options={"task": task})
