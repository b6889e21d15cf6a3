"""A list of questions with answers, on disk, as a world."""

import json
import math
import random
from pathlib import Path
from typing import Any

from cod_lightning.envs.base import Traits
from cod_lightning.envs.dataset.records import columns_of, read_rows
from cod_lightning.envs.dataset.scorers import AnswerScorer, ExactMatch
from cod_lightning.envs.grouped import GroupedTasks, group_name
from cod_lightning.envs.question_world import Grade, QuestionTask, QuestionWorld, answer_form, series_rules
from cod_lightning.errors import ConfigError, in_a_line, some_of
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

_RULES = series_rules("questions, one after the other")
_MOST_LETTERS = 1_000_000


class DatasetWorld(QuestionWorld):
    """Questions from JSON Lines or Parquet; a pack draws those of one group.

    A group belongs to one split, by the hash of its name (without groups: a question does), whatever splits the files name.

    Args:
        path: A file (.jsonl, .parquet) or a folder of such files of one kind.
        prompt: Column of the question.
        answer: Column of what the scorer grades by.
        group: Column of what questions share; null: all belong together.
        scorer: How an answer is graded; null: `ExactMatch`.
        rules: System text before the form of the answer; null says that questions belong together.
        world_name: Short identity; null takes the name of the file or folder. Pack ids begin with it and a digest of the questions.
        asked: Further parameters of `QuestionWorld`.
    """

    def __init__(
        self,
        path: str,
        prompt: str = "prompt",
        answer: str = "answer",
        group: str | None = None,
        scorer: AnswerScorer | None = None,
        rules: str | None = None,
        world_name: str | None = None,
        **asked: Any,
    ) -> None:
        self.scorer = scorer = scorer or ExactMatch()
        self.traits = Traits(blocking=scorer.blocking)
        self.path, self.columns = path, {"prompt": prompt, "answer": answer, "group": group}
        stated = f"{_RULES if rules is None else rules}\n\n{answer_form(scorer.form)}"
        super().__init__(world_name or Path(path).stem, stated, **asked)
        self._tasks = GroupedTasks(self._read(), "data.env.path", lambda text: _task(text).question)
        self._drawn_as, self.name = self.name, f"{self.name}-{derive_seed(repr(self._tasks.all)) % 2**32:08x}"

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        world_seed = derive_seed(self._drawn_as, str(split), seed, index)
        order = self._tasks.draw(random.Random(world_seed), split, num_tasks)
        return self._pack(split, index, seed, world_seed, map(_task, order), "question")

    def grade(self, answer: str, task: QuestionTask) -> Grade:
        return self.scorer.grade(answer, json.loads(task.key))

    def right_answer(self, task: QuestionTask) -> str | None:
        return self.scorer.right_answer(json.loads(task.key))

    def _drawn(self, seed: int) -> QuestionTask:
        rng = random.Random(seed)
        return _task(rng.choice(rng.choice(self._tasks.all)))

    @property
    def sizes(self) -> dict[Split, list[int]]:
        """How many different questions each group of a split has."""
        return self._tasks.sizes

    def _read(self) -> Any:
        """Names of groups, and questions with their keys. Raises `ConfigError` for the first row that cannot be asked."""
        path, (prompt, answer, group) = self.path, self.columns.values()
        alike, answers = dict[str, str](), dict[tuple[str | None, str], tuple[str, str]]()
        for place, row in read_rows(path, tuple(dict.fromkeys(filter(None, self.columns.values())))):
            if not row:
                continue
            for name, column in self.columns.items():
                if column is not None and _missing(row.get(column)):
                    has = "" if column in row else f"; the file has {some_of(columns_of(path), column)}"
                    expected = f"a value of '{column}', the column of data.env.{name}{has}"
                    remedy = f"Add it, or name another column{' (null: there are no groups)' * (name == 'group')}."
                    raise ConfigError("data.env.path", place, expected, remedy)
            try:
                question, key = _asked(row[prompt]), self.scorer.key_of(row[answer])
                text = json.dumps(key, allow_nan=False, ensure_ascii=False)
                (question + text).encode()
            except (ValueError, TypeError, RecursionError, MemoryError) as error:
                said = in_a_line(error, 300) or type(error).__name__
                expected = f"a row that {type(self.scorer).__name__} can grade: {said}"
                raise ConfigError("data.env.path", place, expected, "Correct the row.") from error
            name = None if group is None else _group(place, row[group], alike)
            right, first = answers.setdefault((name, question), (text, place))
            if right != text and self.scorer.right_answer(key) is not None:
                expected = f"the answer of {first}, where the same is asked in the same group"
                raise ConfigError(
                    "data.env.path", place, expected, "Keep one; RegexMatch takes several answers as a|b."
                )
            yield name, {"question": question, "key": text, "group": name or ""}
        if not answers:
            raise ConfigError("data.env.path", path, "a file with at least one row", "Fill it, or name another.")


def _group(place: str, value: Any, alike: dict[str, str]) -> str:
    """The group's name. Raises `ConfigError` where an earlier row spells it otherwise: a split would part what belongs together."""
    try:
        name = group_name(value)
    except (ValueError, TypeError, RecursionError) as error:
        expected = f"a group that is a text, a number or a list of such ({' '.join(str(error).split())[:200]})"
        raise ConfigError("data.env.path", place, expected, "Write it as text.") from error
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if (before := alike.setdefault(str(whole).strip(), name)) != name:
        expected = f"one spelling of a group; it is {name} here and {before} above"
        raise ConfigError("data.env.path", place, expected, "Write equal groups alike.")
    return name


def _missing(value: Any) -> bool:
    """Null, and NaN, which pandas writes for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _asked(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the question is {str(value)[:60]!r}, not a text")
    if len(value) > _MOST_LETTERS:
        raise ValueError(f"the question has {len(value):,} letters, more than {_MOST_LETTERS:,}")
    return value


def _task(text: str) -> QuestionTask:
    return QuestionTask(**json.loads(text))
