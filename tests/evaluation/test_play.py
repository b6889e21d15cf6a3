"""Every control changes a rollout as documented, seen by an agent that repeats what it is shown."""

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Players, Reference, TextEnv, beside
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.suite import CONTROLS, REFERENCES, ConditionKind, Suite
from cod_lightning.rollout.setting import RolloutMonitor
from cod_lightning.types import Episode, EpisodeStatus, Lifecycle
from tests import asked
from tests.cases import each
from tests.evaluation.echoes import MECHANISM, echoed, shown

SUITE = Suite(name="echo", num_packs=3, pack_size=3, controls=CONTROLS)
WORLD = Levers()


def rules(world: TextEnv = WORLD) -> str:
    return world.rules


def with_hint(note: str) -> str:
    return asked.shown(MECHANISM, rules(), note)


def test_without_a_control_a_prompt_shows_what_the_agent_wrote_before() -> None:
    for group in echoed(SUITE, ConditionKind.TRAINED, WORLD):
        (life,) = group.lifecycles
        notes = [update.context_after for update in life.updates]
        assert len(set(notes)) == 2
        assert shown(group) == [with_hint(note) for note in ("", *notes)]


def test_a_blanked_context_is_written_and_never_shown() -> None:
    for group in echoed(SUITE, ConditionKind.BLANKED_CONTEXT, WORLD):
        assert shown(group) == [with_hint("")] * 3
        first, second = group.lifecycles[0].updates
        assert first.context_after
        assert second.context_before == first.context_after, "the writer sees its context"


def test_without_context_no_update_is_played_and_a_prompt_is_the_rules_alone() -> None:
    for group in echoed(SUITE, ConditionKind.NO_CONTEXT, WORLD):
        assert shown(group) == [rules()] * 3
        assert [update.status for update in group.lifecycles[0].updates] == [EpisodeStatus.SKIPPED] * 2
    assert with_hint("") != rules(), "the mechanism would have added something"


def test_a_shuffled_context_is_the_next_pack_s_at_the_same_position() -> None:
    trained = echoed(SUITE, ConditionKind.TRAINED, WORLD)
    found = echoed(SUITE, ConditionKind.SHUFFLED_CONTEXT, WORLD, trained=trained)
    for index, group in enumerate(found):
        assert group.pack == trained[index].pack
        other = trained[(index + 1) % 3]
        assert shown(group) == shown(other)
        assert shown(group)[1:] != shown(trained[index])[1:]
        assert all(update.status is EpisodeStatus.SKIPPED for update in group.lifecycles[0].updates)


def test_contexts_are_shuffled_between_the_packs_of_one_suite_only() -> None:
    foreign = echoed(Suite(name="other", num_packs=3, pack_size=3, seed=1), ConditionKind.TRAINED, WORLD)
    with pytest.raises(AssertionError, match="not of these packs"):
        echoed(SUITE, ConditionKind.SHUFFLED_CONTEXT, WORLD, trained=foreign)


def test_an_oracle_s_context_is_there_from_the_first_position_on_and_true() -> None:
    for group in echoed(SUITE, ConditionKind.ORACLE_CONTEXT, WORLD):
        truth = beside(WORLD, Players).reference(Reference.ORACLE, group.pack).note((), None)  # pyright: ignore
        assert shown(group) == [with_hint(truth)] * 3


def test_an_oracle_s_context_changes_with_the_rule() -> None:
    world = NonStationary(WORLD, change_at=2)
    for group in echoed(SUITE, ConditionKind.ORACLE_CONTEXT, world):
        first, second, third = shown(group)
        assert first == second != third
        colours = group.pack.tasks[2].spec.colours  # pyright: ignore[reportAttributeAccessIssue]
        assert all(colour in third for colour in colours)


def test_a_scripted_agent_makes_use_of_the_context_shown() -> None:
    suite = Suite(name="levers", num_packs=40, pack_size=4, controls=CONTROLS)
    world = Levers(protocol="compact")
    played = {}
    for control in (
        ConditionKind.TRAINED,
        ConditionKind.NO_CONTEXT,
        ConditionKind.ORACLE_CONTEXT,
        ConditionKind.SHUFFLED_CONTEXT,
    ):
        policy = beside(world, Players).reference(Reference.SCRIPTED, suite.packs(world)[0])
        mechanism = HintContext("compact")
        played[control] = echoed(
            suite, control, world, policy=policy, mechanism=mechanism, trained=played.get(ConditionKind.TRAINED, ())
        )
    success = {c: Outcomes.of([g.lifecycles[0] for g in groups]).success.mean(axis=0) for c, groups in played.items()}
    assert success[ConditionKind.ORACLE_CONTEXT].min() == 1.0
    assert success[ConditionKind.NO_CONTEXT].max() < 0.8
    assert success[ConditionKind.TRAINED][0] == success[ConditionKind.NO_CONTEXT][0], "the same prompt, the same noise"
    assert success[ConditionKind.SHUFFLED_CONTEXT][3] < success[ConditionKind.TRAINED][3] - 0.2


def test_without_its_memory_a_world_shows_an_empty_map_in_every_task() -> None:
    world = GridNavigation(side_min=4, side_max=4)
    observed = {}
    for control in (ConditionKind.TRAINED, ConditionKind.NO_WORLD_MEMORY):
        policy = beside(world, Players).reference(Reference.SCRIPTED, SUITE.packs(world)[0])
        groups = echoed(SUITE, control, world, policy=policy)
        observed[control] = [[s.turns[0].observation for s in group.lifecycles[0].solves] for group in groups]
    for remembered, forgotten in zip(
        observed[ConditionKind.TRAINED], observed[ConditionKind.NO_WORLD_MEMORY], strict=True
    ):
        assert remembered[0] == forgotten[0]
        assert forgotten[2].count("?") > remembered[2].count("?")


@each("control", REFERENCES)
def test_references_play_the_first_packs_of_the_suite_whatever_the_policy(control: ConditionKind) -> None:
    suite = Suite(name="few", num_packs=5, pack_size=4, reference_packs=2, controls=CONTROLS)
    groups = echoed(suite, control, WORLD)
    assert [group.pack for group in groups] == suite.packs(WORLD)[:2]
    if control is ConditionKind.ORACLE:
        assert all(solve.success for group in groups for solve in group.lifecycles[0].solves)


def test_the_oracle_knows_the_rule_before_and_after_a_change() -> None:
    suite = Suite(name="changing", num_packs=30, pack_size=5, controls=CONTROLS)
    for group in echoed(suite, ConditionKind.ORACLE, NonStationary(WORLD)):
        (life,) = group.lifecycles
        assert [episode.position for episode in life.episodes] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
        assert all(solve.success for solve in life.solves)
        assert [update.status for update in life.updates].count(EpisodeStatus.SKIPPED) == 1


def test_packs_are_the_same_under_every_condition() -> None:
    ids = [[group.pack for group in echoed(SUITE, c, WORLD)] for c in (ConditionKind.TRAINED, ConditionKind.NO_CONTEXT)]
    assert ids[0] == ids[1] == SUITE.packs(Levers())


class Counting(RolloutMonitor):
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.lives = 0

    def begin(self, label: str, num_lifecycles: int, num_tasks: int) -> None:
        self.begun.append(f"{label} {num_lifecycles} {num_tasks}")

    def episode(self, episode: Episode) -> None: ...

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        self.lives += 1


@each("control", [ConditionKind.NO_CONTEXT, ConditionKind.SCRIPTED])
def test_the_monitor_gets_every_lifecycle(control: ConditionKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Counting()
    monkeypatch.setattr("tests.evaluation.echoes.RolloutMonitor", lambda: monitor)
    echoed(SUITE, control, WORLD)
    assert monitor.begun == [f"test_echo_{control} 3 3"]
    assert monitor.lives == 3
