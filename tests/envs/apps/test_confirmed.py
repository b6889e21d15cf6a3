"""Tasks in which the person wants to be asked before money moves."""

import copy

import pytest

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.tasks import answered, stated_parts
from cod_lightning.envs.apps.templates import CONFIRMED, TEMPLATES
from cod_lightning.envs.base import Reference
from tests.envs.apps.played import specs, successes

CHECK = "I had confirmed it before money moved"


def confirming(**options):
    return Apps(templates=list(CONFIRMED), patience=3, **options)


def played(task, change):
    """The server after the scripted plan, of whose batches `change` makes others; the checks that fail."""
    server, plan = task.server(3), task.plan(task.facts)
    calls = next(plan)
    while True:
        server.begin_turn()
        results = change(server, calls)
        if server.finished:
            return [check.about for check in task.checked(server) if not check.passed]
        calls = plan.send(results)


def test_they_are_drawn_only_where_they_are_named():
    assert set(Apps().kinds) == set(TEMPLATES)
    assert {task.template for task in specs(confirming(), 40)} == set(CONFIRMED)
    assert sum(dict(task.parts)["agreed"] not in stated_parts(task).values() for task in specs(confirming(), 40)) > 5


def unasked(server, calls):
    """The batch without its question, which is answered elsewhere."""
    other = [call for call in calls if call.name != "user.ask"]
    return answered(server, other) if other else answered(copy.deepcopy(server), calls)


def late(server, calls):
    """The question is asked when all is done."""
    if any(call.name == "user.done" for call in calls):
        server.call("user.ask", {"question": "May I? Please confirm."})
    return unasked(server, calls)


def test_one_who_asks_first_passes_and_one_who_pays_without_having_asked_or_asks_after_it_fails():
    for task in specs(confirming(quirks=0), 24):
        assert played(task, answered) == []
        assert played(task, unasked) == played(task, late) == [CHECK]


def test_another_question_is_no_confirmation():
    for task in specs(confirming(quirks=0), 8):
        server = task.server(9)
        for question in ("Which card?", "To which address?", "How long do your meetings take?"):
            server.call("user.ask", {"question": question})
        assert CHECK in [check.about for check in task.checked(server) if not check.passed]


@pytest.mark.parametrize("count", [40, pytest.param(1_000, marks=pytest.mark.soak)])
def test_references_solve_them_by_asking_and_random_calls_do_not(count):
    assert all(successes(confirming(), Reference.ORACLE, count))
    scripted = successes(confirming(), Reference.SCRIPTED, count)
    assert sum(scripted[0::4]) < sum(scripted[3::4])
    assert sum(successes(confirming(), Reference.RANDOM, count)) <= count // 50
