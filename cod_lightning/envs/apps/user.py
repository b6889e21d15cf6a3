"""The person whom an agent can ask: answers only what is asked, and only a few times; by script, or by a model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from cod_lightning.envs.apps.facts import HABITS, HiddenFacts, sentence
from cod_lightning.envs.unchanging import Unchanging

KEYWORDS = {
    "agreed": ("confirm", "may i", "shall i", "should i"),
    "card": ("card", "pay"),
    "address": ("address", "deliver"),
    "boss": ("boss",),
    "sign": ("sign", "closing"),
    "minutes": ("minutes", "long", "take"),
    "day": ("day", "when", "date"),
    "email": ("whom", "who", "receiver"),
}
"""A question about a topic has one of its words."""
NO_ANSWER = "I cannot say more about that."
IMPATIENT = "I have answered enough questions."


class Voice(ABC):
    """Finds the person's words."""

    blocking: bool = False
    """Whether an answer waits for something outside."""

    @abstractmethod
    def answer(self, question: str, goal: str, known: Mapping[str, str]) -> str:
        """The answer of a person with that goal who knows these sentences, by topic."""


class ScriptedVoice(Voice, Unchanging):
    """The sentence of the first topic of which the question has a word."""

    def answer(self, question: str, goal: str, known: Mapping[str, str]) -> str:
        words = question.lower()
        found = (topic for topic in known if any(word in words for word in KEYWORDS.get(topic, (topic,))))
        return next((known[topic] for topic in found), NO_ANSWER)


class User:
    """A person in a task.

    Args:
        facts: Its habits.
        goal: What it asked for.
        withheld: Parts of the task that its text does not state.
        patience: Questions that it answers.
        voice: Finds its words.
    """

    def __init__(self, facts: HiddenFacts, goal: str, withheld: Mapping[str, str], patience: int, voice: Voice) -> None:
        self.facts, self.goal, self.withheld, self.patience, self.voice = facts, goal, withheld, patience, voice
        self.questions = 0

    def copy(self) -> "User":
        """A user of whom as much has been asked."""
        twin = User(self.facts, self.goal, self.withheld, self.patience, self.voice)
        twin.questions = self.questions
        return twin

    def asked(self, question: str) -> str:
        """The answer to a question; counts it."""
        self.questions += 1
        if self.questions > self.patience:
            return IMPATIENT
        known = {
            topic: f"Yes, you may; let it be {value}." if topic == "agreed" else f"The {topic} is {value}."
            for topic, value in self.withheld.items()
        }
        habits = {habit: sentence(habit, value) for habit in HABITS if (value := getattr(self.facts, habit))}
        return self.voice.answer(question, self.goal, known | habits)
