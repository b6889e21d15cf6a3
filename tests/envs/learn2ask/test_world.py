"""Learn2Ask in the synthetic clinic: scores, feedback, packs, references."""

import copy
import random

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs import TeacherDials
from cod_lightning.envs.base import HiddenRules, Players, Reference, Vocabulary, beside
from cod_lightning.envs.learn2ask import Judge, JudgeVerdict, Learn2Ask
from cod_lightning.envs.learn2ask.clinic import Clinics, ClinicTask, turns_of
from cod_lightning.envs.learn2ask.items import BY_NAME, ITEMS
from cod_lightning.envs.learn2ask.protocol import ProtocolTable
from cod_lightning.envs.learn2ask.wording import MAXIMA
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeStatus, Message, Role, Split, Task
from tests.asked import shown
from tests.envs.scripted_life import live, reward_by_position, success_by_position

NAMES = tuple(item.name for item in ITEMS[:6])
SMALL = {"num_items": 6, "num_required": 2, "num_conditions": 3}


def _task(mentioned=("pain", "fever"), required=("allergy", "fever")) -> Task:
    spec = ClinicTask(
        condition="cold",
        opening=0,
        mentioned=mentioned,
        phrasing=(0,) * len(mentioned),
        required=required,
        priority=NAMES,
        items=NAMES,
        roles=("Patient", "Assistant"),
    )
    return Task(id="0", seed=0, spec=spec)


def _step(answer: str, task: Task | None = None, **parameters):
    env = Learn2Ask(**{**SMALL, **parameters})
    env.reset(options={"task": task or _task()})
    feedback, reward, terminated, truncated, _ = env.step(answer)
    assert (terminated, truncated) == (True, False)
    return env, feedback, reward


ENOUGH = _task(mentioned=("allergy", "fever"))
GOOD = "I wonder. <answer>Do you have an allergy: none, to drugs or to food?</answer>"
KIN = "<answer>Do you take medication: none, one or several?</answer>"
OTHER = "<answer>Have you had this for days, weeks or months? How long?</answer>"
STOP = "<answer><stop /></answer>"


@pytest.mark.parametrize(
    ("answer", "task", "scores", "success"),
    [
        (GOOD, _task(), (1, 1, 1), True),
        (KIN, _task(), (1, 0.5, 1), False),
        (OTHER, _task(), (1, 0, 0.5), False),
        (STOP, _task(), (0, 0, 0), False),
        (GOOD, ENOUGH, (0, 0, 0), False),
        (STOP, ENOUGH, (1, 1, 1), True),
        ("<answer>I would <stop /> here.</answer>", ENOUGH, (1, 1, 0), True),
        ("no tags", ENOUGH, (0, 0, 0), False),
    ],
)
@pytest.mark.parametrize("fusion", MAXIMA)
def test_rewards_follow_the_formula_of_each_fusion(answer, task, scores, success, fusion):
    action, content, form = scores
    expected = {
        "Ra+Rs": action * (1 + 2 * content) + form,
        "sum": action + content + form,
        "Ra": 2 * content + form,
        "Rs": 3 * action + form,
    }[fusion]
    env, _, reward = _step(answer, task, fusion=fusion, normalise=False)
    assert (reward, env.success) == (expected, success)
    assert env.traits.reward_range == (0, MAXIMA[fusion])
    env, _, share = _step(answer, task, fusion=fusion)
    assert share == pytest.approx(expected / MAXIMA[fusion])
    assert env.traits.reward_range == (0, 1)


@pytest.mark.parametrize(
    ("answer", "task", "words"),
    [
        ("ask=allergy", _task(), "right want=allergy"),
        ("ask=medication", _task(), "near want=allergy medication=no"),
        ("ask=duration", _task(), "wrong want=allergy duration=no"),
        ("ask=fever", _task(), "wrong want=allergy"),
        ("<stop/>", _task(), "early want=allergy"),
        ("ask=pain", ENOUGH, "late duration=no chronic=no pain=no medication=no"),
        ("<stop />", ENOUGH, "stopped duration=no chronic=no pain=no medication=no"),
        ("ask=sleep", _task(), "malformed"),
        ("allergy", _task(), "malformed"),
    ],
)
def test_compact_feedback_sums_up_what_was_found_out(answer, task, words):
    assert _step(f"<answer>{answer}</answer>", task, protocol="compact")[1] == words


@pytest.mark.parametrize(
    ("answer", "task", "said"),
    [
        (GOOD, _task(), ["straight for", "allergy is required.", "4 of 4"]),
        (KIN, _task(), ["came close", "allergy is required; medication is not required."]),
        (
            OTHER,
            _task(),
            ["not this one", "allergy is required; duration is not required.", "two questions", "1.5 of 4"],
        ),
        (STOP, _task(), ["too early", "allergy is required.", "0 of 4"]),
        (GOOD, ENOUGH, ["too late", "pain is not required"]),
        (STOP, ENOUGH, ["Stopping was right", "medication is not required"]),
        ("<answer>?</answer>", _task(), ["holds no word", "<answer>...</answer>", "<stop />"]),
    ],
)
def test_sentences_say_the_same(answer, task, said):
    feedback = _step(answer, task)[1]
    assert [part for part in said if part not in feedback] == []
    assert len(feedback) < 1000


def test_a_question_that_lists_everything_neither_pays_nor_teaches_more_than_one_item():
    listing = ", ".join(BY_NAME[name].title for name in NAMES)
    env, feedback, reward = _step(
        f"<answer>Is there {listing} or none?</answer>", _task(required=("allergy", "chronic"))
    )
    assert not env.success
    assert reward <= 0.5
    assert feedback.count("required") == 1


def test_a_raw_response_is_the_answer_as_in_the_reference():
    assert _step("Do you have an allergy: none, one or many?", form="raw")[2] == 1
    assert _step(" <stop />\n", ENOUGH, form="raw")[2] == 1
    assert _step("Enough. <stop />", ENOUGH, form="raw", normalise=False)[2] == 3
    assert _step("x" * 2000, form="raw")[0].status is EpisodeStatus.MALFORMED
    assert "<answer>" not in _step("", form="raw")[1]


def test_a_lenient_world_warns_once():
    env = Learn2Ask(**SMALL, lenient=True)
    env.reset(options={"task": _task()})
    warning, reward, terminated, truncated, _ = env.step("what?")
    assert "once more" in warning
    assert (reward, terminated, truncated, env.max_turns) == (0.0, False, False, 2)
    assert env.step(GOOD)[1:3] == (1.0, True)
    env.reset(options={"task": _task()})
    env.step("what?")
    assert env.step("what?")[1:4] == (0.0, True, False)
    assert env.status is EpisodeStatus.MALFORMED


def test_a_prompt_shows_the_dialogue_and_the_items_but_not_what_is_required():
    env = Learn2Ask(**SMALL)
    first, _ = env.reset(options={"task": _task()})
    assert first.startswith("Dialogue so far:\nPatient: My nose is running")
    assert "wants 2 of these 6 items" in env.rules
    assert "required" not in env.rules + first
    same = env.rules
    env.reset(options={"task": _task(required=("chronic", "pain"))})
    assert env.rules == same
    compact = Learn2Ask(**SMALL, protocol="compact")
    assert compact.reset(options={"task": _task()})[0] == "cold told=pain told=fever"
    assert compact.rules == "clinic"


def test_a_pack_has_one_clinic_and_begins_with_the_smaller_pack():
    env = Learn2Ask()
    for index in range(20):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=6)
        assert len({task.spec.required for task in pack.tasks}) == 1
        assert env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3).tasks == pack.tasks[:3]
        assert pack == Learn2Ask(normalise=False).sample_pack(split=Split.TRAIN, index=index, num_tasks=6)
    drawn = {env.sample_pack(split=Split.TRAIN, index=i, num_tasks=1).tasks[0].spec.required for i in range(300)}
    assert len(drawn) > 50, "nearly all of the 56 protocols occur"


def test_labels_and_sizes_of_dialogues_are_drawn_as_said():
    env = Learn2Ask(stop_share=0.3)
    specs = [t.spec for i in range(250) for t in env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4).tasks]
    assert abs(sum(spec.label == "stop" for spec in specs) / 1000 - 0.3) < 0.06
    sizes = {"stop": set(), "continue": set()}
    for spec in specs:
        sizes[spec.label].add(len(spec.mentioned))
        assert (spec.label == "continue") == bool(set(spec.required) - set(spec.mentioned))
    assert sizes["stop"] == sizes["continue"] == {3, 4, 5, 6}


@pytest.mark.parametrize("split_by", ["session", "diagnosis"])
def test_no_dialogue_is_in_two_splits(split_by):
    env = Learn2Ask(**SMALL, split_by=split_by)
    seen: list[set] = []
    for split in Split:
        packs = [env.sample_pack(split=split, index=i, num_tasks=4, seed=i) for i in range(100)]
        specs = [task.spec for pack in packs for task in pack.tasks]
        key = (lambda s: s.condition) if split_by == "diagnosis" else (lambda s: tuple(turns_of(s)))
        seen.append({key(spec) for spec in specs})
    assert sum(map(len, seen)) == len(set.union(*seen))


def test_random_labels_change_the_order_of_items_and_the_roles_by_pack():
    env = Learn2Ask(labels="random")
    rules, orders = set(), set()
    for index in range(20):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
        orders.add(pack.tasks[0].spec.items)
        for task in pack.tasks:
            env.reset(options={"task": task})
            rules.add(env.rules)
    assert len(orders) == len(rules) == 20
    compact, places = Learn2Ask(**SMALL, labels="random", protocol="compact"), set()
    for index in range(30):
        compact.reset(options={"task": compact.sample_pack(split=Split.TRAIN, index=index, num_tasks=1).tasks[0]})
        places.add(compact.rules)
    assert len(places) == 4
    assert places <= set(beside(compact, Vocabulary).words())


def test_an_open_protocol_is_told_is_the_same_for_all_packs_and_cannot_change():
    env = Learn2Ask(protocol_hidden=False)
    packs = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=2) for i in range(10)]
    assert {task.spec.required for pack in packs for task in pack.tasks} == {("allergy", "chronic", "medication")}
    assert "allergy is required" in env.rules
    assert success_by_position(env, Reference.SCRIPTED, "natural", 20) == [1.0] * 4
    env.reset(options={"task": packs[0].tasks[0]})
    assert "This shows" not in env.step(STOP)[0]
    with pytest.raises(ConfigError, match="hidden protocol"):
        beside(env, HiddenRules).changed(packs[0], at=1, seed=0)


def test_a_change_keeps_dialogues_and_changes_labels():
    env = Learn2Ask()
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=30)
    new = beside(env, HiddenRules).changed(pack, at=1, seed=2)
    assert [task.spec.mentioned for task in new.tasks] == [task.spec.mentioned for task in pack.tasks]
    assert {task.spec.required for task in new.tasks[1:]} != {pack.tasks[0].spec.required}
    assert [task.spec.label for task in new.tasks] != [task.spec.label for task in pack.tasks]


def test_after_a_change_the_scripted_policy_forgets_what_no_longer_holds():
    env = Learn2Ask()
    rewards = [0.0] * 10
    for index in range(60):
        pack = beside(env, HiddenRules).changed(
            env.sample_pack(split=Split.TRAIN, index=index, num_tasks=10), at=4, seed=index
        )
        for n, lived in enumerate(
            live(env, pack, beside(env, Players).reference(Reference.SCRIPTED, pack), "natural", index)
        ):
            rewards[n] += lived.reward / 60
    assert rewards[3] > 0.85
    assert rewards[4] < 0.65
    assert min(rewards[8:]) > 0.8


@pytest.mark.parametrize(
    ("parameters", "protocol"),
    [
        pytest.param({}, "natural", marks=pytest.mark.slow),
        ({**SMALL, "protocol": "compact"}, "compact"),
        pytest.param({"labels": "random"}, "natural", marks=pytest.mark.slow),
    ],
)
def test_scripted_reward_rises_with_the_position_between_random_play_and_the_oracle(parameters, protocol):
    env = Learn2Ask(**parameters)
    scripted = reward_by_position(env, Reference.SCRIPTED, protocol, 80)
    assert 0.36 < scripted[0] < 0.6
    assert 0.65 < scripted[1] < 0.9
    assert scripted[3] > 0.85
    assert reward_by_position(env, Reference.ORACLE, protocol, 20) == [1.0] * 4
    assert max(reward_by_position(env, Reference.RANDOM, protocol, 80)) < scripted[1]


def test_both_protocols_have_the_same_packs_and_scores():
    natural, compact = Learn2Ask(**SMALL), Learn2Ask(**SMALL, protocol="compact")
    for index in range(30):
        pack = natural.sample_pack(split=Split.TEST, index=index, num_tasks=1)
        assert pack == compact.sample_pack(split=Split.TEST, index=index, num_tasks=1)
        name = random.Random(index).choice((*NAMES, None))
        results = []
        for env in (natural, compact):
            observation, _ = env.reset(options={"task": pack.tasks[0]})
            assert set(env._speech.mentioned_in(observation)) == set(pack.tasks[0].spec.mentioned)
            results.append(env.step(env._speech.respond(name))[1:])
        assert results[0] == results[1]


@pytest.mark.slow
def test_the_posterior_is_what_sampling_gives():
    clinics = Clinics(num_items=4, num_required=2, num_conditions=3, stop_share=0.4)
    rng, mentioned, counts = random.Random(0), {"fever", "pain"}, {}
    for _ in range(40_000):
        required = clinics.draw_protocol(rng)
        if set(clinics.draw_mentioned(rng, required)) == mentioned:
            counts[required] = counts.get(required, 0) + 1
    exact = clinics.weights(("fever", "pain"), {})
    total = sum(counts.values())
    assert {k: round(v, 1) for k, v in exact.items()} == {k: round(counts.get(k, 0) / total, 1) for k in exact}
    assert exact["fever", "pain"] == pytest.approx(0.4)
    assert set(clinics.weights(("fever", "pain"), {"fever": True, "chronic": False})) == {
        ("fever", "pain"),
        ("duration", "fever"),
    }


@pytest.mark.parametrize("compact", [True, False])
def test_facts_are_read_as_they_are_written_and_completed(compact):
    table = ProtocolTable(NAMES, 2, compact)
    some = {"fever": True, "pain": False}
    assert table.known(table.write(some)) == some
    both = table.known(table.write({"fever": True, "allergy": True}))
    assert both == {name: name in ("fever", "allergy") for name in NAMES}
    assert table.known("") == {}


def test_a_contradiction_drops_what_was_noted_before():
    table = ProtocolTable(NAMES, 2, compact=True)
    assert table.merge("fever=yes pain=no", "right want=allergy")["allergy"]
    assert table.merge("fever=yes pain=no", "early want=pain") == {"pain": True}
    assert table.merge("fever=yes allergy=yes", "early want=pain") == {"pain": True}
    assert table.known("fever=yes fever=no") == {"fever": False}


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_a_teachers_note_follows_the_record_exactly_as_far_as_the_dial_says(accuracy):
    env = Learn2Ask(**SMALL, protocol="compact", teacher=TeacherDials(note_accuracy=accuracy))
    teacher = beside(env, Players).demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    asked = [Message(Role.SYSTEM, "update fever=yes"), Message(Role.USER, "near want=allergy medication=no")]
    notes = {teacher.note(asked, random.Random(i)) for i in range(20)}
    if accuracy:
        assert notes == {"duration=no chronic=no fever=yes pain=no allergy=yes medication=no"}
    else:
        assert len(notes) > 15


def test_a_hint_of_the_truth_makes_the_scripted_policy_perfect_and_a_false_one_misleads_it():
    env = Learn2Ask()
    pack = env.sample_pack(split=Split.TRAIN, index=1, num_tasks=8)
    policy, mechanism = beside(env, Players).reference(Reference.SCRIPTED, pack), HintContext("natural")
    required = pack.tasks[0].spec.required
    truth = env._speech.facts.write({name: name in required for name in env.clinics.items})
    lie = env._speech.facts.write({name: name not in required for name in env.clinics.items})
    rewards = []
    for hint in (truth, lie):
        total = 0.0
        for task in pack.tasks:
            observation, _ = env.reset(options={"task": task})
            messages = [Message(Role.SYSTEM, shown(mechanism, env.rules, hint)), Message(Role.USER, observation)]
            total += env.step(policy.act(messages, random.Random(0)))[1] / 8
        rewards.append(total)
    assert rewards[0] == 1
    assert rewards[1] < 0.6


def test_a_judge_is_asked_only_about_questions_where_one_is_due_and_its_note_may_not_leak():
    class Spy(Judge):
        calls: list = []  # noqa: RUF012

        def score(self, dialogue, question, missing):
            self.calls.append((dialogue, question, missing))
            return JudgeVerdict(
                format=0.5, content=1.0, note="Ask about ALLERGY!" if len(self.calls) > 1 else "<b>fine"
            )

    spy = Spy()
    _, feedback, reward = _step(GOOD, judge=spy, normalise=False)
    assert reward == 3.5
    assert "'?b?fine'" in feedback
    assert "note" not in _step(GOOD, judge=spy)[1]
    for answer, task in ((STOP, _task()), (GOOD, ENOUGH), (STOP, ENOUGH), ("", _task())):
        _step(answer, task, judge=spy)
    assert len(spy.calls) == 2
    dialogue, question, missing = spy.calls[0]
    assert dialogue[1:] == (("user", "Nothing hurts."), ("user", "I have no fever."))
    assert question.startswith("Do you have an allergy")
    assert missing == ("allergy",)


def test_policies_text_is_not_shown_again():
    feedback = _step("<answer>My secret marker: allergy or not?</answer>")[1]
    assert "marker" not in feedback


def test_names_tell_apart_configurations_that_draw_other_worlds():
    variants = ({}, {"num_items": 9}, {"num_required": 2}, {"num_conditions": 4}, {"stop_share": 0.5})
    more = ({"protocol_hidden": False}, {"labels": "random"}, {"split_by": "diagnosis"})
    assert len({Learn2Ask(**v).name for v in (*variants, *more)}) == 8
    assert Learn2Ask(normalise=False, fusion="sum", lenient=True, form="raw").name == Learn2Ask().name


def test_the_largest_and_the_smallest_clinics_can_be_played():
    for sizes in ((2, 1), (12, 11), (12, 6), (3, 2)):
        env = Learn2Ask(num_items=sizes[0], num_required=sizes[1])
        for split in Split:
            pack = env.sample_pack(split=split, index=0, num_tasks=2)
            assert all(
                r.success for r in live(env, pack, beside(env, Players).reference(Reference.ORACLE, pack), "natural")
            )


def test_copies_are_cheap():
    env = Learn2Ask()
    assert copy.deepcopy(env).observation_space is env.observation_space
