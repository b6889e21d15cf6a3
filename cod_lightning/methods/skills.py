"""A library of skills: named procedures with a clause that says when they apply; the policy chooses one when a task begins.

Sources: SAGE (arXiv 2512.17102), where skills written in earlier tasks of a chain are offered in later ones and training rewards
their later use; ReMe (arXiv 2512.10696), a pool of procedures that is refined, and loses what is used often and helps seldom.
Differs: skills are text and not code; what a later use earns reaches the update that wrote the skill by the returns
(`EpisodeCredit`), and a use is paid by itself only with the part `EntryUse`; the choice is a turn of the policy, trained with
the task that it begins; and a skill that was revised starts its record anew.
"""

import re
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from cod_lightning.contexts.base import (
    ContextEntry,
    ContextUpdate,
    Entries,
    InTask,
    Intervention,
    Prepared,
    TokenView,
    UpdateDialogue,
)
from cod_lightning.contexts.blocks import KEEP, fault
from cod_lightning.contexts.worded import WordedContext
from cod_lightning.methods.skills_scripted_wording import SkillsScripted
from cod_lightning.methods.skills_wording import NONE, WORDINGS, Skill, SkillOperation
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.types import Episode

_TRIAL = 3
"""Uses after which a skill is judged."""
_LEAST_WORTH = 0.2
"""A skill that was used `_TRIAL` times or more, with a mean reward below this, is removed."""


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


class SkillsEntries(Entries["SkillsContext"]):
    """The pieces of the library."""

    def entries(self, state: SkillsState) -> tuple[ContextEntry, ...]:
        """Skills by name; shown is the one that was chosen."""
        kept = ((one.name, f"when {one.when}: {one.steps}", "") for one in state.skills)
        gone = ((name, "", why) for name, why in state.gone.items())
        return tuple(ContextEntry(name, text, name == state.chosen, why) for name, text, why in (*kept, *gone))


class SkillsInTask(InTask["SkillsContext"]):
    """What the library does within a task."""

    def on_turn(self, state: SkillsState, response: str, tokens: TokenView) -> Intervention | None:
        """Answers the choice with the steps of what was chosen; leaves all other responses to the environment."""
        if not state.choosing:
            return None
        name = self.of.wording.choice(response)
        chosen = next((skill for skill in state.skills if skill.name == name), None)
        complaint = "" if chosen or name == NONE else "That was no choice of a skill in the list; none is used."
        return Intervention(
            replace(state, choosing=False, chosen=chosen.name if chosen else ""),
            self.of.wording.given(chosen, complaint),
        )


class SkillsContext(WordedContext):
    """Procedures that the policy writes, chooses from, revises and removes.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        max_skills: Most skills. A further one takes the place of the least worth among those that were used; where none was, it is
            refused.
        budget: Most tokens of all skills together; an operation that would exceed it is refused.
        penalty: Reward of an update without a readable operation is minus this; where some are refused, their share of it.
        response_limit: Tokens suggested to the policy in natural prompts; null says nothing.
    """

    companions = (SkillsEntries, SkillsScripted, SkillsInTask, *WordedContext.companions)

    State: ClassVar[type[Struct]] = SkillsState

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        max_skills: Count = 16,
        budget: Count = 1024,
        penalty: NonNegative = 0.1,
        response_limit: Count | None = 1000,
    ) -> None:
        super().__init__(penalty, response_limit)
        self.wording = WORDINGS[protocol](max_skills, response_limit)
        self.max_skills, self.budget = max_skills, budget

    def text(self, state: SkillsState) -> str:
        return "\n".join(
            f"{one.name}: when {one.when}: {one.steps} ({one.worth:.2f} in {one.uses} tasks)" for one in state.skills
        )

    def prepare(self, state: SkillsState, rules: str, observation: str) -> Prepared:
        begun = replace(state, choosing=bool(state.skills), chosen="", gone={})
        return Prepared(self.wording.inject(rules, state.skills), begun)

    def feedback(self, state: SkillsState, episode: Episode) -> SkillsState:
        """The mean reward of the chosen skill, which goes if it was tried and is not worth its place; a hidden reward is none."""
        after = SkillsState(state.skills, chosen=state.chosen, news=state.news)
        used = next((one for one in state.skills if one.name == state.chosen), None)
        if used is None or episode.reward_hidden:
            return after
        uses = used.uses + 1
        now = replace(used, uses=uses, worth=used.worth + ((episode.reward or 0.0) - used.worth) / uses)
        if uses < _TRIAL or now.worth >= _LEAST_WORTH:
            return replace(after, skills=tuple(now if one is used else one for one in state.skills))
        news = (*state.news, f"{now.name} was removed: {now.record}")
        kept = tuple(one for one in state.skills if one is not used)
        return replace(after, skills=kept, news=news, gone={now.name: now.record})

    def update(self, state: SkillsState, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        answer = yield self.wording.ask(rules, episode, state.skills, state.news, self.budget)
        operations, reason = self.wording.read(answer.response)
        if reason:
            kept = SkillsState(state.skills, news=(reason,))
            return ContextUpdate(state=kept, reward=-self.penalty, parsed=False, reason=reason)
        skills = {skill.name: skill for skill in state.skills}
        news, made_room, refused = list[str](), dict[str, str](), 0
        for operation in operations:
            if reason := self._refusal(skills, operation, tokens):
                news.append(f"{self.wording.spelled(operation)}: {reason}")
                refused += 1
            elif operation.kind == "remove":
                del skills[operation.name]
            elif operation.kind == "skill":
                if worst := self._worst(skills, operation.name):
                    del skills[worst.name]
                    made_room[worst.name] = f"made room: {worst.record}"
                    news.append(f"{worst.name} {made_room[worst.name]}")
                skills[operation.name] = Skill(operation.name, operation.when, operation.steps, episode.position)
        reward = -self.penalty * refused / len(operations)
        gone = {name: why for name, why in made_room.items() if name not in skills}
        after = SkillsState(tuple(skills.values()), news=tuple(news), gone=gone)
        return ContextUpdate(state=after, reward=reward, parsed=True, reason="; ".join(news))

    def _refusal(self, skills: dict[str, Skill], operation: SkillOperation, tokens: TokenView) -> str:
        """Why the operation cannot be carried out; empty where it can."""
        name, names = operation.name, self.wording.words()
        if operation.malformed or operation.kind == KEEP:
            return operation.malformed
        if operation.kind == "remove":
            return "" if name in skills else f"there is no skill '{name}'"
        if name == NONE or not re.fullmatch(self.wording.name_form, name) or (names and name not in names):
            return f"a name has {self.wording.name_rule}"
        for what, text in (("clause", operation.when), ("text of the steps", operation.steps)):
            if reason := fault(text, tokens, self.wording.marks, what):
                return reason
        worst = self._worst(skills, name)
        if worst is None and name not in skills and len(skills) >= self.max_skills:
            return f"there are {self.max_skills} skills already, none of them used yet; remove one first"
        counted = [*(one for one in skills.values() if one.name != name and one is not worst), operation]
        if (total := sum(tokens.count(f"{one.when} {one.steps}") for one in counted)) > self.budget:
            return f"the skills would have {total} tokens of {self.budget}; remove or shorten one first"
        return ""

    def _worst(self, skills: dict[str, Skill], name: str) -> Skill | None:
        """The skill in whose place one of this name comes: of a full library the one of least worth among those that were used."""
        if name in skills or len(skills) < self.max_skills:
            return None
        return min((one for one in skills.values() if one.uses), key=lambda one: one.worth, default=None)
