"""The page on where a step went: shares of the step that was only timed, own seconds of the profiled ones."""

import re

from cod_lightning.reports.step_profile import Function, Phases, Spent, packages, summary

PHASES = Phases(
    total_s=2.0,
    rollout_s=1.0,
    training_s=0.6,
    sync_s=0.1,
    sampled_tokens=500,
    trained_tokens=1200,
    lifecycles=8,
)
FUNCTIONS = (
    Function(file="~", line=0, name="<built-in method torch._C._nn.linear>", seconds=0.5, calls=10),
    Function(file="~", line=0, name="<built-in method builtins.len>", seconds=0.1, calls=900),
    Function(file="/x/site-packages/transformers/cache.py", line=3, name="update", seconds=0.2, calls=4),
    Function(file="/home/cod_lightning/cod_lightning/envs/levers/world.py", line=9, name="step", seconds=0.3, calls=7),
    Function(file="/usr/lib/python3.11/asyncio/tasks.py", line=1, name="a|b`c", seconds=0.05, calls=2),
)


def test_parts_add_up_to_the_step():
    page = summary(PHASES, [Spent("aten::mm", 0.4, 5)], FUNCTIONS, (2.5, 3.5))
    rows = dict(re.findall(r"^\| ([a-z][^|`]*) \| ([\d.]+) \| \d+% \|$", page, flags=re.MULTILINE))
    assert {name.split(" (")[0]: float(s) for name, s in rows.items()} == {
        "rollout": 1.0,
        "training": 0.6,
        "weight sync": 0.1,
        "the rest": 0.3,
    }
    assert "- 4 lifecycles a second" in page
    assert "- 500 sampled tokens a second" in page
    assert "- 2,000 trained tokens a second" in page
    assert "2.500 s under torch's" in page
    assert "3.500 s under Python's" in page


def test_functions_are_counted_by_the_package_that_they_are_of():
    assert [(one.where, one.calls) for one in packages(FUNCTIONS)] == [
        ("torch, built in", 10),
        ("cod_lightning/envs", 7),
        ("transformers", 4),
        ("Python, built in", 900),
        ("Python's library", 2),
    ]


def test_a_name_cannot_break_the_table():
    page = summary(PHASES, [], FUNCTIONS, (1.0, 1.0))
    assert "a\\|b'c" in page


def test_what_does_not_fit_on_the_page_is_added_up():
    many = [Spent(f"op{i}", 1.0, 2) for i in range(40)]
    page = summary(PHASES, many, (), (1.0, 1.0))
    assert "| 25 more | 25.000 | 62% | 50 |" in page
