"""Two renderings of any domain: sentences for language models, and words for tiny policies. Each reads its own text back."""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import ClassVar, NamedTuple

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.facts import UNKNOWN
from cod_lightning.envs.invented.kinds import POOL
from cod_lightning.envs.invented.rule import Fact, Goal
from cod_lightning.types import Message, Role

NAMES = frozenset(POOL)


class TaskView(NamedTuple):
    """What a dialogue shows of the task now."""

    here: str
    want: str
    menu: tuple[str, ...]
    used: int
    """Turns spent."""


def action_of(response: str, menu: Sequence[str]) -> tuple[str, str]:
    """(an action of the menu, "") or ("", which rule was broken): the last of one to four words between the tags."""
    answer, complaint = answer_of(response)
    if complaint:
        return "", complaint
    words = answer[:200].split()
    if not 1 <= len(words) <= 4:
        return "", f"the answer has {len(words) or 'no'} words; expected a name"
    action = words[-1].lower()
    return (action, "") if action in menu else ("", "the answer is not a name that can be used here")


class CompactInvented(Unchanging):
    """`use fip use dax want zub at wug`, then `wug blip fip at wug`, and at the end `wug blip fip over`.

    An answer begins as a fact does, so that looking that up finds the action, `<answer> wug zub dax </answer>`; one that is not
    known is tried, `<answer> wug zub use fip </answer>`. Feedback leaves out what an answer announced, so that a note is the old
    one with the feedback's facts behind it.
    """

    rules = "domain"
    gap = " "
    _marks = frozenset(("use", "want", "at"))

    def __init__(self, names: Sequence[str] = POOL) -> None:
        self._names = names

    def opening(self, goal: Goal) -> str:
        return f"{' '.join(f'use {action}' for action in goal.menu)} want {goal.want} at {goal.start}"

    def later(self, goal: Goal, here: str, used: int) -> str:
        return f"at {here}"

    def facts(self, facts: Iterable[Fact]) -> str:
        return " ".join(map(" ".join, facts))

    def context(self, facts: Sequence[Fact]) -> str:
        return self.facts(facts) or UNKNOWN

    def feedback(self, outcome: str, facts: Sequence[Fact], complaint: str) -> str:
        return f"{self.facts(dict.fromkeys(facts))} over".strip()

    def foreseen(self, response: str, facts: Sequence[Fact]) -> bool:
        return answer_of(response)[0] in map(" ".join, facts)

    def respond(self, here: str, meant: str, action: str, *, known: bool = True) -> str:
        return f"<answer> {here} {meant} {'' if known else 'use '}{action} </answer>"

    def parse(self, text: str) -> list[Fact]:
        found: list[Fact] = []
        names: list[str] = []
        for word in takewhile(lambda word: word not in self._marks, text.split()):
            names = [*names, word] if word in NAMES else []
            if len(names) == 3:
                found.append((names[0], names[1], names[2]))
                names = []
        return found

    def shown(self, messages: Sequence[Message]) -> TaskView:
        here, used = "", 0
        for message in reversed(messages):
            if message.role is not Role.USER:
                continue
            words = message.content.split()
            here = here or words[words.index("at") + 1]
            if "use" in words:
                use, want = words.index("use"), words.index("want")
                return TaskView(here, words[want + 1], tuple(words[use + 1 : want : 2]), used)
            used += 1
        raise AssertionError("the dialogue has no task")

    def words(self) -> tuple[str, ...]:
        grammar = (self.rules, UNKNOWN, "use", "want", "at", "<answer>", "</answer>")
        return (*grammar, "over", *self._names)


class NaturalInvented(Unchanging):
    """Full sentences."""

    rules = (
        "You are in a small world with hidden rules. Its names are made up and mean nothing. You are always in some state and use "
        "one of the names on offer; what that gives, and whether it takes you to another state, depends on the state and the name "
        "alone. The rules stay the same in related tasks, so what you find out may pay later.\n\n"
        "Each task names a result that you want to get within a few choices: a reward of 1 if it comes, 0 if not. Some results end "
        "a task at once.\n\n"
        "Answer with brief reasoning, then exactly one name on offer, in this form:\n<answer>name</answer>"
    )
    """System text, the same for all families."""
    gap = "\n"
    """Between facts and what follows them."""
    _endings: ClassVar = {
        "win": "You got what you wanted.",
        "lost": "That ended the task, and what you wanted did not come.",
        "late": "You have no choices left, and what you wanted did not come.",
    }

    def opening(self, goal: Goal) -> str:
        """What is seen before the first turn."""
        return self.later(goal, goal.start, 0)

    def later(self, goal: Goal, here: str, used: int) -> str:
        """What is seen after so many turns."""
        return (
            f"Choice {used + 1} of {goal.turns}. You are at {here}. You want {goal.want}. On offer: {', '.join(goal.menu)}. "
            "What do you use?"
        )

    def facts(self, facts: Iterable[Fact]) -> str:
        """What an action showed."""
        return "\n".join(f"At {state}, {action} gives {result}." for state, result, action in facts)

    def context(self, facts: Sequence[Fact]) -> str:
        """The facts as a note."""
        return "\n".join(f"- {self.facts([fact])}" for fact in facts) or "- Nothing is known yet."

    def feedback(self, outcome: str, facts: Sequence[Fact], complaint: str) -> str:
        """Words after the task; outcome is win, lost, late or malformed."""
        if outcome == "malformed":
            return f"Your answer could not be read: {complaint}. Expected one <answer>name</answer>. The task is over."
        return f"{self.facts(facts)}\n{self._endings[outcome]}"

    def foreseen(self, response: str, facts: Sequence[Fact]) -> bool:
        """Whether the response announced what its action showed; feedback says no more about it."""
        return False

    def respond(self, here: str, meant: str, action: str, *, known: bool = True) -> str:
        """A well-formed response, which means to bring about that result, known to come or only hoped for."""
        thought = (
            f"At {here} I expect {meant} of {action}." if known else f"I do not know yet what {action} gives here."
        )
        return f"{thought} <answer>{action}</answer>"

    def parse(self, text: str) -> list[Fact]:
        """Facts stated in a context, an observation or feedback, in order."""
        said = re.findall(r"At ([a-z]+), ([a-z]+) gives ([a-z]+)\.", text)
        return [(state, result, action) for state, action, result in said if {state, action, result} <= NAMES]

    def shown(self, messages: Sequence[Message]) -> TaskView:
        """The task as the dialogue shows it."""
        last = next(message.content for message in reversed(messages) if message.role is Role.USER)
        said = re.search(r"Choice (\d+) of \d+\. You are at (\w+)\. You want (\w+)\. On offer: ([\w, ]+)\.", last)
        assert said is not None, "the dialogue has no task"
        return TaskView(said[2], said[3], tuple(said[4].split(", ")), int(said[1]) - 1)


InventedWording = NaturalInvented | CompactInvented
"""How domains are put into words."""
