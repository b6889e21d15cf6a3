"""Optimal Control: packs and references; what it says is in dialogues.txt."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.base import HiddenRules, Players, Reference, Vocabulary, beside
from cod_lightning.envs.control import OptimalControl
from cod_lightning.envs.control.fused import LAWS, law_of
from cod_lightning.envs.control.plans import best_plan
from cod_lightning.envs.control.plant import run
from cod_lightning.errors import ConfigError
from cod_lightning.types import Message, Role, Split
from tests.envs.cases import WORLDS
from tests.envs.scripted_life import live

COMPACT = WORLDS["control-compact"].make.keywords


def test_the_compact_protocol_shows_the_last_law_by_its_grade():
    parameters = COMPACT | {"world_memory": True}
    env = OptimalControl(**parameters)
    words = set(beside(env, Vocabulary).words())
    for index in range(20):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        for kind in Reference:
            lived = live(copy.deepcopy(env), pack, kind, index)
            assert all(set(life.text.split()) <= words for life in lived)
            assert "had=" not in lived[0].text
            assert "had=" in lived[1].text


def test_the_law_of_an_earlier_task_tells_what_no_note_does_and_a_note_counts_for_more():
    env = OptimalControl(world_memory=True)
    known = 0
    for index in range(8):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
        play, truth = beside(env, Players).play(pack)
        _, shown, *_ = live(copy.deepcopy(env), pack, Reference.ORACLE, index)[1].messages
        known += play.known([Message(Role.SYSTEM, env.rules), shown], trust_context=True).knows_b
        noted = Message(Role.SYSTEM, f"{env.rules} {play.write(truth)}")
        assert play.known([noted, shown], trust_context=True) == env.wording.noted(noted.content)
    assert known > 0


@given(index=st.integers(0, 10**6), num_tasks=st.integers(1, 16), split=st.sampled_from(list(Split)))
def test_plants_and_tasks_lie_within_their_ranges(index, num_tasks, split):
    env = OptimalControl()
    pack = env.sample_pack(split=split, index=index, num_tasks=num_tasks)
    for each in pack.tasks:
        spec = each.spec
        assert 0.55 <= spec.a <= 1.2
        assert 0.35 <= abs(spec.b) <= 1.5
        assert (abs(spec.x) <= 2, abs(spec.v) <= 1.5, abs(spec.target_x) <= 8) == (True, True, True)


def test_a_range_without_another_plant_is_an_error_that_names_the_remedy():
    env = OptimalControl(a_min=1.0, a_max=1.0, b_min=1.0, b_max=1.0)
    splits = iter(Split)
    with pytest.raises(ConfigError) as caught:
        [env.sample_pack(split=split, index=0, num_tasks=1) for split in splits]
    assert caught.value.remedy


def test_in_compact_play_the_sign_the_size_and_the_decay_all_matter():
    used = set()
    env = OptimalControl(**COMPACT)
    for index in range(60):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
        used |= {life.messages[2].content for life in live(env, pack, Reference.ORACLE)}
    assert used == {f"<answer>{law}</answer>" for law in LAWS}


def test_the_oracle_steers_as_well_as_the_best_plan_and_in_words_as_the_best_law():
    for env in (OptimalControl(world_memory=False), OptimalControl(**COMPACT)):
        for index in range(10):
            pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
            for lived, task in zip(live(env, pack, Reference.ORACLE), pack.tasks, strict=True):
                spec, plan = task.spec, best_plan(task.spec)
                planned = run(spec, lambda t, x, v, plan=plan: plan[t]).reward
                worded = max(run(spec, law_of(word, spec.target_x)).reward for word in LAWS)
                assert lived.reward == pytest.approx(worded if env.rules == "control" else planned, abs=0.03)


def test_after_a_change_the_scripted_note_follows_within_a_task():
    env = OptimalControl(world_memory=False)
    for index in range(20):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        changed = beside(env, HiddenRules).changed(pack, at=2, seed=0)
        lived = live(env, changed, Reference.SCRIPTED)
        noted = env.wording.noted(lived[2].note)
        assert noted.a == pytest.approx(changed.tasks[2].spec.a, abs=3 * noted.a_error)
        assert noted.b == pytest.approx(changed.tasks[2].spec.b, abs=3 * noted.b_error)
        assert lived[3].reward > 0.8
