"""The person as a scripted user: has a goal, answers only what is asked, and only a few times."""

from collections.abc import Mapping

from cod_lightning.envs.apps.facts import HABITS, Facts, sentence

KEYWORDS = {
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


class ScriptedUser:
    """Answers questions about its habits and about what its task left out.

    Args:
        facts: Its habits.
        withheld: Parts of the task that its text does not state.
        patience: Questions that it answers.
    """

    def __init__(self, facts: Facts, withheld: Mapping[str, str], patience: int) -> None:
        self.facts, self.withheld, self.patience, self.questions = facts, withheld, patience, 0

    def copy(self) -> "ScriptedUser":
        """A user of whom as much has been asked."""
        twin = ScriptedUser(self.facts, self.withheld, self.patience)
        twin.questions = self.questions
        return twin

    def asked(self, question: str) -> str:
        """The answer to a question; counts it."""
        self.questions += 1
        if self.questions > self.patience:
            return IMPATIENT
        words = question.lower()
        for topic in (*self.withheld, *HABITS):
            if any(word in words for word in KEYWORDS[topic]):
                return (
                    f"The {topic} is {self.withheld[topic]}."
                    if topic in self.withheld
                    else sentence(topic, getattr(self.facts, topic))
                )
        return NO_ANSWER
