"""The clinic and prepared dialogues in sentences, for language models."""

from collections.abc import Iterable
from dataclasses import dataclass

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.learn2ask.clinic import Clinics, ClinicTask, turns_of
from cod_lightning.envs.learn2ask.items import BY_NAME
from cod_lightning.envs.learn2ask.judge import asked_items
from cod_lightning.envs.learn2ask.protocol import Facts, ProtocolTable
from cod_lightning.envs.learn2ask.records import RecordTask
from cod_lightning.envs.learn2ask.wording import BEST, STOP, STOP_TAG, Judged, ReadAnswer

LONGEST_QUESTION = 1000
"""Letters of an answer."""


class Sentences:
    """What natural renderings of both kinds of tasks share."""

    form: str
    """tagged: the answer stands between answer tags. raw: the whole response is the answer, as in the reference."""

    def how_to_answer(self) -> str:
        """The form of a response."""
        if self.form == "raw":
            return f"Answer with the question alone, or with {STOP} alone."
        return (
            "Answer with brief reasoning, then exactly one action in one of these forms:\n"
            f"<answer>your question</answer>\n<answer>{STOP}</answer>"
        )

    def read(self, response: str) -> ReadAnswer:
        """What a response says."""
        text, complaint = answer_of(response) if self.form == "tagged" else (response, "")
        if complaint:
            return ReadAnswer(complaint=complaint)
        if len(text) > LONGEST_QUESTION:
            return ReadAnswer(complaint=f"the answer has {len(text)} letters; at most {LONGEST_QUESTION} are read")
        text = text.strip()
        if STOP_TAG.search(text):
            return ReadAnswer(stops=True, exact=STOP_TAG.fullmatch(text) is not None)
        if not any(letter.isalpha() for letter in text):
            return ReadAnswer(complaint="the answer holds no word")
        return ReadAnswer(question=text, asked=asked_items(text))

    def feedback(self, judged: Judged) -> str:
        """Words after the task."""
        if judged.outcome == "malformed":
            return f"Your answer could not be read: {judged.complaint}. {self.expected()} The task is over."
        s = judged.scores
        scored = (
            f"Scores: action {s.action:g}, content {s.content:g}, format {s.format:g}; fused by Ra+Rs they give {s.points:g} of "
            f"{BEST:g}."
        )
        note = f" Judge's note: {judged.note}." if judged.note else ""
        return f"{_OUTCOMES[judged.outcome]}{note} {scored}{_revealed(judged.revealed)}"

    def expected(self) -> str:
        """The form, in one sentence."""
        inside = f"a question of at most {LONGEST_QUESTION} letters, or {STOP}"
        return f"Expected {inside}." if self.form == "raw" else f"Expected one <answer>...</answer> with {inside}."

    def wrapped(self, answer: str, thought: str) -> str:
        """A well-formed response."""
        return answer if self.form == "raw" else f"{thought} <answer>{answer}</answer>"


_OUTCOMES = {
    "right": "A question was right, and it went straight for something that is missing.",
    "near": "A question was right, and yours came close to something that is missing, but did not ask for it alone.",
    "wrong": "A question was right, but not this one: it asks for nothing that is missing.",
    "early": "Stopping was too early: something needed is still missing, so all scores are 0. A question was due.",
    "late": "The question came too late: nothing needed is missing, so all scores are 0. It was time to stop.",
    "stopped": "Stopping was right: nothing needed is missing.",
}
_SHOWS = "\nThis shows: "


def _revealed(facts: Facts) -> str:
    said = [f"{BY_NAME[name].title} is {'' if fact else 'not '}required" for name, fact in facts.items()]
    return f"{_SHOWS}{'; '.join(said)}." if said else ""


@dataclass(frozen=True)
class NaturalClinic(Sentences):
    """Full sentences."""

    clinics: Clinics
    form: str = "tagged"  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def facts(self) -> ProtocolTable:
        """How facts about the protocol are spelled."""
        return ProtocolTable(self.clinics.items, self.clinics.num_required, compact=False)

    def rules(self) -> str:
        """System text."""
        listed = ", ".join(BY_NAME[name].title for name in self.clinics.items)
        return (
            "You are the assistant of a clinic and talk to a patient before a medication can be suggested. For that the clinic's "
            f"protocol wants {self.clinics.num_required} of these {self.clinics.num_items} items to be known: {listed}. Which "
            "these are you are not told; they are the same for everyone who comes to this clinic, so what feedback shows of them "
            "may pay later.\n\n"
            "You see the dialogue so far and say the next thing. While a wanted item has not come up, ask for one: a single clear "
            "question in one sentence, with two or three answers to choose from, never for what is already known. An item has "
            "come up whether the answer was yes or no. Once all wanted items have come up, do not ask, but stop.\n\n"
            "A right decision counts most, then whether the question asks for a wanted item that is missing, then its form.\n\n"
            f"{self.how_to_answer()}"
        )

    def observation(self, task: ClinicTask) -> str:
        """The dialogue so far."""
        return shown(turns_of(task))

    def respond(self, name: str | None) -> str:
        """A well-formed response that asks for an item, or stops."""
        if name is None:
            return self.wrapped(STOP, "Nothing seems to be missing.")
        return self.wrapped(BY_NAME[name].question, f"I would like to know about {BY_NAME[name].title}.")

    def mentioned_in(self, observation: str) -> tuple[str, ...]:
        """Items that a dialogue mentions, read back."""
        return tuple(n for n in self.clinics.items if any(f": {tell}" in observation for tell in BY_NAME[n].tells))

    def cut_at_feedback(self, messages: str) -> tuple[str, str]:
        """Feedback ends with what it shows."""
        before, shows, after = messages.rpartition(_SHOWS)
        return (before, after) if shows else (messages, "")


@dataclass(frozen=True)
class NaturalRecords(Sentences):
    """Prepared dialogues, with the reference's common policy as the only rule."""

    form: str = "tagged"  # pyright: ignore[reportIncompatibleVariableOverride]

    def rules(self) -> str:
        """Whose side is taken and how to answer."""
        return (
            "You help at a pharmacy and talk to a patient until enough is known to suggest a medication.\n\n"
            "You see the dialogue so far and say the next thing. While something that matters is unknown, ask for it: a single "
            "clear question in one sentence, with two or three answers to choose from, never for what has been said. Once enough "
            "is known, do not ask, but stop.\n\n"
            "A right decision counts most, then whether the question asks for what is missing, then its form.\n\n"
            f"{self.how_to_answer()}"
        )

    def observation(self, task: RecordTask) -> str:
        """The dialogue, line by line."""
        return shown(task.turns)

    def respond(self, item: str | None) -> str:
        """A question about an item in its own words, or a stop."""
        if item is None:
            return self.wrapped(STOP, "Enough is known.")
        asked = item.rpartition(":")[2].strip()[:200].replace("<", " ").replace(">", " ")
        return self.wrapped(f"Is there any {asked}: yes, no or not sure?", "Something is missing.")


def shown(turns: Iterable[tuple[str, str]]) -> str:
    """A dialogue, line by line, and what is asked."""
    lines = [f"{'Patient' if role == 'user' else 'Assistant'}: {text}" for role, text in turns]
    return "Dialogue so far:\n" + "\n".join(lines) + "\n\nDo you ask or stop?"
