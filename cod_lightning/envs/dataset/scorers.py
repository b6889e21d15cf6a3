"""How an answer is graded by what a row of the dataset holds."""

import json
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from cod_lightning.envs.answers import answer_of, quoted
from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.question_world import MOST_LETTERS, Grade
from cod_lightning.errors import check_between
from cod_lightning.ranges import Positive, Share
from cod_lightning.sandbox.sandbox import Sandbox

_NUMBER = re.compile(r"[-+]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
_FRACTION = re.compile(r"([-+]?\d+)\s*/\s*(\d+)", re.ASCII)
_MOST_DIGITS = 400
_PATTERN_S, _PATTERN_MB = 1.0, 256
_QUICK_LETTERS, _QUICK_GROUPS, _REPEATED = 1_000, 5, re.compile(r"\{\d\d")
"""Up to which letters, groups and repetitions a pattern is read at once: `regex` lays out what is repeated as often as it has to
come, and what that takes may double with each group around it."""
_MOST_TESTS = 100


class AnswerScorer(Unchanging, ABC):
    """Grades answers. `key_of` reads a row once, when the dataset is loaded."""

    form: str
    """What stands between the tags, in capitals, for the rules."""
    blocking: bool = False
    """Whether grading waits for something outside of this process."""

    @abstractmethod
    def key_of(self, value: Any) -> Any:
        """What the world keeps of a row's answer, as plain values. Raises `ValueError` for what it cannot grade by."""

    @abstractmethod
    def grade(self, answer: str, key: Any) -> Grade:
        """What the answer is worth."""

    def right_answer(self, key: Any) -> str | None:
        """An answer that is right; None where the key gives none."""
        return str(key)


class ExactMatch(AnswerScorer):
    """1 for the same text, up to capitals, spaces at the ends and runs of spaces."""

    form = "YOUR ANSWER"

    def key_of(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"the answer is a {type(value).__name__}, not a text or a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"the answer is {value}, not a finite number")
        if not (text := str(value)).strip():
            raise ValueError("the answer is empty")
        if complaint := answer_of(f"<answer>{text}</answer>")[1]:
            raise ValueError(f"no response can hold this answer between <answer> and </answer>, where {complaint}")
        if len(text) > MOST_LETTERS:
            raise ValueError(
                f"the answer has {len(text):,} letters, more than {MOST_LETTERS:,}, the most that are read"
            )
        return text

    def grade(self, answer: str, key: Any) -> Grade:
        return Grade(float(answer.casefold().split() == key.casefold().split()))


class NumericMatch(AnswerScorer):
    """1 for a number close enough: 1e3, 1,000, 3/4 and $12 are read; anything else is malformed, 3,5 among it.

    Args:
        tolerance: Largest |answer - right| / |right|, or |answer| where the right one is 0.
    """

    form = "A NUMBER"

    def __init__(self, tolerance: Share = 1e-6) -> None:
        self.tolerance = tolerance

    def key_of(self, value: Any) -> str:
        text = str(value)
        if isinstance(value, bool) or number_in(text) is None:
            raise ValueError(f"the answer is {quoted(text)}, not a number")
        return text

    def grade(self, answer: str, key: Any) -> Grade:
        given, right = number_in(answer), number_in(key)
        assert right is not None
        if given is None:
            return Grade(0.0, f"{quoted(answer)} is not a number", malformed=True)
        return Grade(float(abs(given - right) <= Fraction(self.tolerance) * (abs(right) or 1)))


def number_in(text: str) -> Fraction | None:
    """The number that a text is; None where it is none.

    >>> number_in("$1,250.50"), number_in("3/4"), number_in("about 3")
    (Fraction(2501, 2), Fraction(3, 4), None)
    """
    plain = text.strip().removeprefix("$").removesuffix(".").strip()
    if len(plain) > _MOST_DIGITS:
        return None
    if found := _FRACTION.fullmatch(plain):
        return Fraction(int(found[1]), int(found[2])) if int(found[2]) else None
    return Fraction(plain.replace(",", "")) if _NUMBER.fullmatch(plain) else None


def pattern_reader() -> Callable[[bytes], None]:
    """The job that reads a regular expression."""
    import regex

    return lambda pattern: regex.compile(pattern.decode()) and None


class RegexMatch(AnswerScorer):
    """1 for an answer that the row's regular expression matches from end to end. One that takes longer than a second fails."""

    form = "YOUR ANSWER"

    def __init__(self) -> None:
        entry = "cod_lightning.envs.dataset.scorers:pattern_reader"
        self._reading = Sandbox(entry, path=sys.path, time_s=_PATTERN_S, memory_mb=_PATTERN_MB)

    def key_of(self, value: Any) -> str:
        import regex

        if not isinstance(value, str) or not value:
            raise ValueError(f"the answer is a {type(value).__name__}, not a regular expression")
        groups = value.count("(") + value.count("{")
        if len(value) > _QUICK_LETTERS or groups > _QUICK_GROUPS or _REPEATED.search(value):
            self._check_long(value)
        try:
            regex.compile(value)
        except regex.error as error:
            raise ValueError(f"the answer is no regular expression ({error})") from None
        return value

    def _check_long(self, pattern: str) -> None:
        """Raise `ValueError` for one that takes too long or too much to read; `regex` cannot be interrupted there."""
        done = self._reading.run(pattern.encode("utf-8", "replace"))
        if done.complaint and "rror: " not in done.errors:  # what is raised is said where it is read once more
            raise ValueError(f"reading the regular expression {done.complaint}, with {_PATTERN_MB} MiB of memory")

    def grade(self, answer: str, key: Any) -> Grade:
        """Raises `TimeoutError`, which costs the lifecycle."""
        import regex

        return Grade(float(regex.fullmatch(key, answer, timeout=_PATTERN_S) is not None))

    def right_answer(self, key: Any) -> None:
        return None


class CodeTests(AnswerScorer):
    """1 for a Python program that passes all tests of the row, each in a `Sandbox` of its own.

    A test is `{"input": ..., "output": ...}`: the program gets the text `input` and has to print `output`; or
    `{"call": "f(2)", "output": 4}`: the expression is evaluated after the program, and has to give that JSON value. What is
    expected never enters the process, so no program can look it up or overrule the comparison.

    Args:
        time_s: Seconds that a test may take.
        memory_mb: MiB of addresses that a test may take.
    """

    form = "A PYTHON PROGRAM"
    blocking = True

    def __init__(self, time_s: Positive = 5.0, memory_mb: int = 512) -> None:
        check_between("data.env.scorer.memory_mb", memory_mb, 64, math.inf, "512 is the default.")
        self.sandbox = Sandbox(time_s=time_s, memory_mb=memory_mb)

    def key_of(self, value: Any) -> list[dict[str, Any]]:
        tests = json.loads(value) if isinstance(value, str) else value
        if not isinstance(tests, list) or not 1 <= len(tests) <= _MOST_TESTS:
            raise ValueError(f"the answer is no list of 1 to {_MOST_TESTS} tests")
        return [_test(test) for test in tests]

    def grade(self, answer: str, key: Any) -> Grade:
        program = _without_fence(answer)
        for number, test in enumerate(key, start=1):
            if complaint := self._failed(program, test):
                return Grade(0.0, f"Test {number} of {len(key)} failed: {complaint}.")
        return Grade(1.0)

    def right_answer(self, key: Any) -> None:
        return None

    def _failed(self, program: str, test: dict[str, Any]) -> str:
        """What went wrong; empty where nothing did."""
        call = test.get("call")
        shown = f"{call}" if call is not None else f"the input {quoted(test['input'])}"
        source = program if call is None else f"{program}\n{_PRINTED.format(call=call)}"
        done = self.sandbox.run(source.encode("utf-8", "replace"), test.get("input", "").encode("utf-8", "replace"))
        if done.complaint:
            raised = done.errors.rstrip().rpartition("\n")[2] if done.code > 0 else ""
            return f"{shown} {f'raised {quoted(raised)}' if raised else done.complaint}"
        if call is None:
            right = _lines(done.output) == _lines(test["output"])
            return "" if right else f"{shown} gave {quoted(done.output.strip())}"
        last = done.output.rstrip("\n").rpartition("\n")[2]
        try:
            given = json.loads(last)
        except (ValueError, RecursionError):
            return f"{shown} gave nothing that is JSON"
        return "" if _equal(given, test["output"]) else f"{shown} gave {quoted(last)}"


_PRINTED = "import json as _json\nprint('\\n' + _json.dumps((\n{call}\n)))"
"""The brackets and lines of its own are for a call such as `f(2), f(3)`, or one that ends with a comment."""


def _test(test: Any) -> dict[str, Any]:
    if isinstance(test, dict):  # Arrow fills in a null for a key that other tests have
        test = {name: value for name, value in test.items() if value is not None}
        if set(test) == {"input", "output"} and all(isinstance(value, str) for value in test.values()):
            return test
        if set(test) == {"call", "output"} and isinstance(test["call"], str):
            try:
                compile(test["call"], "call", "eval")
            except SyntaxError as error:
                raise ValueError(f"{quoted(test['call'])} is no Python expression ({error.msg})") from None
            return test
    raise ValueError('a test is neither {"input": text, "output": text} nor {"call": expression, "output": value}')


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _equal(given: Any, right: Any) -> bool:
    """Equal as JSON; numbers up to 1e-9, and true is not 1."""
    if isinstance(given, bool) or isinstance(right, bool):
        return given is right
    if isinstance(given, int | float) and isinstance(right, int | float):
        try:
            return math.isclose(given, right, rel_tol=1e-9, abs_tol=1e-9)
        except OverflowError:
            return given == right
    if isinstance(given, list) and isinstance(right, list):
        return len(given) == len(right) and all(map(_equal, given, right))
    if isinstance(given, dict) and isinstance(right, dict):
        return given.keys() == right.keys() and all(_equal(given[name], right[name]) for name in right)
    return type(given) is type(right) and given == right


def _without_fence(text: str) -> str:
    """A program, without the fence of backticks that models put around one."""
    found = re.fullmatch(r"```[a-zA-Z]*\n(.*?)\n?```", text.strip(), flags=re.DOTALL)
    return found[1] if found else text


class Unscored(AnswerScorer):
    """0 for every answer: the reward comes from a part of `data.rewards`, such as a judge, and success stays 0."""

    form = "YOUR ANSWER"

    def key_of(self, value: Any) -> str:
        return str(value)

    def grade(self, answer: str, key: Any) -> Grade:
        return Grade(0.0, verdict="Your answer is taken down.")
