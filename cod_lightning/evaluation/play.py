"""Plays one condition of one suite: the only place that knows what a control does to a rollout."""

from collections.abc import Iterable, Sequence

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.evaluation.changes import play_oracle
from cod_lightning.evaluation.conditions import Condition
from cod_lightning.evaluation.controls import BlankedContext, Control, NoContext
from cod_lightning.evaluation.lent_contexts import oracle_contexts, shuffled_contexts
from cod_lightning.evaluation.references import Comparison, play_reference
from cod_lightning.evaluation.suite import Suite
from cod_lightning.ranks import share
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.rollout.given_contexts import Contexts, run_given_groups
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.monitor import RolloutMonitor
from cod_lightning.types import Group, Lifecycle, Pack


def play(
    suite: Suite,
    condition: Condition,
    packs: Sequence[Pack],
    *,
    world: TextEnv,
    mechanism: ContextMechanism,
    speaker: Speaker,
    monitor: RolloutMonitor,
    trained: Sequence[Group] = (),
) -> list[Group]:
    """One lifecycle through every one of the suite's packs (of a reference, through the first `reference_packs`).

    Every rank plays its share of them.
    `trained` are the groups of the suite's `trained` condition, of the same weights; `shuffled_context` takes contexts from them.
    """
    control = condition.control
    if control.is_reference:
        return _play_reference(suite, condition, share(packs[: suite.reference_packs]), world, mechanism, monitor)
    if control is Control.BLANKED_CONTEXT:
        mechanism = BlankedContext(mechanism)
    if control is Control.NO_WORLD_MEMORY:
        world = world.without_world_memory()
    given = _given(suite, control, packs, world, mechanism, trained)
    if control is Control.NO_CONTEXT:
        mechanism = NoContext(mechanism)
    label, packs = condition.label, share(packs)
    if given is None:
        return run_groups(packs, 1, world=world, mechanism=mechanism, speaker=speaker, monitor=monitor, label=label)
    return run_given_groups(
        packs, given, world=world, mechanism=mechanism, speaker=speaker, monitor=monitor, label=label
    )


def _given(
    suite: Suite,
    control: Control,
    packs: Sequence[Pack],
    world: TextEnv,
    mechanism: ContextMechanism,
    trained: Sequence[Group],
) -> Sequence[Contexts] | None:
    """Contexts from outside for this rank's packs; None where the agent writes its own."""
    if control is Control.NO_CONTEXT:
        return [[""] * len(pack) for pack in share(packs)]
    if control is Control.ORACLE_CONTEXT:
        return oracle_contexts(world, share(packs), mechanism, suite.name)
    if control is Control.SHUFFLED_CONTEXT:
        lives = [lifecycle for group in trained for lifecycle in group.lifecycles]
        assert [life.pack_id for life in lives] == [pack.id for pack in packs], "trained is not of these packs"
        return share(shuffled_contexts(lives))
    return None


def _play_reference(
    suite: Suite,
    condition: Condition,
    packs: Sequence[Pack],
    world: TextEnv,
    mechanism: ContextMechanism,
    monitor: RolloutMonitor,
) -> list[Group]:
    """Pack after pack, since a reference may be made for its pack."""
    monitor.begin(condition.label, len(packs), suite.pack_size or 0)
    try:
        lives = []
        for life in _lives(suite, condition.control, packs, world, mechanism):
            for episode in life.episodes:
                monitor.episode(episode)
            monitor.lifecycle(life)
            lives.append(life)
    finally:
        monitor.end()
    return [Group(pack=pack, lifecycles=(life,)) for pack, life in zip(packs, lives, strict=True)]


def _lives(
    suite: Suite, control: Control, packs: Sequence[Pack], world: TextEnv, mechanism: ContextMechanism
) -> Iterable[Lifecycle]:
    if control is Control.ORACLE:
        return (play_oracle(world, pack, mechanism, suite.seed) for pack in packs)
    return play_reference(world, packs, Comparison(control.value), mechanism, suite.seed)
