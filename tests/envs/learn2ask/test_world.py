"""Learn2Ask in the synthetic clinic: scores, feedback, packs, references."""

import random

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import HiddenRules, Players, Reference, beside
from cod_lightning.envs.learn2ask import Judge, JudgeVerdict, Learn2Ask
from cod_lightning.envs.learn2ask.clinic import Clinics, ClinicTask
from cod_lightning.envs.learn2ask.items import BY_NAME, ITEMS
from cod_lightning.envs.learn2ask.protocol import ProtocolTable
from cod_lightning.types import EpisodeStatus, Message, Role, Split, Task
from tests.asked import shown
from tests.envs.scripted_life import live, reward_by_position

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
def test_rewards_follow_the_formula(answer, task, scores, success):
    action, content, form = scores
    expected = action * (1 + 2 * content) + form
    env, _, reward = _step(answer, task, normalise=False)
    assert (reward, env.success) == (expected, success)
    assert env.traits.reward_range == (0, 4)
    env, _, share = _step(answer, task)
    assert share == pytest.approx(expected / 4)
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


def test_the_largest_and_the_smallest_clinics_can_be_played():
    for sizes in ((2, 1), (12, 11), (12, 6), (3, 2)):
        env = Learn2Ask(num_items=sizes[0], num_required=sizes[1])
        for split in Split:
            pack = env.sample_pack(split=split, index=0, num_tasks=2)
            assert all(
                r.success for r in live(env, pack, beside(env, Players).reference(Reference.ORACLE, pack), "natural")
            )
