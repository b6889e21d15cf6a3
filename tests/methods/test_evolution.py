"""Evolution of what an agent begins with: who is drawn, what is kept and what is refused."""

import math
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Stored
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.base import Players, Reference, TextPolicy, Traits, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ContextFailure
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.methods import evolution as evolution_module
from cod_lightning.methods import evolution_command
from cod_lightning.methods.evolution import Evolution, drawn_parent, score
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Lifecycle, Split
from tests.cases import each

SECRET = "Pull with both hands"


class Weak(TextPolicy):
    """Plays at random, and by what it knows only if the context says the secret, which it finds out by reflection alone."""

    def __init__(self, env, pack, says=SECRET):
        self.scripted, self.random = (
            beside(env, Players).reference(Reference.SCRIPTED, pack),
            beside(env, Players).reference(Reference.RANDOM, pack),
        )
        self.says = says

    def act(self, messages, rng):
        return (self.scripted if SECRET in messages[0].content else self.random).act(messages, rng)

    def note(self, messages, rng):
        text = "\n".join(message.content for message in messages)
        if "several agents" in text:
            return self.says
        return f"{self.scripted.note(messages, rng)}{f' {SECRET}' if SECRET in text else ''}"


def evolution(says=SECRET, mechanism=None, env=None, seed=0):
    env, mechanism = env or Levers(), mechanism or HintContext()
    selection = [env.sample_pack(split=Split.VALIDATION, index=i, num_tasks=4) for i in range(8)]
    sampler = scripted_sampler(Weak(env, selection[0], says), mechanism)
    return Evolution(
        Setting(env=env, mechanism=mechanism, sampler=sampler),
        selection,
        lambda index: [env.sample_pack(split=Split.TRAIN, index=3 * index + n, num_tasks=4) for n in range(3)],
        seed,
    )


@each("mechanism", [HintContext(), NotebookContext()])
def test_a_rewrite_that_helps_becomes_a_candidate_and_the_best(mechanism):
    one = evolution(mechanism=mechanism)
    (first,) = one.rounds(1)
    assert not first.refused
    assert first.after > first.before + 0.2
    assert [candidate.parent for candidate in one.candidates] == [None, 0]
    assert SECRET in one.best.text
    assert one.best.mean > one.candidates[0].mean + 0.2
    assert mechanism.text(one.best.state) == one.best.text
    assert one.num_lifecycles == 8 + 3 + 3 + 8


def test_the_best_is_so_in_the_packs_in_which_all_candidates_have_a_score():
    one = evolution()
    (first,) = one.candidates
    scores = [(0.5, 0.2, math.nan), (0.4, math.nan, 1.0), (0.6, 0.0, 0.0)]
    one.candidates = [replace(first, scores=of) for of in scores]
    assert one.best is one.candidates[2]
    one.candidates = [replace(first, scores=of) for of in [(math.nan, 0.2), (0.4, math.nan), (0.3, math.nan)]]
    assert one.best is one.candidates[1]


def test_a_rewrite_that_does_no_better_or_says_the_same_is_refused_and_selection_packs_are_not_played():
    one = evolution(says="nothing that helps")
    (first,) = one.rounds(1)
    assert first.refused == "it does no better"
    assert (len(one.candidates), one.best.text) == (1, "")
    good = evolution()
    rounds = list(good.rounds(3))
    assert [bool(this.refused) for this in rounds] == [False, True, True]
    assert rounds[1].refused == "it is a candidate already"


def test_a_rewrite_that_cannot_be_read_is_refused_with_its_reason():
    one = evolution()
    engine = one.setting.sampler.engine
    assert isinstance(engine, ScriptedEngine)
    one.setting = evolution(says="--- Start of updated hints ---").setting
    (first,) = one.rounds(1)
    assert "Start of updated hints" in first.refused or "delimiter" in first.refused
    assert len(one.candidates) == 1


def test_a_record_that_fills_the_window_is_named_as_that():
    one = evolution()
    one.setting = replace(one.setting, sampler=replace(one.setting.sampler, window=6000))
    (first,) = one.rounds(1)
    assert (one.candidates[0].mean > 0, first.refused) == (True, evolution_module._FULL)


def test_an_environment_that_raises_leaves_rewards_missing_and_no_candidate():
    class Broken(Levers):
        def step(self, action):
            raise RuntimeError("jammed")

    one = evolution(env=Broken())
    (first,) = one.rounds(1)
    assert first.refused == "rewards are missing in all of the round's packs"
    assert all(map(math.isnan, one.candidates[0].scores))
    assert one.best.mean == -math.inf


@each("method", ["empty", "text", "dump"])
def test_a_mechanism_that_raises_before_there_is_a_candidate_ends_the_evolution_by_its_name(method):
    def jammed(*_):
        raise RuntimeError("jammed")

    kept = type("Kept", (Stored,), {"dump": jammed})
    own = {"companions": (kept, *HintContext.companions)} if method == "dump" else {method: jammed}
    broken = type("Broken", (HintContext,), own)
    with pytest.raises(ContextFailure, match="Broken raised RuntimeError: jammed"):
        evolution(mechanism=broken())


def test_a_rewrite_that_the_mechanism_cannot_store_is_refused():
    class Kept(Stored):
        def dump(self, state):
            return super().dump(state) if state == self.of.empty() else 1 / 0

    class Forgetful(HintContext):
        companions = (Kept, *HintContext.companions)

    one = evolution(mechanism=Forgetful())
    (first,) = one.rounds(1)
    assert first.refused == "ContextFailure: Forgetful raised ZeroDivisionError: division by zero"
    assert len(one.candidates) == 1


def test_a_lifecycle_without_a_task_has_no_score():
    assert math.isnan(score(Lifecycle(pack_id="p", sibling=0, episodes=())))


@each("hides", [False, True])
def test_a_reward_that_the_environment_hides_is_hidden_from_reflection_too(hides):
    class Hiding(Levers):
        traits = Traits(hides_reward=hides)

    seen = []

    class Watching(Weak):
        def note(self, messages, rng):
            seen.append("\n".join(message.content for message in messages))
            return super().note(messages, rng)

    one = evolution(env=Hiding())
    setting, mechanism = one.setting, one.setting.mechanism
    one.setting = replace(setting, sampler=scripted_sampler(Watching(setting.env, one.selection[0]), mechanism))
    list(one.rounds(1))
    (reflected,) = [text for text in seen if "several agents" in text]
    assert ("# Reward" in reflected, "steps, reward" in reflected) == (not hides, not hides)


def test_what_reflection_writes_is_shown_as_handed_over_before_the_first_task():
    one = evolution(mechanism=NotebookContext(provenance=True))
    list(one.rounds(1))
    system = one.setting.mechanism.prepare(one.best.state, "rules", "").system
    assert f'[handed over before the first task] "{SECRET}"' in system


def test_it_comes_to_the_same_again():
    first, again = evolution(), evolution()
    assert [(r.parent, r.before, r.after, r.text) for r in first.rounds(2)] == [
        (r.parent, r.before, r.after, r.text) for r in again.rounds(2)
    ]
    assert [one.scores for one in first.candidates] == [one.scores for one in again.candidates]


@given(
    scores=st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 1.0, math.nan]), min_size=width, max_size=width), min_size=1, max_size=5
        )
    ),
    seed=st.integers(0, 50),
)
def test_who_is_drawn_is_best_somewhere_and_dominated_by_none(scores, seed):
    number = drawn_parent(np.array(scores), random.Random(seed))
    known = [[-math.inf if math.isnan(value) else value for value in row] for row in scores]
    best = [max(column) for column in zip(*known, strict=True)]
    if max(best) == -math.inf:
        assert number == 0
        return
    assert any(value == top > -math.inf for value, top in zip(known[number], best, strict=True))
    for other in known:
        at_least = all(theirs >= own for theirs, own in zip(other, known[number], strict=True))
        assert not (at_least and other != known[number])


def test_odds_go_by_the_number_of_packs_in_which_none_is_better():
    scores = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5]])
    drawn = [drawn_parent(scores, random.Random(n)) for n in range(400)]
    assert 2 not in drawn
    assert 0.65 < drawn.count(0) / 400 < 0.85


@each("written", range(3))
def test_a_kill_before_all_of_its_files_are_there_leaves_a_folder_that_is_not_refused(tmp_path, written, monkeypatch):
    names, write = [], evolution_command.write_whole

    def dies(path, content):
        if len(names) == written:
            raise InterruptedError
        names.append(path.name)
        write(path, content)

    monkeypatch.setattr(evolution_command, "write_whole", dies)
    one = evolution()
    with pytest.raises(InterruptedError):
        evolution_command._write(tmp_path, SimpleNamespace(asked={"data": {"context": {}}}), one, [])
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    assert "evolution.json" not in names, "a folder with it is refused"
