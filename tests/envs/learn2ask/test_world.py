"""Learn2Ask in the synthetic clinic: scores, feedback, packs, references."""

import random

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import HiddenRules, Players, Reference, beside
from cod_lightning.envs.learn2ask import Judge, JudgeVerdict, Learn2Ask
from cod_lightning.envs.learn2ask.clinic import Clinics, ClinicTask
from cod_lightning.envs.learn2ask.items import ITEMS
from cod_lightning.envs.learn2ask.protocol import ProtocolTable
from cod_lightning.types import Message, Role, Split, Task
from tests.asked import shown
from tests.cases import each
from tests.envs.scripted_life import live

NAMES = tuple(item.name for item in ITEMS[:6])
SMALL = {"num_items": 6, "num_required": 2, "num_conditions": 3}


def test_labels_and_sizes_of_dialogues_are_drawn_as_said():
    env = Learn2Ask()
    specs = [t.spec for i in range(250) for t in env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4).tasks]
    assert abs(sum(spec.label == "stop" for spec in specs) / 1000 - 0.4) < 0.06
    sizes = {"stop": set(), "continue": set()}
    for spec in specs:
        sizes[spec.label].add(len(spec.mentioned))
        assert (spec.label == "continue") == bool(set(spec.required) - set(spec.mentioned))
    assert sizes["stop"] == sizes["continue"] == {3, 4, 5, 6}


def test_after_a_change_the_scripted_policy_forgets_what_no_longer_holds():
    env = Learn2Ask()
    rewards = [0.0] * 10
    for index in range(60):
        pack = beside(env, HiddenRules).changed(
            env.sample_pack(split=Split.TRAIN, index=index, num_tasks=10), at=4, seed=index
        )
        for n, lived in enumerate(live(env, pack, Reference.SCRIPTED, index)):
            rewards[n] += lived.reward / 60
    assert rewards[3] > 0.85
    assert rewards[4] < 0.65
    assert min(rewards[8:]) > 0.8


@pytest.mark.slow
def test_the_posterior_is_what_sampling_gives():
    clinics = Clinics(num_items=4, num_required=2, num_conditions=3)
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


@each("compact", [True, False])
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
    truth = env.wording.facts.write({name: name in required for name in env.clinics.items})
    lie = env.wording.facts.write({name: name not in required for name in env.clinics.items})
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
    env = Learn2Ask(**SMALL, judge=spy, normalise=False)

    def answered(answer, *mentioned):
        spec = ClinicTask(
            condition="cold", opening=0, mentioned=mentioned, phrasing=(0, 0), required=("allergy", "fever"), priority=NAMES
        )  # fmt: skip
        env.reset(options={"task": Task(id="0", seed=0, spec=spec)})
        return env.step(answer)[:2]

    good, stop = "<answer>Do you have an allergy: none, to drugs or to food?</answer>", "<answer><stop /></answer>"
    feedback, reward = answered(good, "pain", "fever")
    assert reward == 3.5
    assert "'?b?fine'" in feedback
    assert "note" not in answered(good, "pain", "fever")[0]
    for answer, first in ((stop, "pain"), (good, "allergy"), (stop, "allergy"), ("", "pain")):
        answered(answer, first, "fever")
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
            assert all(r.success for r in live(env, pack, Reference.ORACLE))
