"""Worlds without their memory: the same packs, and nothing else is carried over."""

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Players, Reference, Variants, Vocabulary, beside
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.evaluation.references import play_reference
from cod_lightning.types import Split
from tests.envs.cases import WORLDS, every_world


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
