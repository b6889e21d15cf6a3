"""Tasks on disk that an agent program solves: any program that speaks the chat dialect of OpenAI is played and trained as it is."""

import json
from collections.abc import Sequence
from typing import Any

from cod_lightning.envs.base import Traits
from cod_lightning.envs.dataset.scorers import AnswerScorer
from cod_lightning.envs.dataset.world import DatasetWorld
from cod_lightning.envs.own_loop import RULES, Access, OwnLoop
from cod_lightning.envs.process_pool import PendingCall
from cod_lightning.envs.programs.processes import LinePool
from cod_lightning.envs.question_world import Grade, QuestionTask
from cod_lightning.errors import EnvironmentFailure
from cod_lightning.extras import check_runnable
from cod_lightning.ranges import Count, Positive


class ReportedReward(AnswerScorer):
    """The program's own word: it answers with `reward` (0 to 1) and, if it likes, `success` and `feedback`.

    The answer column is for the program: it finds it as `key` in its task, and nothing else reads it.
    """

    form = "YOUR ANSWER"

    def key_of(self, value: Any) -> Any:
        return value

    def grade(self, answer: str, key: Any) -> Grade:
        return Grade(0.0, verdict="Only the program knows.")

    def right_answer(self, key: Any) -> str | None:
        return None


class ProgramWorld(OwnLoop, DatasetWorld):
    """A program solves tasks from a file with the policy as its model.

    For each task the program gets a line of JSON on standard input: `prompt`, `base_url`, `api_key`, `model`. It asks the policy
    there with any client, and prints a line of JSON: `{"answer": "..."}`, which the scorer grades, or what `ReportedReward` wants.
    Other lines are left out. A process serves one task, or, with `reads_on`, one after the other, of any lifecycle. It sees neither
    this process nor other programs, where the system has namespaces, and no keys of this process's environment.

    The rules and the context stand before the program's own system message; the program need not know of them. A program that
    ends without an answer, or hangs, costs its lifecycle; one that asks more than `max_turns` times is ended, with reward 0.

    Args:
        command: What is run, such as [python, agent.py].
        path: A file or folder of tasks, as of `DatasetWorld`.
        scorer: How an answer is graded; null: the program reports the reward (`ReportedReward`).
        rules: System text that stands before the context; null says that tasks belong together.
        max_turns: Requests to the policy in a task.
        timeout_s: Seconds for one task.
        num_processes: Most programs at a time.
        reads_on: Whether the program reads its next task after an answer; else its process is ended.
        variables: Variables of this process's environment that the program gets beyond paths, such as the key of a tool.
        tasks: Further parameters of `DatasetWorld`; the program's own feedback and word of success go first.
    """

    def __init__(
        self,
        command: list[str],
        path: str,
        scorer: AnswerScorer | None = None,
        rules: str | None = None,
        max_turns: Count = 16,
        timeout_s: Positive = 600.0,
        num_processes: Count = 16,
        reads_on: bool = False,
        variables: Sequence[str] = (),
        **tasks: Any,
    ) -> None:
        check_runnable(command, "data.env.command")
        scorer = scorer or ReportedReward()
        super().__init__(path, scorer=scorer, rules=rules, max_turns=1, **tasks)
        self._rules, self.max_turns = RULES if rules is None else rules, max_turns
        self.traits = Traits(blocking=True)
        self.timeout_s, self._pending = timeout_s, PendingCall()
        self._pool = LinePool(command, num_processes, reads_on, variables)

    def play(self, system: str, access: Access) -> tuple[str, float]:
        self._pending = PendingCall()
        reports = isinstance(self.scorer, ReportedReward)
        where = {"base_url": access.base_url, "api_key": access.key, "model": access.model}
        line = {"prompt": self._task.question, **where} | ({"key": json.loads(self._task.key)} if reports else {})
        named = "reward" if reports else "answer"
        found = self._pool.ask(line, lambda one: named in one, self.timeout_s, self._pending)
        said = found.get("feedback", "")
        if not isinstance(said, str):
            raise EnvironmentFailure(f"its program gave feedback that is a {type(said).__name__}")
        if not reports:
            answer = found["answer"]
            if not isinstance(answer, str | int | float):
                raise EnvironmentFailure(f"its program gave an answer that is a {type(answer).__name__}")
            untagged = str(answer).replace("<answer>", "").replace("</answer>", "")
            words, reward, *_ = self.step(f"<answer>{untagged}</answer>")
            return f"{said}\n{words}".strip(), reward
        reward = found["reward"]
        if isinstance(reward, bool) or not isinstance(reward, int | float):
            raise EnvironmentFailure(f"its program gave a reward that is a {type(reward).__name__}")
        self._outcome = "win" if found.get("success", reward >= 1) is True else "miss"
        return said, float(reward)

    def interrupt(self) -> None:
        self._pending.cancel()

    def _start(self, task: QuestionTask) -> None:
        super()._start(task)
        self._answers = self.max_turns - 1  # of a program there is one answer
