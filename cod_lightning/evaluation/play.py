"""Plays one condition of one suite: the only place that knows what a kind of condition changes in a rollout."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cod_lightning.envs.base import Variants, beside
from cod_lightning.evaluation.changes import play_oracle
from cod_lightning.evaluation.conditions import REFERENCES, Condition, ConditionKind
from cod_lightning.evaluation.provided_contexts import oracle_contexts, shuffled_contexts
from cod_lightning.evaluation.references import play_reference
from cod_lightning.evaluation.suite import Suite
from cod_lightning.lifecycles import Controlled, Program, Shown
from cod_lightning.ranks import share
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group, Lifecycle, Pack


def play(
    suite: Suite, condition: Condition, packs: Sequence[Pack], setting: Setting, trained: Sequence[Group] = ()
) -> list[Group]:
    """One lifecycle through every one of the suite's packs (of a reference, through the first `reference_packs`).

    Every rank plays its share of them. `trained` are the groups of the suite's `trained` condition, of the same weights;
    `shuffled_context` takes contexts from them.
    """
    kind = condition.kind
    if kind in REFERENCES:
        return _play_reference(suite, condition, share(packs[: suite.reference_packs]), setting)
    if kind is ConditionKind.NO_WORLD_MEMORY:
        setting = replace(setting, env=beside(setting.env, Variants).without_world_memory())
    setting = replace(setting, program=_program(kind, packs, setting, trained))
    return run_groups(share(packs), 1, setting, label=condition.label)


def _program(kind: ConditionKind, packs: Sequence[Pack], setting: Setting, trained: Sequence[Group]) -> Program:
    """What this rank's packs are played by."""
    own, mechanism, program = share(packs), setting.mechanism, setting.program
    if kind in (ConditionKind.BLANKED_CONTEXT, ConditionKind.WARM_START_BLANKED):
        return Controlled(program=program, shown=Shown.EMPTY)
    if kind is ConditionKind.NO_CONTEXT:
        empty = {pack.id: [mechanism.empty()] * len(pack) for pack in own}
        return Controlled(program=program, contexts=empty, shown=Shown.RULES)
    if kind is ConditionKind.ORACLE_CONTEXT:
        found = oracle_contexts(setting.env, own, mechanism)
    elif kind is ConditionKind.SHUFFLED_CONTEXT:
        lives = [lifecycle for group in trained for lifecycle in group.lifecycles]
        assert [life.pack_id for life in lives] == [pack.id for pack in packs], "trained is not of these packs"
        found = share(shuffled_contexts(lives))
    else:
        return program
    return Controlled(program=program, contexts={pack.id: states for pack, states in zip(own, found, strict=True)})


def _play_reference(suite: Suite, condition: Condition, packs: Sequence[Pack], setting: Setting) -> list[Group]:
    """Pack after pack, since a reference may be made for its pack."""
    monitor = setting.monitor
    monitor.begin(condition.label, len(packs), suite.pack_size or 0)
    try:
        lives = []
        for life in _lives(suite, condition.kind, packs, setting):
            for episode in life.episodes:
                monitor.episode(episode)
            monitor.lifecycle(life)
            lives.append(life)
    finally:
        monitor.end()
    return [Group(pack=pack, lifecycles=(life,)) for pack, life in zip(packs, lives, strict=True)]


def _lives(suite: Suite, kind: ConditionKind, packs: Sequence[Pack], setting: Setting) -> Iterable[Lifecycle]:
    world, mechanism, program = setting.env, setting.mechanism, setting.program
    if kind is ConditionKind.ORACLE:
        return (play_oracle(world, pack, mechanism, suite.seed, program) for pack in packs)
    return play_reference(world, packs, kind, mechanism, suite.seed, program)
