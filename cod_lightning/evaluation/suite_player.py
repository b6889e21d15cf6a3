"""Plays the conditions of suites one after another, with what they share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cod_lightning.envs.base import HiddenRules, beside
from cod_lightning.evaluation.controls import ByReference, ByWarmStart, Control, WarmStartBlanked
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.references import play_reference
from cod_lightning.evaluation.results import PlayedCondition
from cod_lightning.evaluation.suite import Suite
from cod_lightning.ranks import gathered, share
from cod_lightning.rewards import Reward, WorldReward
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.rollout.setting import Setting
from cod_lightning.seeds import derive_seed
from cod_lightning.types import EpisodeKind, Group, Pack


class SuitePlayer:
    """Every rank plays its share of a condition's packs; all have the outcomes of all."""

    def __init__(self, runner: RolloutRunner) -> None:
        self.runner = runner
        self._packs_of: tuple[str, list[Pack]] = ("", [])
        """The current suite's name and packs, which its conditions share."""
        self._rules: dict[str, str] = {}
        """What each of them hides, by its id."""
        self._changes: dict[str, int | None] = {}
        """Where that changes."""
        self._warm_starts: dict[float, float] = {}
        """Success of the warm start in it, in the mean over positions, by temperature."""
        self._trained: dict[str, list[Group]] = {}
        """What the trained policy played, by suite, where a control takes contexts from there."""

    def play(self, suite: Suite, control: Control, setting: Setting) -> PlayedCondition:
        """One condition of one suite; `trained` has to come before `shuffled_context`, and warm starts before `warm_start_blanked`,
        which is played at their best temperature.

        Sampling noise goes by identity alone, not by version: a checkpoint has the same figures whenever it is tested.
        """
        env = suite.env or setting.env
        if self._packs_of[0] != suite.name:
            with self.runner.phase(f"sampling packs of the suite '{suite.name}'"):
                packs, rules = suite.packs(env), beside(env, HiddenRules)
                with suite.answering(env, "an environment that says what a pack hides"):
                    self._rules = {pack.id: f"{derive_seed(rules.hidden_rule(pack)):x}" for pack in packs}
                    self._changes = {pack.id: rules.changes_at(pack) for pack in packs}
                self._packs_of, self._warm_starts = (suite.name, packs), {}
        if isinstance(control, WarmStartBlanked):
            control = WarmStartBlanked(max(self._warm_starts, key=self._warm_starts.__getitem__))
        changes: dict[str, Any] = {"policy_version": 0, "temperature": suite.temperature_of(control)}
        by_kind = {kind: replace(sampler, **changes) for kind, sampler in setting.by_kind.items()}
        here = replace(setting, env=env, sampler=replace(setting.sampler, **changes), by_kind=by_kind)

        def played() -> list[Group]:
            return play(suite, control, self._packs_of[1], here, self._trained.get(suite.name, ()))

        groups = [group for part in gathered(self.runner.run(suite.label(control), played).groups) for group in part]
        if control.name == "trained":
            self._trained[suite.name] = groups if any(one.after_trained for one in suite.chosen) else []
        changes_at = tuple(self._changes[group.pack.id] for group in groups)
        parts = [one for one in setting.rewards.values() if isinstance(one, Reward) and EpisodeKind.SOLVE in one.kinds]
        outcomes = Outcomes.of(
            [lifecycle for group in groups for lifecycle in group.lifecycles],
            rules=[self._rules[group.pack.id] for group in groups],
        )
        if isinstance(control, ByWarmStart):
            self._warm_starts[suite.temperature_of(control)] = outcomes.mean_success
        return PlayedCondition(
            suite=suite,
            control=control,
            env=env.name,
            outcomes=outcomes,
            changes=None if set(changes_at) == {None} else changes_at,
            own_reward=all(isinstance(part, WorldReward) and part.weight == 1 for part in parts),
        )


def play(
    suite: Suite, control: Control, packs: Sequence[Pack], setting: Setting, trained: Sequence[Group] = ()
) -> list[Group]:
    """One lifecycle through every one of the suite's packs (of a reference, through the first `reference_packs`).

    Every rank plays its share of them. `trained` are the groups of the suite's `trained` condition, of the same weights.
    """
    if not isinstance(control, ByReference):
        own = share(packs)
        with suite.answering(control, "a control that raises nothing"):
            changed = control.setting(setting, own, trained)
        return run_groups(own, 1, changed, label=suite.label(control))
    own, monitor = share(packs[: suite.reference_packs]), setting.monitor
    monitor.begin(suite.label(control), len(own), suite.pack_size or 0)
    lives = []
    with suite.answering(setting.env, "an environment whose references raise nothing"):
        how = setting.mechanism, setting.program
        for life in play_reference(setting.env, own, control.reference, *how, blanked=control.blanked):
            for episode in life.own:
                monitor.episode(episode)
            monitor.lifecycle(life)
            lives.append(life)
    return [Group(pack=pack, lifecycles=(life,)) for pack, life in zip(own, lives, strict=True)]
