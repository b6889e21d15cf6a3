"""Programs are graded by what they print, and what a hostile one does ends with it."""

import json
import sys
import time
from functools import cache

import pytest

from cod_lightning.envs.dataset import CodeTests
from tests.cases import each

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
CALLS = [{"call": "f(2)", "output": 4}, {"call": "f('ab')", "output": "abab"}]


@cache
def scorer(time_s):
    return CodeTests(time_s=time_s, memory_mb=256)


def grade(program, tests=CALLS, time_s=5.0):
    return scorer(time_s).grade(program, scorer(time_s).key_of(tests))


@each(
    "program", ["def f(x): return x + x", "```python\nf = lambda x: 2 * x\n```", "f = lambda x: 2 * x\nprint('noise')"]
)
def test_a_program_that_passes_every_test_scores_one(program):
    assert grade(program).score == 1


@each("call", ["f(2), f(3)", "f(2), f(3)  # twice", "[f(2), f(3)]", "f(2), f(\n3)"])
def test_a_call_may_give_several_values_and_end_with_a_comment(call):
    tests = [{"call": call, "output": [4, 6]}]
    assert [grade(program, tests).score for program in ("f = lambda x: 2 * x", "f = lambda x: 4")] == [1, 0]


def test_a_program_reads_its_input_and_spaces_at_line_ends_do_not_count():
    tests = [{"input": "3\n4\n", "output": "7\n12"}]
    assert grade("a, b = int(input()), int(input())\nprint(a + b, '')\nprint(a * b)\n", tests).score == 1
    assert grade("print(7)", tests)[:2] == (0.0, "Test 1 of 1 failed: the input '3?4?' gave '7'.")


@each(
    ("program", "remark"),
    [
        ("def f(x): return x", "Test 1 of 2 failed: f(2) gave '2'."),
        ("def f(x): return 4", "Test 2 of 2 failed: f('ab') gave '4'."),
        ("def f(x): return True", "f(2) gave 'true'"),
        ("def f(x): return object()", "not JSON serializable"),
        ("def f(", "SyntaxError"),
        ("", "NameError"),
        ("\0", "null bytes"),
        ("import sys; sys.exit(0)", "gave nothing that is JSON"),
        ("import os; os._exit(0)", "gave nothing that is JSON"),
        ("import os; os._exit(3)", "exit code 3"),
    ],
)
def test_what_is_wrong_is_said(program, remark):
    found = grade(program)
    assert found.score == 0
    assert remark in found.remark


def test_no_program_can_overrule_the_comparison():
    """What is expected is not in the process that runs the program."""
    cheats = [
        "class Any:\n def __eq__(self, other): return True\ndef f(x): return Any()",
        "import json\njson.dumps = lambda *a: '\"yes\"'\ndef f(x): return x",
        "import builtins\nbuiltins.print = lambda *a: None\ndef f(x): return 4",
        "import gc, sys\ndef f(x): return [o for o in gc.get_objects() if o == 'abab'] or 4",
    ]
    assert [grade(cheat).score for cheat in cheats] == [0, 0, 0, 0]


@pytest.mark.slow
@linux
@each(
    ("program", "remark", "time_s"),
    [
        ("while True: pass", "took longer than 0.3 s", 0.3),
        ("import time; time.sleep(60)", "took longer than 0.3 s", 0.3),
        ("x = [0] * 10**9", "MemoryError", 5.0),
        ("print('9' * 10**8)", "printed more than 1,000,000 bytes", 5.0),
        ("open('big', 'w').write('9' * 10**8)", "PermissionError", 5.0),
    ],
)
def test_a_program_that_takes_too_much_is_ended(program, remark, time_s):
    begun = time.perf_counter()
    assert remark in grade(program, CALLS[:1], time_s=time_s).remark
    assert time.perf_counter() - begun < 10


@linux
def test_no_program_can_look_the_answer_up(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"prompt": "f", "answer": CALLS}))
    looked_up = f"import json\ntests = json.load(open({str(data)!r}))['answer']\nf = lambda x: {{2: 4}}.get(x, tests[1]['output'])"
    assert "FileNotFoundError" in grade(looked_up).remark or "PermissionError" in grade(looked_up).remark


def test_a_program_sees_none_of_the_variables_of_this_process(monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "secret")
    scorer.cache_clear()  # one that is started now
    tests = [{"input": "", "output": "False"}]
    assert grade("import os\nprint('JUDGE_API_KEY' in os.environ)", tests).score == 1
