"""Plays the conditions of suites one after another, with what they share."""

from dataclasses import replace
from typing import Any

import numpy as np

from cod_lightning.engines.base import Engine
from cod_lightning.envs.base import HiddenRules, beside
from cod_lightning.evaluation.changes import change_position
from cod_lightning.evaluation.conditions import Condition, ConditionKind
from cod_lightning.evaluation.outcomes import Outcomes, position_means
from cod_lightning.evaluation.play import play
from cod_lightning.evaluation.results import PlayedCondition
from cod_lightning.evaluation.suite import Suite
from cod_lightning.ranks import gathered
from cod_lightning.rewards import Reward, WorldReward
from cod_lightning.rollout.chat import Chat
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
    own = replace(trained, engine=engine, chat=chat, window=policy.window, num_ids=None, thinking_budget=None)
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
