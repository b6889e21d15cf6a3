"""The sandbox: plain Python works as Python does, and nothing else works at all."""

import contextlib
import copy
import io
import json
import random
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.apps.actions import CodeActions
from cod_lightning.envs.apps.api import ApiError
from cod_lightning.envs.apps.catalog import APPS
from cod_lightning.envs.apps.sandbox import CodeSession
from cod_lightning.envs.apps.world import Apps
from tests.cases import each
from tests.envs.apps.escapes import ESCAPES
from tests.envs.apps.played import specs
from tests.envs.apps.programs import FIRST, statement


def ran(code, session=None, call=lambda name, named: None):
    return (session or CodeSession(["mail"])).run(code, call, (ApiError,))


@each("name", ESCAPES)
def test_an_escape_is_refused_in_time_and_does_nothing(name):
    (task,) = specs(Apps(), 1)
    actions, server = CodeActions([app.name for app in APPS]), task.server(patience=1)
    began = time.process_time()
    shown = actions.run(ESCAPES[name], server)
    assert time.process_time() - began < 2
    last = shown.splitlines()[-1]
    assert last.startswith(("refused: ", "error ")) or last.partition(":")[0].endswith("Error"), shown[-300:]
    assert len(shown) < 7_000
    assert not server.db.changes(task.expected().before)
    assert actions.run("1 + 1", server) == "2", "the session goes on"


PROGRAMS = [
    "x = [3, 1, 2]\nx.sort()\nprint(x, sorted(x, reverse=True), sorted(x, key=lambda n: -n), x[::-1], x[1:], x[-1])",
    "for i in range(3):\n    if i == 1:\n        continue\n    print(i)\nelse:\n    print('all')",
    "i = 0\nwhile True:\n    i += 1\n    if i > 4:\n        break\nprint(i)",
    "def add(a, b=2):\n    return a + b\nprint(add(1), add(1, b=5), list(map(add, [1, 2])), [add(n) for n in (1, 2)])",
    "def outer(n):\n    def inner(m):\n        return n * m\n    return inner\nprint(outer(3)(4))",
    "d = {'a': 1}\nd['b'] = 2\nd.update(c=3)\nprint(d, list(d), list(d.items()), d.get('x', 0), len(d))\ndel d['a']\nprint(d)",
    "a, (b, c) = 1, [2, 3]\nprint(a, b, c)\na, b = b, a\nprint(a, b)",
    "try:\n    [][1]\nexcept IndexError as error:\n    print('caught')\nelse:\n    print('no')",
    "try:\n    x = int('7')\nexcept ValueError:\n    x = 0\nelse:\n    x += 1\nprint(x)",
    "name = 'Ada'\nprint(f'{name:>5}|{3.14159:.2f}|{42:05d}|{name!s}')",
    "print('a,b'.split(','), ' x '.strip(), 'ab'.upper(), '-'.join(['a', 'b']), 'abc'.replace('b', 'x'), 'abc'.find('c'))",
    "print(max([1, 3, 2]), min(2, 1), sum([1, 2]), any([0, 1]), all([]), abs(-3), round(2.567, 1), round(25, -1))",
    "print([x * y for x in range(3) for y in range(3) if x != y], {k: v for k, v in [('a', 1)]}, sum(n for n in [1, 2]))",
    "print(1 < 2 < 3, 1 < 2 > 3, not 1, 1 and 0, 0 or 'x', None is None, [1] == [1], 7 // 2, 7 % 3, -7 // 2, 2 ** 10, 7 / 2)",
    "print(list(zip([1, 2], 'ab')), list(enumerate('ab', 1)), list(reversed([1, 2])), tuple([1]), dict(a=1), bool([]))",
    "print('yes' if 1 else 'no', (lambda a: a * 2)(4), list(filter(lambda n: n > 1, [1, 2])), list(map(str, [1, 2])))",
    "print(str(3) + 'x', int('4') + 1, float('1.5'), [1] + [2], 'ab' * 2, [0] * 3, (1,) + (2,), sorted(['b', 'A'], key=len))",
]


def python(code):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(code, {})
    return shown.getvalue().rstrip("\n")


def alike(text):
    """Sandbox texts write lists as JSON; Python's own does not."""
    return text.replace("'", '"').replace("True", "true").replace("False", "false").replace("(", "[").replace(")", "]")


@each("code", PROGRAMS)
def test_plain_code_prints_what_python_prints(code):
    assert alike(ran(code)).replace(",]", "]") == alike(python(code)).replace(",]", "]")


NUMBERS = st.integers(-20, 20)
EXPRESSIONS = st.recursive(
    st.one_of(NUMBERS.map(str), st.sampled_from(["[1, 2, 3]", "'abc'", "{'a': 1}", "True", "None", "0.5"])),
    lambda inner: st.one_of(
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%", "<", "==", "and", "or"]), inner
        ),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("len({})".format, inner),
        st.builds("str({})".format, inner),
        st.builds("({})[{}]".format, inner, NUMBERS),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_an_expression_is_what_python_says_or_an_error_where_python_has_one(code):
    shown = ran(f"x = {code}\nprint(x)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = eval(code, {})
    except Exception:
        assert shown.partition(":")[0].endswith("Error")
        return
    if shown.startswith(("TypeError", "refused")):  # less is allowed here: no % of texts, no True + 1 of other kinds
        assert "%" in code or "*" in code
        return
    assert shown == (wanted if isinstance(wanted, str) else json.dumps(wanted))


def test_variables_stay_and_a_copy_has_its_own():
    session = CodeSession(["mail"])
    assert ran("x = [1]\ndef f():\n    return x\ny = f", session) == ""
    twin = copy.deepcopy(session)
    assert ran("x.append(2)\nprint(f(), y())", twin) == "[1, 2] [1, 2]"
    assert ran("print(f(), y())", session) == "[1] [1]"


def test_what_holds_too_much_is_gone_after_the_turn():
    session = CodeSession(["mail"])
    assert "refused" in ran("x = []\nfor i in range(100):\n    x.append([0] * 1000)", session)
    assert session.variables == {}
    assert ran("x", session) == "NameError: x is not defined"


def test_calls_are_made_with_named_arguments_and_their_errors_can_be_caught():
    made = []

    def call(name, named):
        made.append((name, named))
        if name == "mail.bad":
            raise ApiError(404, "no such call")
        return {"id": 7}

    assert ran("mail.show(id=3)['id']", call=call) == "7"
    assert ran("mail.show(3)", call=call).startswith("TypeError: calls of apps take named arguments")
    assert (
        ran("try:\n    mail.bad()\nexcept Exception as error:\n    print(error)", call=call)
        == "error 404: no such call"
    )
    assert ran("mail.bad()\nprint('never')", call=call) == "error 404: no such call"
    assert [name for name, _ in made] == ["mail.show", "mail.bad", "mail.bad"]


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.soak)])
def test_programs_at_random_raise_nothing_and_take_no_time(count):
    rng = random.Random(count)

    def call(name, named):
        if rng.random() < 0.3:
            raise ApiError(404, "no such call")
        return {"items": [{"id": 1}], "pages": 1}

    for n in range(count):
        if n % 4 == 0:
            session = CodeSession(["mail", "user"])
            assert ran(FIRST, session) == ""
        began = time.process_time()
        ran("".join(statement(rng, 2) for _ in range(rng.randint(1, 4))), session, call)
        assert time.process_time() - began < 2
        session = copy.deepcopy(session)
