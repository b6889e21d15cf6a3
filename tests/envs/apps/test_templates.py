"""Kinds of tasks: each is known by its sentence, and can be done."""

import random
from collections import defaultdict
from dataclasses import replace
from statistics import mean

import pytest

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.agent import QUESTIONS
from cod_lightning.envs.apps.checks import checks
from cod_lightning.envs.apps.facts import CHOICES, HABITS, HiddenFacts, draw_facts
from cod_lightning.envs.apps.tasks import draw_task, effort, play
from cod_lightning.envs.apps.templates import CONFIRMED, TEMPLATES
from cod_lightning.types import Split
from tests.cases import each
from tests.envs.apps.played import solved, specs

KINDS = {**TEMPLATES, **CONFIRMED}


def drawn(name, count=5):
    rng, found = random.Random(name), []
    for _ in range(200):
        task = draw_task(rng, rng.randrange(2**40), draw_facts(rng, 2), [name])
        if task is not None:
            found.append(task)
        if len(found) == count:
            return found
    raise AssertionError(f"{name} is hardly ever drawn")


@pytest.mark.slow
def test_a_kind_that_takes_many_calls_on_average_is_one_level_harder():
    calls = defaultdict(list)
    for task in specs(Apps(spare_calls=0), 1600, Split.TRAIN):
        calls[task.kind.name].append(task.budget)
    assert set(calls) == set(TEMPLATES)
    assert {name for name, found in calls.items() if mean(found) >= 5.5 and len(TEMPLATES[name].apps) < 3} == {
        name for name, template in TEMPLATES.items() if template.many_calls
    }


@each("name", KINDS)
def test_a_sentence_is_read_by_its_own_kind_alone_and_states_all_but_what_is_withheld(name):
    for task in drawn(name):
        read = {one: parts for one, t in KINDS.items() if (parts := t.read(task.text)) is not None}
        assert read == {
            name: {k: v for k, v in task.parts if k not in task.kind.withheld and f"{{{k}}}" in task.kind.text}
        }
        assert set(task.kind.withheld) <= set(QUESTIONS)


@each("name", KINDS)
def test_a_kind_can_be_done_and_nothing_is_right_before_it_is(name):
    for task in drawn(name):
        before = checks(task.expected(), task.server(1).db, "", False)
        assert not any(check.passed for check in before if check.asked)
        server = solved(task)
        assert [check.about for check in task.checked(server) if not check.passed] == []


@each("name", [name for name, template in KINDS.items() if template.slots])
def test_a_kind_goes_wrong_where_a_fact_that_it_needs_is_believed_to_be_another(name):
    for task in drawn(name, 3):
        for slot in (slot for slot in task.kind.slots if slot in HABITS):
            other = next(value for value in CHOICES[slot] if value != getattr(task.facts, slot))
            server, believed = task.server(2), replace(task.facts, **{slot: other})
            play(server, task.plan(believed))
            assert not all(check.passed for check in task.checked(server)), slot


def test_what_has_to_be_found_out_costs_calls():
    rng, more = random.Random(3), 0
    for _ in range(60):
        task = draw_task(rng, rng.randrange(2**40), draw_facts(rng, 3), TEMPLATES)
        if task is not None:
            more += effort(task, HiddenFacts(), 5)[1] > effort(task, task.facts, 5)[1]
    assert more > 40
