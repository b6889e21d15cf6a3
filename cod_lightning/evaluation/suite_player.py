"""Plays the conditions of suites one after another: what they share, and what a kind of condition changes in a rollout."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cod_lightning.engines.base import Engine
from cod_lightning.envs.base import HiddenRules, Variants, beside
from cod_lightning.evaluation.outcomes import Outcomes, position_means
from cod_lightning.evaluation.provided_contexts import NoContext, oracle_contexts, shuffled_contexts
from cod_lightning.evaluation.references import change_position, play_reference
from cod_lightning.evaluation.results import PlayedCondition
from cod_lightning.evaluation.suite import REFERENCES, Condition, ConditionKind, Suite
from cod_lightning.lifecycles import Program
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.ranks import gathered, share
from cod_lightning.rewards import Reward, WorldReward
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.rollout.setting import Setting
from cod_lightning.seeds import derive_seed
from cod_lightning.types import EpisodeKind, Group, Pack


def at_endpoint(setting: Setting, engine: Engine) -> Setting:
    """The setting with the endpoint's model in the policy's place, in bytes; no request is sent yet."""
    from cod_lightning.models.endpoint import EndpointPolicy

    policy = EndpointPolicy()
    tokenizer = policy.tokenizer(())
    chat, trained = Chat(tokenizer), setting.sampler
    engine.bind(policy.model(tokenizer), chat.stop_ids)
    own = replace(trained, engine=engine, chat=chat, window=policy.window, num_ids=None)
    return replace(setting, sampler=own, by_kind={})


class SuitePlayer:
    """Every rank plays its share of a condition's packs; all have the outcomes of all.

    Args:
        runner: Runs the rollouts.
        baseline: A model behind a chat endpoint that plays its own condition; null: none.
    """

    def __init__(self, runner: RolloutRunner, baseline: Engine | None = None) -> None:
        self.runner, self.baseline = runner, baseline
        self._packs_of: tuple[str, list[Pack]] = ("", [])
        """The current suite's name and packs, which its conditions share."""
        self._trained: list[Group] = []
        """What the trained policy played in it, where a control takes contexts from there."""
        self._warm_starts: dict[float, float] = {}
        """Success of the warm start in it, in the mean over positions, by temperature."""

    def play(self, suite: Suite, condition: Condition, setting: Setting) -> PlayedCondition:
        """One condition of one suite; `trained` has to come before `shuffled_context`, and warm starts before `warm_start_blanked`,
        which is played at their best temperature.

        Sampling noise goes by identity alone, not by version: a checkpoint has the same figures whenever it is tested.
        """
        if condition.kind is ConditionKind.ENDPOINT and self.baseline is not None:
            setting = at_endpoint(setting, self.baseline)
        env = suite.env or setting.env
        if self._packs_of[0] != suite.name:
            with self.runner.phase(f"sampling packs of the suite '{suite.name}'"):
                self._packs_of, self._warm_starts = (suite.name, suite.packs(env)), {}
        changes: dict[str, Any] = {"policy_version": 0}
        if condition.kind is ConditionKind.WARM_START_BLANKED:
            changes["temperature"] = max(self._warm_starts, key=self._warm_starts.__getitem__)
            condition = replace(condition, temperature=changes["temperature"])
        by_kind = {kind: replace(sampler, **changes) for kind, sampler in setting.by_kind.items()}
        here = replace(setting, env=env, sampler=replace(setting.sampler, **changes), by_kind=by_kind)

        def played() -> list[Group]:
            return play(suite, condition, self._packs_of[1], here, self._trained)

        groups = [group for part in gathered(self.runner.run(condition.label, played).groups) for group in part]
        if condition.kind is ConditionKind.TRAINED:
            self._trained = groups if ConditionKind.SHUFFLED_CONTEXT in (suite.controls or ()) else []
        changed = [at for at in (change_position(env, group.pack) for group in groups) if at is not None]
        parts = [one for one in setting.rewards.values() if isinstance(one, Reward) and EpisodeKind.SOLVE in one.kinds]
        own = all(isinstance(part, WorldReward) and part.weight == 1 for part in parts)
        outcomes = Outcomes.of(
            [lifecycle for group in groups for lifecycle in group.lifecycles],
            rules=[f"{derive_seed(beside(env, HiddenRules).hidden_rule(group.pack)):x}" for group in groups],
        )
        if condition.kind is ConditionKind.WARM_START:
            self._warm_starts[condition.temperature] = float(np.nan_to_num(position_means(outcomes.success)).mean())
        return PlayedCondition(
            suite=suite,
            condition=condition,
            env=env.name,
            outcomes=outcomes,
            changes=tuple(changed) or None,
            r_max=float(env.traits.reward_range[1]) if own else None,
        )


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
    if kind is ConditionKind.NO_CONTEXT:
        setting = replace(setting, mechanism=NoContext(setting.mechanism.updates))
    setting = replace(setting, program=_program(kind, packs, setting, trained))
    return run_groups(share(packs), 1, setting, label=condition.label)


def _program(kind: ConditionKind, packs: Sequence[Pack], setting: Setting, trained: Sequence[Group]) -> Program:
    """What this rank's packs are played by."""
    own, mechanism, program = share(packs), setting.mechanism, setting.program
    if kind in (ConditionKind.BLANKED_CONTEXT, ConditionKind.WARM_START_BLANKED):
        return Controlled(program=program, shown=mechanism.empty())
    if kind is ConditionKind.NO_CONTEXT:
        found = [[mechanism.empty()] * len(pack) for pack in own]
    elif kind is ConditionKind.ORACLE_CONTEXT:
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
    lives = []
    for life in play_reference(setting.env, packs, condition.kind, setting.mechanism, suite.seed, setting.program):
        for episode in life.episodes:
            monitor.episode(episode)
        monitor.lifecycle(life)
        lives.append(life)
    return [Group(pack=pack, lifecycles=(life,)) for pack, life in zip(packs, lives, strict=True)]
