"""The clinic in fused words, for tiny policies."""

from dataclasses import dataclass

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.learn2ask.clinic import Clinics, ClinicTask
from cod_lightning.envs.learn2ask.protocol import ProtocolTable
from cod_lightning.envs.learn2ask.wording import STOP_TAG, Judged, ReadAnswer


@dataclass(frozen=True)
class CompactClinic:
    """`cold told=fever told=pain`, answered by one word; then `wrong want=allergy sleep=no`."""

    clinics: Clinics

    @property
    def facts(self) -> ProtocolTable:
        return ProtocolTable(self.clinics.items, self.clinics.num_required, compact=True)

    def rules(self) -> str:
        return "clinic"

    def observation(self, task: ClinicTask) -> str:
        return " ".join([task.condition, *(f"told={name}" for name in task.mentioned)])

    def read(self, response: str) -> ReadAnswer:
        text, complaint = answer_of(response)
        if complaint:
            return ReadAnswer(complaint=complaint)
        if STOP_TAG.fullmatch(text):
            return ReadAnswer(stops=True, exact=True)
        name = text.removeprefix("ask=")
        if not text.startswith("ask=") or name not in self.clinics.items:
            return ReadAnswer(complaint="the answer is neither ask=ITEM nor <stop/>")
        return ReadAnswer(question=text, asked=(name,))

    def feedback(self, judged: Judged) -> str:
        return " ".join([judged.outcome, *(f"want={n}" if fact else f"{n}=no" for n, fact in judged.revealed.items())])

    def respond(self, name: str | None) -> str:
        return "<answer><stop/></answer>" if name is None else f"<answer>ask={name}</answer>"

    def mentioned_in(self, observation: str) -> tuple[str, ...]:
        return tuple(word.removeprefix("told=") for word in observation.split() if word.startswith("told="))

    def cut_at_feedback(self, messages: str) -> tuple[str, str]:
        before, _, after = messages.rpartition("\n")
        return before, after

    def words(self) -> tuple[str, ...]:
        items = self.clinics.items
        return (
            "clinic",
            *self.clinics.conditions,
            *(f"told={name}" for name in items),
            *self.facts.words(),
            *(self.respond(name) for name in (*items, None)),
            *("right", "near", "wrong", "early", "late", "stopped", "malformed"),
        )
