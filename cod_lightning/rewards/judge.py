"""A language model behind a chat endpoint as a part of the reward."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cod_lightning.clients.answer import ChatAnswer
from cod_lightning.clients.chat import ChatClient
from cod_lightning.clients.grading import QUOTED, graded_object, grading_messages, one_line
from cod_lightning.errors import ConfigError
from cod_lightning.files import readable
from cod_lightning.ranges import Count
from cod_lightning.rewards.base import Reward
from cod_lightning.types import Episode, EpisodeKind, Task

_WHERE = "data.rewards.JudgeReward"
_INSTRUCTION = (
    "You grade one episode of an agent. You get a JSON object: kind (solve: the agent worked on a task; update: it rewrote its "
    "notes for later tasks), notes_before, turns (what the agent saw and what it answered), feedback (the environment's words "
    f"at the end), and of an update notes_after. {QUOTED}\n"
    "Grade by this rubric:\n\n{rubric}\n\n"
    'Answer with nothing but a JSON object: {"score": a number from 0 to 1, "reason": "one line"}'
)
_MOST_RUBRIC_BYTES = 100_000


class Agreement:
    """How often a judge took a solved task for good (a score of 0.5 or more), and another for bad."""

    num = 0
    num_agreed = 0

    def count(self, score: float, episode: Episode) -> None:
        """Only solve episodes are counted: of an update `success` says whether it parsed."""
        if episode.kind is EpisodeKind.SOLVE and episode.success is not None:
            self.num += 1
            self.num_agreed += (score >= 0.5) == episode.success

    def __str__(self) -> str:
        share = self.num_agreed / self.num if self.num else 0.0
        return f"agreed with the environment on {self.num_agreed:,} of {self.num:,} tasks ({share:.1%})"


class Grader:
    """A chat model that grades by a rubric.

    Args:
        rubric: Text file that says what is good and what is bad, relative to the working directory.
        model: Name of the judge's model at the endpoint.
        base_url: As in https://host/v1; null takes it from the environment variable JUDGE_BASE_URL.
        api_key_variable: Environment variable that holds the key; without it, or if it is empty, no key is sent.
        temperature: Of the judge's sampling; null leaves it out.
        max_tokens: Of one answer, thoughts included.
        where: Key of the part, for errors.
        instruction: What the model is to do; `{rubric}` in it stands for the rubric.
        settings: Those of `ChatClient`.
    """

    def __init__(
        self,
        rubric: str,
        model: str | None = None,
        base_url: str | None = None,
        api_key_variable: str = "JUDGE_API_KEY",
        temperature: float | None = 0.0,
        max_tokens: Count = 1000,
        *,
        where: str,
        instruction: str,
        **settings: Any,
    ) -> None:
        self.client = ChatClient(
            model,
            base_url,
            where=where,
            url_variable="JUDGE_BASE_URL",
            api_key_variable=api_key_variable,
            **settings,
        )
        self.where, self.instruction, self.max_tokens = where, instruction, max_tokens
        self.rubric = Path(rubric).absolute()
        self.fields = {} if temperature is None else {"temperature": temperature}

    async def grade(self, material: Mapping[str, Any], read: Callable[[ChatAnswer], float]) -> float:
        """The verdict on the material, as `read` reads the answer (`ChatClient.ask`)."""
        messages = grading_messages(self.instruction.replace("{rubric}", _rubric(self.rubric, self.where)), material)
        return await self.client.ask(messages, max_tokens=self.max_tokens, fields=self.fields, read=read)

    def check(self) -> None:
        """Raise `ConfigError` where rubric or connection cannot work; nothing is sent."""
        _rubric(self.rubric, self.where)
        self.client.check()


class JudgeReward(Reward):
    """The score, from 0 to 1, that a chat model gives an episode by a rubric.

    The answer is read strictly: a JSON object with just `score` and `reason`. The model is asked again where it is anything else;
    without a readable answer after all tries the reward is missing. The agent's text is quoted material: it can neither close its
    quotes nor spell a special token. The world's reward is not shown, but where an update's own prompt shows it. A wrong key ends
    the run, as does a ceiling of tokens.

    Args:
        weight: Factor of the score.
        kinds: Episodes that are judged.
        settings: Those of `Grader` and, through it, of `ChatClient`.
    """

    def __init__(
        self, *, weight: float = 1.0, kinds: list[Literal["solve", "update"]] | None = None, **settings: Any
    ) -> None:
        self.weight, self.kinds = weight, judged_kinds(kinds)
        self.grader = Grader(where=_WHERE, instruction=_INSTRUCTION, **settings)
        self.client = self.grader.client
        self.agreement = Agreement()

    async def __call__(self, episode: Episode, task: Task) -> float:
        score = await self.grader.grade(material_of(episode), score_of)
        self.agreement.count(score, episode)
        return score

    def check(self) -> None:
        self.grader.check()

    def report(self) -> str:
        said = self.client.report()
        return f"{said}; {self.agreement}" if said and self.agreement.num else said


def judged_kinds(kinds: list[Literal["solve", "update"]] | None) -> frozenset[EpisodeKind]:
    """The episodes that a judge looks at."""
    return frozenset(EpisodeKind(kind) for kind in kinds or ("solve",))


def material_of(episode: Episode) -> dict[str, Any]:
    """What the judge sees of an episode."""
    seen = {
        "kind": str(episode.kind),
        "notes_before": episode.context_before,
        "turns": [{"seen": turn.observation, "answer": turn.response} for turn in episode.turns],
        "feedback": episode.feedback,
    }
    return seen | ({"notes_after": episode.context_after} if episode.kind is EpisodeKind.UPDATE else {})


def score_of(answer: ChatAnswer) -> float:
    """The score, strictly read. Raises `ValueError` for whatever else the answer is."""
    found = graded_object(answer.text, frozenset({"score", "reason"}))
    score = found["score"]
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError("the verdict's score is not a number from 0 to 1")
    one_line(found["reason"])
    return float(score)


@cache
def _rubric(path: Path, where: str) -> str:
    try:
        raw = readable(path).read_bytes()
        text = raw.decode().strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        expected = f"a text file in UTF-8 ({type(error).__name__})"
        raise ConfigError(f"{where}.rubric", path, expected, "Name the file of the rubric.") from None
    if not text or len(raw) > _MOST_RUBRIC_BYTES:
        expected = f"a text of 1 to {_MOST_RUBRIC_BYTES:,} bytes (it has {len(raw):,})"
        raise ConfigError(f"{where}.rubric", path, expected, "Write down what is good and what is bad.")
    return text
