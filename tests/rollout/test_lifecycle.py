"""The loop of the paper, with an engine whose every word is known."""

import math
import threading
from dataclasses import replace

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Scripted, Words, beside
from cod_lightning.envs.base import Traits, Vocabulary
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.segments import segments_of
from cod_lightning.rollout.setting import RolloutMonitor
from cod_lightning.types import EpisodeKind, EpisodeStatus, StopReason
from tests.cases import each
from tests.stubs import FunctionEngine, WordWorld
from tests.word_play import CHAT, SAY_W1, play


def live(engine, world=None, **more):
    """A lifecycle, or some siblings."""
    (group,) = play(engine, world, **more)
    return group


def test_solves_and_updates_interleave_none_follows_the_last_task_and_each_task_reads_what_the_update_before_wrote():
    engine = FunctionEngine(lambda _: SAY_W1)
    (lifecycle,) = live(engine).lifecycles
    assert [(e.kind.value, e.position) for e in lifecycle.episodes] == [
        ("solve", 0),
        ("update", 0),
        ("solve", 1),
        ("update", 1),
        ("solve", 2),
    ]
    assert lifecycle.solves[0].context_before == ""
    assert [e.context_before for e in lifecycle.solves[1:]] == ["w1", "w1"]
    prompts = [CHAT.tokenizer.decode(list(ids)) for ids in engine.prompts]
    assert sum("rules w1" in prompt for prompt in prompts) == 2 * 3  # three turns in each later task


@each(("where", "num_before"), [(".0", 0), (".1", 2)])
def test_a_world_that_raises_costs_one_lifecycle_and_what_never_began_is_skipped_under_its_own_name(where, num_before):
    engine = FunctionEngine(lambda _: SAY_W1)
    (life,) = live(engine, WordWorld(raise_in=where)).lifecycles
    before, after = [EpisodeStatus.COMPLETED] * num_before, [EpisodeStatus.SKIPPED] * (4 - num_before)
    assert [e.status for e in life.episodes] == [*before, EpisodeStatus.FAILED, *after]
    failed = life.episodes[num_before]
    assert (failed.reward, failed.error) == (None, "EnvironmentFailure: RuntimeError: the world is broken")
    assert len(engine.released) == num_before, "what began is released"
    (whole,) = live(engine).lifecycles
    assert [(e.kind, e.position) for e in life.episodes] == [(e.kind, e.position) for e in whole.episodes]


@each(("low", "reward"), [(0.0, 0.0), (-1.0, -1.0), (-math.inf, 0.0)])
def test_a_full_window_truncates_the_episode_is_worth_no_more_than_losing_and_is_never_exceeded(low, reward):
    world, engine = WordWorld(), FunctionEngine(lambda _: SAY_W1)
    world.traits = Traits(reward_range=(low, 1.0))
    group = live(engine, world, num_tasks=1, window=15)
    (episode,) = group.lifecycles[0].episodes
    assert (episode.status, episode.reward) == (EpisodeStatus.TRUNCATED, reward)
    assert episode.turns[-1].stop is StopReason.WINDOW
    assert max(len(prompt) for prompt in engine.prompts) < 15
    assert all(len(row.token_ids) <= 15 for row in segments_of([group]))


class SolvedFromTheFirst(WordWorld):
    """A world that says so at once."""

    success = True


def test_a_task_that_was_cut_off_is_no_success_whatever_its_world_says():
    engine = FunctionEngine(lambda _: SAY_W1)
    (episode,) = live(engine, SolvedFromTheFirst(), num_tasks=1, window=15).lifecycles[0].episodes
    assert (episode.status, episode.reward, episode.success) == (EpisodeStatus.TRUNCATED, 0.0, False)


def test_the_monitor_hears_of_every_episode():
    class Listening(RolloutMonitor):
        def __init__(self):
            self.calls = []

        def begin(self, label, num_lifecycles, num_tasks):
            self.calls.append(("begin", num_lifecycles, num_tasks))

        def episode(self, episode):
            self.calls.append(episode.kind)

        def lifecycle(self, lifecycle):
            self.calls.append("lifecycle")

    monitor = Listening()
    live(FunctionEngine(lambda _: SAY_W1), num_tasks=2, setting={"monitor": monitor})
    solve, update = EpisodeKind.SOLVE, EpisodeKind.UPDATE
    assert monitor.calls == [("begin", 1, 2), solve, update, solve, "lifecycle"]


@each("method", ["step", "close"])
def test_worlds_that_wait_for_something_outside_wait_at_the_same_time(method):
    together, inside = threading.Event(), []

    class Waiting(WordWorld):
        traits = Traits(blocking=True)

        def wait(self):
            inside.append(self)
            if len(inside) == 100:
                together.set()
            together.wait(timeout=20)

        def step(self, action):
            self.wait() if method == "step" else None
            return super().step(action)

        def close(self):
            self.wait() if method == "close" else None

    world = Waiting(max_turns=1)
    lives = live(FunctionEngine(lambda _: SAY_W1), world, num_tasks=1, num_siblings=100).lifecycles
    assert all(life.solves[0].reward is not None for life in lives)
    assert together.is_set(), f"all siblings were in {method} at once"


class ScriptedWorld(WordWorld):
    """One turn; then what it was made with."""

    def __init__(self, reward=1.0, solved=True, feedback="w7 w8"):
        super().__init__(max_turns=1)
        self.reward, self.solved, self.feedback = reward, solved, feedback

    @property
    def success(self):
        return self.solved

    def step(self, action):
        return self.feedback, self.reward, True, False, {}


@each(("reward", "solved"), [(0.0, True), (0.4, False), (1.0, True), (0.0, False)])
def test_whether_a_task_was_solved_is_the_worlds_to_say_whatever_the_reward_is(reward, solved):
    (life,) = live(FunctionEngine(lambda _: SAY_W1), ScriptedWorld(reward, solved)).lifecycles
    assert [(e.reward, e.success) for e in life.solves] == [(reward, solved)] * 3


def test_the_last_observation_of_a_task_is_its_feedback_and_what_the_update_is_shown():
    (life,) = live(FunctionEngine(lambda _: SAY_W1), ScriptedWorld(feedback="w7 w8 w9")).lifecycles
    assert [e.feedback for e in life.solves] == ["w7 w8 w9"] * 3
    assert [e.turns[0].observation for e in life.updates] == ["w7 w8 w9"] * 2


@each(
    ("reward", "most"),
    [*((one, 1.0) for one in (-0.001, 1.001, math.nan, -math.inf)), *((one, math.inf) for one in (math.nan, math.inf))],
)
def test_a_reward_below_or_above_the_range_or_not_finite_is_a_failure_of_the_world(reward, most):
    world = ScriptedWorld(reward)
    world.traits = Traits(reward_range=(0.0, most))
    (life,) = live(FunctionEngine(lambda _: SAY_W1), world).lifecycles
    assert (life.episodes[0].fault, life.episodes[0].reward) == ("EnvironmentFailure", None)


class OpenVocabularyVocabulary(Vocabulary):
    def words(self):
        return ()


class OpenVocabulary(WordWorld):
    """A world that says no words of its own, as one in sentences does."""

    companions = (OpenVocabularyVocabulary, *WordWorld.companions)


@each("world", [WordWorld, OpenVocabulary])
def test_a_turn_that_the_window_cut_off_ends_the_episode_and_keeps_its_tokens(world):
    engine = FunctionEngine(lambda _: CHAT.encode("w1 w2 w3 w4"))
    first = len(live(engine, world(), num_tasks=1).lifecycles[0].episodes[0].turns[0].new_ids)
    (life,) = live(engine, world(), num_tasks=1, window=first + 2).lifecycles
    (episode,) = life.episodes
    assert (episode.status, episode.reward, episode.success) == (EpisodeStatus.TRUNCATED, 0.0, False)
    assert [(turn.stop, turn.response) for turn in episode.turns] == [(StopReason.WINDOW, "w1 w2")]
    if world is OpenVocabulary:
        assert "window" in episode.feedback
    else:
        assert episode.feedback == "", "a closed vocabulary has no words for it"


HINT_CHAT = Chat(TinyPolicy().tokenizer((*WordWorld().words(), *beside(HintContext("compact"), Words).words())))


def live_with_hint(says, context, world=None, num_tasks=2, **sampler):
    """With the compact hint; a solve is always answered by a word, an update by what `says` has for it."""
    world = world or ScriptedWorld()
    asked = []

    def answer(request):
        updating = beside(context, Scripted).asks(request.messages)
        asked.append((updating, len(request.prompt_ids)))
        return HINT_CHAT.encode(says(request)) if updating else (*HINT_CHAT.encode("w1"), HINT_CHAT.end_of_turn)

    engine, sampler = FunctionEngine(answer, stop_id=HINT_CHAT.end_of_turn), {"max_new_tokens": 8} | sampler
    (group,) = play(engine, world, context, num_tasks=num_tasks, chat=HINT_CHAT, **sampler)
    return group.lifecycles[0], [length for updating, length in asked if updating]


END = HINT_CHAT.decode((HINT_CHAT.end_of_turn, 0))[: -len(HINT_CHAT.decode((0,)))].strip()


@each(("on_failure", "kept"), [("keep", "w3"), ("lose", "")])
def test_an_update_that_does_not_parse_leaves_to_the_next_task_what_the_mechanism_says(on_failure, kept):
    said = {"1": f"<hints> w3 </hints> {END}", "3": f"w3 {END}"}
    context = HintContext("compact", on_failure=on_failure)
    life, _ = live_with_hint(lambda request: said[request.dialogue.rpartition(".")[2]], context, num_tasks=3)
    assert [e.context_before for e in life.episodes] == ["", "", "w3", "w3", kept]
    assert [e.context_after for e in life.episodes] == ["", "w3", "w3", kept, kept]


def test_an_update_that_does_not_parse_is_malformed_if_it_ended_itself_and_truncated_if_it_was_cut_off():
    world = ScriptedWorld(feedback=" ".join(["w5"] * 30))
    ended, (prompt,) = live_with_hint(lambda _: f"w3 {END}", HintContext("compact"), world)
    by_length, _ = live_with_hint(lambda _: "w3 w3 w3 w3", HintContext("compact"), world, max_new_tokens=3)
    by_window, _ = live_with_hint(lambda _: "w3 w3 w3 w3", HintContext("compact"), world, window=prompt + 2)
    no_room, _ = live_with_hint(lambda _: "w3", HintContext("compact"), world, window=prompt)
    assert "occurs 0 times" in ended.updates[0].feedback, "why it did not parse"
    found = [life.updates[0] for life in (ended, by_length, by_window, no_room)]
    assert [(e.turns[0].stop, len(e.turns[0].action_ids)) for e in found] == [
        (StopReason.STOP, 2),
        (StopReason.LENGTH, 3),
        (StopReason.WINDOW, 2),
        (StopReason.WINDOW, 0),
    ]
    assert [e.status for e in found] == [EpisodeStatus.MALFORMED] + [EpisodeStatus.TRUNCATED] * 3
    assert [(e.reward, e.success) for e in found] == [(-0.1, False)] * 4


def noise(num_siblings=2, **sampler):
    """The noise seed of every turn, by the name of its dialogue."""
    engine = FunctionEngine(lambda _: SAY_W1)
    live(engine, num_tasks=2, num_siblings=num_siblings, **sampler)
    return {(r.dialogue, len(r.messages)): r.noise_seed for r in engine.requests}


def test_every_turn_has_noise_of_its_own_that_goes_by_run_seed_version_and_identity_alone():
    seeds = noise()
    assert len(set(seeds.values())) == len(seeds) == 2 * (3 + 1 + 3)
    more = noise(num_siblings=3)
    assert {key: more[key] for key in seeds} == seeds
    for change in ({"seed": 1}, {"policy_version": 1}):
        assert not set(noise(**change).values()) & set(seeds.values())


def test_an_engine_is_asked_with_the_temperature_of_the_run_in_every_turn():
    engine = FunctionEngine(lambda _: SAY_W1)
    live(engine, temperature=0.3)
    assert {r.temperature for r in engine.requests} == {0.3}
    assert {r.max_new_tokens for r in engine.requests} == {4}


def test_a_turn_that_fills_its_own_limit_and_the_window_at_once_is_answered_by_the_world():
    engine = FunctionEngine(lambda _: CHAT.encode("w1 w2 w3 w4"))
    first = len(live(engine, num_tasks=1).lifecycles[0].episodes[0].turns[0].new_ids)
    (life,) = live(engine, ScriptedWorld(reward=0.7), num_tasks=1, window=first + 4).lifecycles
    (episode,) = life.episodes
    assert (episode.status, episode.reward) == (EpisodeStatus.COMPLETED, 0.7)
    assert [turn.stop for turn in episode.turns] == [StopReason.LENGTH]


class Repeating(ScriptedWorld):
    """Asks for the second task again, and says how an episode ended."""

    def sample_pack(self, **identity):
        pack = super().sample_pack(**identity)
        return replace(pack, tasks=tuple(replace(task, repeat=n == 1) for n, task in enumerate(pack.tasks)))

    @property
    def status(self):
        return EpisodeStatus.MALFORMED


def test_an_episode_says_which_task_it_was_of_whether_that_was_asked_before_and_how_the_world_ended_it():
    (life,) = live(FunctionEngine(lambda _: SAY_W1), Repeating()).lifecycles
    assert [e.position for e in life.solves] == [0, 1, 2]
    assert [e.position for e in life.updates] == [0, 1]
    assert [e.repeat for e in life.solves] == [False, True, False]
    assert {e.status for e in life.solves} == {EpisodeStatus.MALFORMED}
    assert [e.context_after for e in life.solves] == [e.context_before for e in life.solves] == ["", "w1", "w1"]


def test_an_update_that_the_engine_failed_keeps_the_context_and_nothing_follows_it():
    def answer(request):
        if request.dialogue.endswith(".3"):
            raise ConnectionError("gone")
        return SAY_W1

    (life,) = live(FunctionEngine(answer)).lifecycles
    failed = life.episodes[3]
    assert (failed.kind, failed.position, failed.status) == (EpisodeKind.UPDATE, 1, EpisodeStatus.FAILED)
    assert (failed.context_before, failed.context_after) == ("w1", "w1")
    assert [(e.kind, e.position, e.status) for e in life.episodes[4:]] == [
        (EpisodeKind.SOLVE, 2, EpisodeStatus.SKIPPED)
    ]
