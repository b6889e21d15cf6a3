"""A library of skills: named procedures with a clause that says when they apply; the policy chooses one when a task begins.

Sources: SAGE (arXiv 2512.17102), where skills written in earlier tasks of a chain are offered in later ones and training rewards
their later use; ReMe (arXiv 2512.10696), a pool of procedures that is refined, and loses what is used often and helps seldom.
Differs: skills are text and not code; what a later use earns reaches the update that wrote the skill by the returns
(`EpisodeCredit`), and a use is paid by itself only with the part `EntryUse`; the choice is a turn of the policy, trained with
the task that it begins; and a skill that was revised starts its record anew.
"""

import math
import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from cod_lightning.contexts.base import (
    ContextEntry,
    ContextUpdate,
    Intervention,
    Prepared,
    Spoken,
    TokenView,
    UpdateDialogue,
)
from cod_lightning.contexts.blocks import faults
from cod_lightning.contexts.provenance import Provenance
from cod_lightning.contexts.retrieval import words_of
from cod_lightning.contexts.skills_wording import NONE, WORDINGS, Skill, SkillKind, SkillOperation
from cod_lightning.contexts.worded import WordedContext, check_count
from cod_lightning.errors import ConfigError
from cod_lightning.types import Episode, Message, Role


class SkillsState(Struct, frozen=True):
    """Skills in the order in which they were first written."""

    skills: tuple[Skill, ...] = ()
    choosing: bool = False
    """Whether the next response of the present task is the choice."""
    chosen: str = ""
    """Name of the skill that the latest task uses."""
    news: tuple[str, ...] = ()
    """What was refused or removed since the policy last saw the library, and why."""
    gone: dict[str, str] = {}
    """Skills that the latest episode removed unasked, and why."""


class SkillsContext(WordedContext):
    """Procedures that the policy writes, chooses from, revises and removes.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        max_skills: Most skills. A further one takes the place of the least worth among those that were used; where none was, it is
            refused.
        budget: Most tokens of all skills together; an operation that would exceed it is refused.
        trial: Uses after which a skill is judged.
        least_worth: A skill that was used `trial` times or more, with a mean reward below this, is removed.
        penalty: Reward of an update without a readable operation is minus this; where some are refused, their share of it.
        response_limit: Tokens suggested to the policy in natural prompts; null says nothing.
        provenance: Whether a skill is listed with where it comes from: handed over before the first task, or written after which
            task, and whether that one was solved. It counts in the budget.

    Raises:
        ConfigError: For a value that cannot work, with its key `data.context.*`.
    """

    State: ClassVar[type[Struct]] = SkillsState

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        max_skills: int = 16,
        budget: int = 1024,
        trial: int = 3,
        least_worth: float = 0.2,
        penalty: float = 0.1,
        response_limit: int | None = 1000,
        provenance: bool = False,
    ) -> None:
        super().__init__(protocol, WORDINGS, penalty, response_limit)
        self.provenance = Provenance(provenance, protocol)
        check_count("max_skills", max_skills, 1, 999)
        check_count("budget", budget, 1)
        check_count("trial", trial, 1)
        if not math.isfinite(least_worth):
            raise ConfigError("data.context.least_worth", least_worth, "a finite number", "0.2 is the default.")
        self.wording = WORDINGS[protocol](max_skills, response_limit)
        self.max_skills, self.budget, self.trial, self.least_worth = max_skills, budget, trial, least_worth

    def text(self, state: SkillsState) -> str:
        return "\n".join(
            f"{one.name}: when {one.when}: {one.steps} ({one.worth:.2f} in {one.uses} tasks)" for one in state.skills
        )

    def entries(self, state: SkillsState) -> tuple[ContextEntry, ...]:
        """Skills by name; shown is the one that was chosen."""
        kept = [
            ContextEntry(one.name, f"when {one.when}: {one.steps}", one.name == state.chosen) for one in state.skills
        ]
        return (*kept, *(ContextEntry(name, "", name == state.chosen, why) for name, why in state.gone.items()))

    def adopt(self, note: str) -> SkillsState:
        """A skill for each part of the note, which is its own clause and step; what is beyond `max_skills` is left out."""
        parts = self.wording.parts(note)[: self.max_skills]
        return SkillsState(tuple(Skill(self.wording.name(n), part, part) for n, part in enumerate(parts, start=1)))

    def prepare(self, state: SkillsState, rules: str, observation: str) -> Prepared:
        system = self.wording.inject(rules, [self._shown(one) for one in state.skills])
        return Prepared(system, replace(state, choosing=bool(state.skills), chosen="", gone={}))

    def on_turn(self, state: SkillsState, response: str, tokens: TokenView) -> Intervention | None:
        """Answers the choice with the steps of what was chosen; leaves all other responses to the environment."""
        if not state.choosing:
            return None
        name = self.wording.choice(response)
        chosen = next((skill for skill in state.skills if skill.name == name), None)
        known = chosen is not None or name == NONE
        complaint = "" if known else "That was no choice of a skill in the list; none is used."
        after = replace(state, choosing=False, chosen=chosen.name if chosen else "")
        return Intervention(after, self.wording.given(chosen, complaint))

    def feedback(self, state: SkillsState, episode: Episode) -> SkillsState:
        """The mean reward of the chosen skill, which goes if it was tried and is not worth its place.

        Where the environment hides the reward, no skill has any: all count as not used, and none goes.
        """
        if episode.reward_hidden:
            return SkillsState(state.skills, chosen=state.chosen, news=state.news)
        kept: list[Skill] = []
        news, gone = list(state.news), dict[str, str]()
        for skill in state.skills:
            if skill.name == state.chosen:
                uses = skill.uses + 1
                worth = skill.worth + ((episode.reward or 0.0) - skill.worth) / uses
                skill = replace(skill, uses=uses, worth=worth)
                if uses >= self.trial and worth < self.least_worth:
                    gone[skill.name] = f"mean reward {worth:.2f} in {uses} tasks"
                    news.append(f"{skill.name} was removed: {gone[skill.name]}")
                    continue
            kept.append(skill)
        return SkillsState(tuple(kept), chosen=state.chosen, news=tuple(news), gone=gone)

    def update(self, state: SkillsState, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        listed = [self._shown(one) for one in state.skills]
        answer = yield self.wording.ask(rules, episode, listed, state.news, self.budget)
        operations, reason = self.wording.read(answer.response)
        if reason:
            kept = SkillsState(state.skills, news=(reason,))
            return ContextUpdate(state=kept, reward=-self.penalty, parsed=False, reason=reason)
        skills = {skill.name: skill for skill in state.skills}
        news, made_room = list[str](), dict[str, str]()
        refused = 0
        for operation in operations:
            new = Skill(operation.name, operation.when, operation.steps, episode.position, solved=episode.success)
            if reason := self._refusal(skills, operation, new, tokens):
                news.append(f"{self.wording.spelled(operation)}: {reason}")
                refused += 1
            elif operation.kind is SkillKind.REMOVE:
                del skills[operation.name]
            elif operation.kind is SkillKind.SKILL:
                if operation.name not in skills and len(skills) == self.max_skills:
                    worst = min((one for one in skills.values() if one.uses), key=lambda one: one.worth)
                    del skills[worst.name]
                    made_room[worst.name] = f"made room: mean reward {worst.worth:.2f} in {worst.uses} tasks"
                    news.append(f"{worst.name} {made_room[worst.name]}")
                skills[operation.name] = new
        reward = -self.penalty * refused / len(operations)
        gone = {name: why for name, why in made_room.items() if name not in skills}
        after = SkillsState(tuple(skills.values()), news=tuple(news), gone=gone)
        return ContextUpdate(state=after, reward=reward, parsed=True, reason="; ".join(news))

    def asks(self, messages: Sequence[Message]) -> bool:
        """Whether it is an update, or the choice that a task begins with."""
        return super().asks(messages) or bool(self.wording.offered(messages))

    def write(self, note: str, messages: Sequence[Message]) -> str:
        """In an update, operations that make the library the note's parts; at a choice, the skill whose clause shares most words
        with the task."""
        if offered := self.wording.offered(messages):
            task = set(words_of(messages[1].content))
            clauses = {name: self.provenance.read(when) for name, when in offered.items()}
            shared = {name: len(task & set(words_of(when))) for name, when in clauses.items()}
            name = max(shared, key=lambda one: shared[one])
            return f"use {name if shared[name] else NONE}"
        present, wanted = self.wording.shown(messages), self.wording.parts(note)[: self.max_skills]
        stale = [name for name, steps in present.items() if steps not in wanted]
        missing = [part for part in wanted if part not in present.values()]
        free = (self.wording.name(n) for n in range(1, 2 * self.max_skills + 1) if self.wording.name(n) not in present)
        operations = [SkillOperation(SkillKind.REMOVE, name) for name in stale[len(missing) :]]
        for part in missing:
            operations.append(SkillOperation(SkillKind.SKILL, stale.pop(0) if stale else next(free), part, part))
        return self.wording.write(operations)

    def respond(self, act: Spoken, note: Spoken, messages: Sequence[Message]) -> str:
        """As in a task without a choice, whose rules end with the steps that were shown."""
        if len(messages) < 4 or not self.wording.offered(messages[:2]):
            return act(messages)
        system, task, _, given, *rest = messages
        return act((Message(Role.SYSTEM, f"{system.content} {given.content}"), task, *rest))

    def _shown(self, skill: Skill) -> Skill:
        """The skill as it is listed: before its clause, where it comes from."""
        return replace(skill, when=self.provenance.before(skill.when, skill.since, skill.solved))

    def _refusal(self, skills: dict[str, Skill], operation: SkillOperation, new: Skill, tokens: TokenView) -> str:
        """Why the operation cannot be carried out, which would write the new skill; empty where it can."""
        if operation.malformed or operation.kind is SkillKind.KEEP:
            return operation.malformed
        if operation.kind is SkillKind.REMOVE:
            return "" if operation.name in skills else f"there is no skill '{operation.name}'"
        if not self._is_name(operation.name):
            return f"a name has {self.wording.name_rule}"
        for what, text in (("clause", operation.when), ("text of the steps", operation.steps)):
            if reason := next(faults(text, tokens, self.wording.marks, what), ""):
                return reason
            if self.provenance.spelled_in(text):
                return f"the {what} has a mark of the context's own"
        counted = [self._shown(one) for one in (*(s for name, s in skills.items() if name != operation.name), new)]
        if (total := sum(tokens.count(f"{one.when} {one.steps}") for one in counted)) > self.budget:
            return f"the skills would have {total} tokens of {self.budget}; remove or shorten one first"
        full = operation.name not in skills and len(skills) == self.max_skills
        if full and not any(one.uses for one in skills.values()):
            return f"there are {self.max_skills} skills already, none of them used yet; remove one first"
        return ""

    def _is_name(self, name: str) -> bool:
        known = self.wording.words()
        return bool(re.fullmatch(self.wording.name_form, name)) and name != NONE and (not known or name in known)
