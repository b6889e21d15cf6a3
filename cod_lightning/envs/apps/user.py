"""The person whom an agent can ask: answers only what is asked, and only a few times."""

from collections.abc import Mapping

from cod_lightning.envs.apps.facts import HABITS, HiddenFacts, sentence

KEYWORDS = {
    "agreed": ("confirm", "may i", "shall i", "should i"),
    "card": ("card", "pay"),
    "address": ("address", "deliver"),
    "boss": ("boss",),
    "sign": ("sign", "closing"),
    "minutes": ("minutes", "long", "take"),
    "day": ("day", "when", "date"),
    "email": ("whom", "who", "receiver", "recipient", "email address", "mail address"),
}
"""A question about a topic has one of its words."""
NO_ANSWER = "I cannot say more about that."
IMPATIENT = "I have answered enough questions."


class User:
    """A person in a task.

    Args:
        facts: Its habits.
        withheld: Parts of the task that its text does not state.
        patience: Questions that it answers.
    """

    def __init__(self, facts: HiddenFacts, withheld: Mapping[str, str], patience: int) -> None:
        self.facts, self.withheld, self.patience = facts, withheld, patience
        self.questions = 0

    def copy(self) -> "User":
        """A user of whom as much has been asked."""
        twin = User(self.facts, self.withheld, self.patience)
        twin.questions = self.questions
        return twin

    def asked(self, question: str) -> str:
        """The sentence of the first topic of which the question has a word; counts the question."""
        self.questions += 1
        if self.questions > self.patience:
            return IMPATIENT
        known = {
            topic: f"Yes, you may; let it be {value}." if topic == "agreed" else f"The {topic} is {value}."
            for topic, value in self.withheld.items()
        }
        habits = {habit: sentence(habit, value) for habit in HABITS if (value := getattr(self.facts, habit))}
        words, known = question.lower(), known | habits
        found = (topic for topic in known if any(word in words for word in KEYWORDS.get(topic, (topic,))))
        return next((known[topic] for topic in found), NO_ANSWER)
