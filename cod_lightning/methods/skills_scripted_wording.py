"""How scripted policies write and choose skills."""

from collections.abc import Sequence
from typing import Any

from cod_lightning.contexts.base import Spoken
from cod_lightning.contexts.retrieval import words_of
from cod_lightning.contexts.worded import WordedScripted
from cod_lightning.methods.skills_wording import NONE, Skill, SkillOperation
from cod_lightning.types import Message, Role


class SkillsScripted(WordedScripted[Any]):
    """How scripted policies write the library."""

    def adopt(self, note: str) -> Any:
        """A skill for each part of the note, which is its own clause and step; what is beyond `max_skills` is left out."""
        parts = enumerate(self.of.wording.parts(note)[: self.of.max_skills], start=1)
        return self.of.State(tuple(Skill(self.of.wording.name(n), part, part) for n, part in parts))

    def asks(self, messages: Sequence[Message]) -> bool:
        """Whether it is an update, or the choice that a task begins with."""
        return super().asks(messages) or bool(self.of.wording.offered(messages))

    def write(self, note: str, messages: Sequence[Message]) -> str:
        """In an update, operations that make the library the note's parts; at a choice, the skill whose clause shares most words
        with the task."""
        if offered := self.of.wording.offered(messages):
            task = set(words_of(messages[1].content))
            shared = {name: len(task & set(words_of(when))) for name, when in offered.items()}
            name = max(shared, key=lambda one: shared[one])
            return f"use {name if shared[name] else NONE}"
        present, wanted = self.of.wording.shown(messages), self.of.wording.parts(note)[: self.of.max_skills]
        stale = [name for name, steps in present.items() if steps not in wanted]
        missing = [part for part in wanted if part not in present.values()]
        free = (
            self.of.wording.name(n)
            for n in range(1, 2 * self.of.max_skills + 1)
            if self.of.wording.name(n) not in present
        )
        operations = [SkillOperation("remove", name) for name in stale[len(missing) :]]
        for part in missing:
            operations.append(SkillOperation("skill", stale.pop(0) if stale else next(free), part, part))
        return self.of.wording.write(operations)

    def respond(self, act: Spoken, note: Spoken, messages: Sequence[Message]) -> str:
        """As in a task without a choice, whose rules end with the steps that were shown."""
        if len(messages) < 4 or not self.of.wording.offered(messages[:2]):
            return act(messages)
        system, task, _, given, *rest = messages
        return act((Message(Role.SYSTEM, f"{system.content} {given.content}"), task, *rest))
