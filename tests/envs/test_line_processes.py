"""Processes that answer in lines: none hangs, fills the disk or answers for another task."""

import subprocess
import sys
import time

import pytest

from cod_lightning.envs.process_pool import PendingCall
from cod_lightning.envs.programs.processes import LinePool, LineProcess
from cod_lightning.errors import EnvironmentFailure, WorldDied, WorldHung


def pool(source, *, reads_on=False):
    return LinePool([sys.executable, "-I", "-S", "-c", source], 1, reads_on)


def asked(of, line=None, seconds=20.0):
    return of.ask(line or {}, lambda one: "answer" in one, seconds, PendingCall())


def test_a_program_that_reads_nothing_is_not_waited_for_however_long_its_task_is():
    begun = time.monotonic()
    with pytest.raises(WorldHung, match=r"within 0\.2 s"):
        asked(pool("import time; time.sleep(60)"), {"prompt": "x" * 10**6}, seconds=0.2)
    assert time.monotonic() - begun < 10


def test_a_long_task_arrives_as_a_whole_and_what_is_said_after_an_answer_is_none_to_the_next():
    source = "import json; print(json.dumps({'answer': len(json.loads(input())['prompt'])}))"
    assert asked(pool(source), {"prompt": "x" * 10**6}) == {"answer": 10**6}
    twice = 'import sys\nfor line in sys.stdin: print(\'{"answer": 1}\\n{"answer": 2}\', flush=True)'
    of = pool(twice, reads_on=True)
    assert [asked(of)["answer"] for _ in range(3)] == [1, 1, 1]


def test_a_program_that_answers_before_it_has_read_its_task_gets_no_other_one_behind_the_rest():
    early = """
import os, sys
os.read(0, 1)
print('{"answer": 1}', flush=True)
for line in sys.stdin:
    print('{"answer": 2}', flush=True)
"""
    of = pool(early, reads_on=True)
    assert [asked(of, {"prompt": "x" * 10**6})["answer"] for _ in range(2)] == [1, 1]


def test_an_error_stream_that_never_ends_is_bounded_and_its_end_is_shown_also_by_a_program_that_ended_before_it_was_asked():
    with pytest.raises(WorldDied, match="more than"):
        asked(pool("import sys\nwhile True: sys.stderr.write('x' * 10000)"))
    with pytest.raises(EnvironmentFailure, match=r"exit code 1\): \.\.\..*no such tool"):
        asked(pool("raise RuntimeError('no such tool')"))
    of = LineProcess([sys.executable, "-I", "-S", "-c", "raise RuntimeError('no such tool')"], ())
    of.process.wait()
    with pytest.raises(WorldDied, match=r"ended without an answer \(exit code 1\): \.\.\..*no such tool"):
        of.ask({}, lambda one: True, 20.0)
    of.close()


def test_a_program_that_the_system_cannot_end_is_left():
    of = LineProcess([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"], ())
    real = of.process

    class Stuck:
        """A process that waits for a disk."""

        pid = 2**22 + 1
        stdin, stdout, stderr = real.stdin, real.stdout, real.stderr

        def wait(self, timeout=None):
            assert timeout is not None, "it would be waited for for ever"
            raise subprocess.TimeoutExpired("it", timeout)

    of.process = Stuck()
    of.close()
    real.wait(10)
