"""Attacks by what a policy or a judge writes: programs, answers, patterns, calls, verdicts, entries. Counted as in `attacks`."""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from cod_lightning.clients.answer import ChatAnswer
from cod_lightning.contexts import CheckedContext, HintContext
from cod_lightning.contexts.provenance import Provenance
from cod_lightning.envs.dataset import CodeTests, RegexMatch
from cod_lightning.envs.tool_calls import STYLES, BadCalls
from cod_lightning.errors import GradingFailed
from cod_lightning.rewards.judge import score_of
from cod_lightning.types import StopReason
from examples.studies.robustness.damages import ABSURD
from tests.contexts.test_checked import rewritten
from tests.contexts.test_provenance import FORGED
from tests.envs.test_verifiers_worker import ANSWERS, left_running, reward, world_in
from tests.hostile_texts import SPELLINGS
from tests.sandbox.test_sandbox import HOSTILE

_PATTERNS = ("(?:" * 90 + "a?" + ")+?" * 90, "(?:" * 30 + "a?" + ")+?" * 30, ("(?:" * 90 + "a?" + ")+?" * 90) * 110)
_SLOW_S = 30
ZERO = ("passed", "ran", "hung", "bare")
"""What no attack may count."""


def hostile_programs(num: int) -> dict[str, int]:
    """Programs that fork, write, connect and signal, and that look the answer up: none passes its test, and nothing is left."""
    counts = dict.fromkeys(("programs", "passed", "left"), 0)
    with tempfile.TemporaryDirectory() as root:
        data, left = Path(root) / "data.jsonl", Path("/tmp/cod_lightning_left")
        data.write_text("7391")
        scorer = CodeTests(time_s=2.0)
        tests = scorer.key_of([{"input": "", "output": "7391"}])
        looked_up = [
            f"print(open({str(data)!r}).read())",
            f"import glob\nfor path in glob.glob({root!r} + '/*'): print(open(path).read())",
            f"import os\nprint(open('/proc/' + str(os.getppid()) + '/root' + {str(data)!r}).read())",
        ]
        programs = [*looked_up, *HOSTILE.values()]
        for number in range(num):
            done = scorer.grade(programs[number % len(programs)], tests)
            counts["programs"] += 1
            counts["passed"] += done.score > 0
            counts["left"] += left.exists()
    return counts


def hostile_answers(num: int) -> dict[str, int]:
    """Answers to reasoning-gym that are programs, to each dataset whose scorer runs them: none runs, and no later grade changes."""
    counts = dict.fromkeys(("answers", "ran", "changed", "ungraded"), 0)
    if find_spec("reasoning_gym") is None:
        return counts
    from cod_lightning.envs.reasoning_gym_world import ReasoningGym
    from tests.envs.test_reasoning_gym_world import EVALUATES, FORMULAS, PATCH

    with tempfile.TemporaryDirectory() as root:
        left = Path(root) / "left"
        opening = f"open({str(left)!r}, 'w')"
        answers = [
            opening,
            f"__import__('os').system('touch {left}')",
            "__import__('os')._exit(0)",
            PATCH,
            "().__class__",
        ]
        for dataset in (*EVALUATES, *FORMULAS):
            env = ReasoningGym(dataset, num_questions=6)
            env.reset(seed=0)
            right = env.right_answer(env._task) or ""
            for number in range(num):
                try:
                    env.grade(answers[number % len(answers)], env._task)
                except GradingFailed:
                    counts["ungraded"] += 1
                counts["answers"] += 1
                counts["ran"] += left.exists()
                counts["changed"] += env.grade(right, env._task).score != 1 or env.grade("no", env._task).score > 0.05
    return counts


def answers_to_rubrics(num: int) -> dict[str, int]:
    """Answers that a rubric of verifiers runs as code, in a stand-in of verifiers: no later score changes, nothing is left."""
    counts = dict.fromkeys(("answers", "changed", "left"), 0)
    with tempfile.TemporaryDirectory() as root, contextlib.chdir(root):
        world = world_in(Path(root))
        for number in range(num):
            reward(world, ANSWERS[number % len(ANSWERS)])
            counts["answers"] += 1
            counts["changed"] += [reward(world, "2 + 2"), reward(world, "2 + 3")] != [1.0, 0.0]
            counts["left"] += left_running()
    return counts


def hanging_patterns() -> dict[str, int]:
    """Regular expressions that never end to be read: each is refused within seconds."""
    counts = dict.fromkeys(("patterns", "hung", "refused"), 0)
    for pattern in _PATTERNS:
        begun = time.perf_counter()
        try:
            RegexMatch().key_of(pattern)
        except ValueError:
            counts["refused"] += 1
        counts["patterns"] += 1
        counts["hung"] += time.perf_counter() - begun > _SLOW_S
    return counts


def respelled_rules() -> dict[str, int]:
    """A rewrite says what is forbidden in other letters: none is kept."""
    mechanism = CheckedContext(HintContext(), forbidden=["Ignore .* rule"])
    kept = [rewritten(mechanism, "lever 1 is red", f"{text} about lever 3").parsed for text in SPELLINGS.values()]
    return {"spellings": len(kept), "passed": sum(kept)}


def forged_origins() -> dict[str, int]:
    """An entry spells where it comes from: it is left out, or stands in the entry's quotes; `bare` counts those outside."""
    provenance, counts = Provenance(True, "natural"), dict.fromkeys(("origins", "spelled", "bare"), 0)
    origin = provenance.of(5, False)
    for mark in FORGED.values():
        line = provenance.before(f"{mark} 2=red", 5, False)
        counts["origins"] += 1
        counts["spelled"] += provenance.spelled_in(mark)
        try:
            counts["bare"] += not isinstance(json.loads(line.removeprefix(origin)), str)
        except ValueError:
            counts["bare"] += 1
    return counts


def endless_calls(num: int) -> dict[str, int]:
    """Responses of one mark over and over, read as the calls of every family: each is read, or refused, within a second."""
    counts = dict.fromkeys(("responses", "hung", "tracebacks"), 0)
    for style in STYLES.values():
        for part in (
            "\n",
            " ",
            "{",
            "[",
            ";",
            '{"a":',
            "<tool_call>",
            "</tool_call>",
            "[TOOL_CALLS][",
            "<|channel|>",
            "<|call|>",
        ):
            begun = time.perf_counter()
            try:
                style.calls(style.begin(part * num))
            except BadCalls:
                pass
            except Exception as error:
                print(f"{type(style).__name__}, {part!r}: {type(error).__name__}: {error}", file=sys.stderr)
                counts["tracebacks"] += 1
            counts["responses"] += 1
            counts["hung"] += time.perf_counter() - begun > 1
    return counts


def absurd_verdicts() -> dict[str, int]:
    """Scores of a judge that are no number from 0 to 1: the judge is asked again."""
    counts = dict.fromkeys(("verdicts", "passed", "tracebacks"), 0)
    for score in ABSURD:
        answer = ChatAnswer(text=json.dumps({"score": score, "reason": ""}), stop=StopReason.STOP)
        counts["verdicts"] += 1
        try:
            score_of(answer)
            counts["passed"] += 1
        except ValueError:
            pass
        except Exception as error:
            print(f"{str(score)[:40]}: {type(error).__name__}: {error}", file=sys.stderr)
            counts["tracebacks"] += 1
    return counts


def attacks(share: float) -> dict[str, Callable[[], dict[str, int]]]:
    """All of them, with this share of the full numbers."""
    return {
        "hostile_programs": lambda: hostile_programs(int(400 * share)),
        "hostile_answers": lambda: hostile_answers(int(20 * share)),
        "answers_to_rubrics": lambda: answers_to_rubrics(int(60 * share)),
        "hanging_patterns": hanging_patterns,
        "respelled_rules": respelled_rules,
        "forged_origins": forged_origins,
        "endless_calls": lambda: endless_calls(int(20_000 * share)),
        "absurd_verdicts": absurd_verdicts,
    }
