"""Every control changes a rollout as documented, seen by an agent that repeats what it is shown."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from jsonargparse import ArgumentParser

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import TextState
from cod_lightning.envs.base import Players, Reference, TextEnv, TextPolicy, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.world import LeverPlayers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.envs.wrapped import WrappedWorld
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.controls import (
    CONTROLS,
    REFERENCES,
    Control,
    ShuffledContext,
    check_oracle,
    oracle_contexts,
)
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.evaluation.suite import Suite
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.rollout.setting import RolloutMonitor, Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Group, Lifecycle, Pack, Split
from tests import asked
from tests.cases import each
from tests.envs.cases import WORLDS, every_world
from tests.evaluation.echoes import MECHANISM, Echo, echoed, shown
from tests.records import lifecycle, pack, solve, update

SUITE = Suite(name="echo", num_packs=3, pack_size=3, controls=tuple(CONTROLS))
WORLD = Levers()


def with_hint(note: str) -> str:
    return asked.shown(MECHANISM, WORLD.rules, note)


def test_without_a_control_a_prompt_shows_what_the_agent_wrote_before() -> None:
    for group in echoed(SUITE, "trained", WORLD):
        (life,) = group.lifecycles
        notes = [update.context_after for update in life.updates]
        assert len(set(notes)) == 2
        assert shown(group) == [with_hint(note) for note in ("", *notes)]


def test_a_blanked_context_is_written_and_never_shown() -> None:
    for group in echoed(SUITE, "blanked_context", WORLD):
        assert shown(group) == [with_hint("")] * 3
        first, second = group.lifecycles[0].updates
        assert first.context_after
        assert second.context_before == first.context_after, "the writer sees its context"


def test_without_context_no_update_is_played_and_a_prompt_is_the_rules_alone() -> None:
    for group in echoed(SUITE, "no_context", WORLD):
        assert shown(group) == [WORLD.rules] * 3
        assert [update.status for update in group.lifecycles[0].updates] == [EpisodeStatus.SKIPPED] * 2
    assert with_hint("") != WORLD.rules, "the mechanism would have added something"


def test_a_shuffled_context_is_the_next_pack_s_at_the_same_position() -> None:
    trained = echoed(SUITE, "trained", WORLD)
    found = echoed(SUITE, "shuffled_context", WORLD, trained=trained)
    for index, group in enumerate(found):
        assert group.pack == trained[index].pack
        other = trained[(index + 1) % 3]
        assert shown(group) == shown(other)
        assert shown(group)[1:] != shown(trained[index])[1:]
        assert all(update.status is EpisodeStatus.SKIPPED for update in group.lifecycles[0].updates)


def test_contexts_are_shuffled_between_the_packs_of_one_suite_only() -> None:
    foreign = echoed(Suite(name="other", num_packs=3, pack_size=3, split="train"), "trained", WORLD)
    with pytest.raises(ConfigError, match="not of these packs"):
        echoed(SUITE, "shuffled_context", WORLD, trained=foreign)
    with pytest.raises(AssertionError, match="no other one"):
        shuffled([lifecycle("a", (True, True))])


def test_an_oracle_s_context_is_there_from_the_first_position_on_and_true() -> None:
    for group in echoed(SUITE, "oracle_context", WORLD):
        truth = beside(WORLD, Players).reference(Reference.ORACLE, group.pack).note((), None)  # pyright: ignore
        assert shown(group) == [with_hint(truth)] * 3


def test_a_scripted_agent_makes_use_of_the_context_shown() -> None:
    suite = Suite(name="levers", num_packs=40, pack_size=4, controls=tuple(CONTROLS))
    world = Levers(protocol="compact")
    played = {}
    for control in ("trained", "no_context", "oracle_context", "shuffled_context"):
        policy = beside(world, Players).reference(Reference.SCRIPTED, suite.packs(world)[0])
        mechanism = HintContext("compact")
        played[control] = echoed(
            suite, control, world, policy=policy, mechanism=mechanism, trained=played.get("trained", ())
        )
    success = {c: Outcomes.of([g.lifecycles[0] for g in groups]).success.mean(axis=0) for c, groups in played.items()}
    assert success["oracle_context"].min() == 1.0
    assert success["no_context"].max() < 0.8
    assert success["trained"][0] == success["no_context"][0], "the same prompt, the same noise"
    assert success["shuffled_context"][3] < success["trained"][3] - 0.2


@each("control", [one.name for one in REFERENCES])
def test_references_play_the_first_packs_of_the_suite_whatever_the_policy(control: str) -> None:
    suite = Suite(name="few", num_packs=5, pack_size=4, reference_packs=2, controls=tuple(CONTROLS))
    groups = echoed(suite, control, WORLD)
    assert [group.pack for group in groups] == suite.packs(WORLD)[:2]
    if control == "oracle":
        assert all(solve.success for group in groups for solve in group.lifecycles[0].solves)


def test_a_world_whose_reference_of_a_later_pack_raises_is_named_beside_the_suite() -> None:
    class Forgetful(LeverPlayers):
        def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
            if pack.id.endswith("1"):
                raise KeyError(pack.id)
            return super().reference(kind, pack)

    class Own(Levers):
        companions = (Forgetful, *Levers.companions)

    with pytest.raises(ConfigError, match=r"data\.suites\.echo is Own; .* whose references raise nothing \(KeyError"):
        echoed(SUITE, "oracle", Own())


@each("world", [NonStationary(WORLD), WrappedWorld(NonStationary(WORLD)), Mixture({"one": NonStationary(WORLD)})])
def test_the_oracle_knows_the_rule_before_and_after_a_change(world: TextEnv) -> None:
    suite = Suite(name="changing", num_packs=30, pack_size=5, controls=tuple(CONTROLS))
    for group in echoed(suite, "oracle", world):
        (life,) = group.lifecycles
        assert [episode.position for episode in life.episodes] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
        assert all(solve.success for solve in life.solves)
        assert [update.status for update in life.updates].count(EpisodeStatus.SKIPPED) == 1


class Counting(RolloutMonitor):
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.lives = 0

    def begin(self, label: str, num_lifecycles: int, num_tasks: int) -> None:
        self.begun.append(f"{label} {num_lifecycles} {num_tasks}")

    def episode(self, episode: Episode) -> None: ...

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        self.lives += 1


@each("control", ["no_context", "scripted"])
def test_the_monitor_gets_every_lifecycle(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Counting()
    monkeypatch.setattr("tests.evaluation.echoes.RolloutMonitor", lambda: monitor)
    echoed(SUITE, control, WORLD)
    assert monitor.begun == [f"test_echo_{control} 3 3"]
    assert monitor.lives == 3


class OneContext(Control):
    name = "one_context"

    def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
        return replace(setting, program=Controlled(program=setting.program, shown=TextState("mine")))


def test_a_control_of_one_s_own_is_chosen_by_its_class_path_and_played() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--suite", type=Suite)
    controls = ["oracle", {"class_path": f"{__name__}.OneContext"}]
    parsed = parser.parse_object({"suite": {"name": "a", "num_packs": 2, "pack_size": 3, "controls": controls}})
    for group in echoed(parser.instantiate(parsed).suite, "one_context", WORLD):
        assert shown(group) == [with_hint("mine")] * 3


class Elsewhere(Control):
    name = "../elsewhere"


class Raising(Control):
    name = "raising"

    def setting(self, setting: Setting, packs: Sequence[Pack], trained: Sequence[Group]) -> Setting:
        raise KeyError("no")


def test_a_control_of_one_s_own_whose_name_is_none_or_that_raises_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.suites\.a\.controls is .* expected names, parts of file names"):
        Suite(name="a", controls=(Elsewhere(),))
    suite = Suite(name="a", num_packs=2, pack_size=3, controls=(Raising(),))
    with pytest.raises(ConfigError, match=r"data\.suites\.a is Raising; expected a control .* \(KeyError"):
        echoed(suite, "raising", WORLD)


@each("name", ["trained", "oracle", "warm_start", "warm_start_t0.5", "warm_start_blanked", "endpoint"])
def test_a_control_of_one_s_own_cannot_have_the_name_of_another_condition(name: str) -> None:
    class Same(OneContext): ...

    Same.name = name
    with pytest.raises(ConfigError, match=r"data\.suites\.a\.controls is .* expected each once"):
        Suite(name="a", controls=("blanked_context", "oracle", Same()))


@every_world
def test_the_oracle_of_every_world_writes_a_context_that_can_be_read(name: str) -> None:
    world, mechanism = WORLDS[name].make(), HintContext(WORLDS[name].protocol, response_limit=None)
    packs = [world.sample_pack(split=Split.TEST, index=0, num_tasks=3)]
    for contexts in oracle_contexts(world, packs, mechanism):
        assert contexts[0].text
        assert contexts == [contexts[0]] * 3


def test_the_first_context_of_a_changing_pack_speaks_of_the_first_rule_and_later_ones_of_the_second() -> None:
    world = NonStationary(Levers(protocol="compact"), change_at=1)
    pack = world.sample_pack(split=Split.TEST, index=0, num_tasks=4)
    (contexts,) = oracle_contexts(world, [pack], HintContext("compact"))
    assert len(contexts) == 4
    assert contexts[0] != contexts[1] == contexts[2] == contexts[3]
    for context, task in zip(contexts, pack.tasks, strict=True):
        facts = [f"{n}={colour}" for n, colour in enumerate(task.spec.colours, start=1)]  # pyright: ignore
        assert sorted(context.text.split()) == sorted(facts)


def test_an_oracle_that_writes_nothing_is_refused_by_name() -> None:
    class Silent(TextPolicy):
        def act(self, messages, rng):
            return "?"

        def note(self, messages, rng):
            return ""

    class SilentPlayers(Players):
        def reference(self, kind, pack):
            return Silent()

    class Mute(Levers):
        companions = (SilentPlayers, *Levers.companions)

    world = Mute()
    pack = world.sample_pack(split=Split.TEST, index=0, num_tasks=2)
    with pytest.raises(ConfigError, match=r"model\.scorers\.one is Privileged"):
        check_oracle(world, pack, HintContext(), "model.scorers.one", "Privileged", "Remove it.")


def shuffled(lives: list[Lifecycle]) -> list[Any]:
    """The contexts that each of these begins its tasks with under the control."""
    groups = [Group(pack=pack(life.pack_id, len(life.solves)), lifecycles=(life,)) for life in lives]
    setting = Setting(env=Levers(), mechanism=HintContext(), sampler=scripted_sampler(Echo(), HintContext()))
    program: Any = ShuffledContext().setting(setting, [group.pack for group in groups], groups).program
    return list(program.contexts.values())


def test_a_context_that_never_was_is_not_an_empty_one() -> None:
    whole = lifecycle("a", (True, True), context="x")
    episodes = (solve(0, True), update(0), lifecycle("c", (True, None)).episodes[-1])
    failed = Lifecycle(pack_id="b", sibling=0, episodes=episodes)
    assert shuffled([whole, failed])[0] == [TextState(), TextState()], "the failed episode saw its context"
    skipped = Episode(kind=EpisodeKind.SOLVE, position=1, status=EpisodeStatus.SKIPPED)
    broken = Lifecycle(pack_id="b", sibling=0, episodes=(solve(0, True), update(0), skipped))
    assert shuffled([whole, broken])[0] == [TextState(), None]
