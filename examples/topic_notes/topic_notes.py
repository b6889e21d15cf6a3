"""A context mechanism of your own in one file: notes, of which each task is shown those that share words with it."""

import re

from msgspec import Struct, structs

from cod_lightning.contexts.base import ContextMechanism, ContextUpdate, InTask, Intervention, Prepared, Scripted
from cod_lightning.contexts.hint_wording import fenced, record
from cod_lightning.types import Message, Role

ASK = """You keep notes about one environment, a line each. Do not solve a task now; rewrite the notes. A later task is shown only
notes that share a word with it, so name in each what it is about. Answer with all notes between <notes> and </notes>."""


class Note(Struct, frozen=True):
    text: str
    worth: float = 0.0  # moving average of the rewards of the tasks that were shown it


class Notes(Struct, frozen=True):
    notes: tuple[Note, ...] = ()
    shown: tuple[str, ...] = ()  # to the present task


class TopicScripted(Scripted):
    """How scripted policies write the notes."""

    def adopt(self, note):
        return Notes(tuple(map(Note, lines_of(note))))

    def asks(self, messages):
        return messages[0].content == ASK

    def write(self, note, messages):
        return f"<notes>\n{note}\n</notes>"


class TopicInTask(InTask):
    """What the notes do within a task."""

    def on_turn(self, state, response, tokens):
        if asked := re.search(r"<look>(\w+)</look>\s*$", response):
            found = [note.text for note in state.notes if shared(note, asked[1])]
            return Intervention(state, "\n".join(found) or "There is no such note.")
        return None


class TopicNotes(ContextMechanism):
    """Notes that are retrieved by the words of a task.

    Args:
        most: Notes that a task is shown.
    """

    companions = (
        TopicScripted,
        TopicInTask,
    )

    State = Notes

    def __init__(self, most: int = 3) -> None:
        self.most = most

    def empty(self):
        return Notes()

    def text(self, state):
        return "\n".join(note.text for note in state.notes)

    def prepare(self, state, rules, observation):
        ranked = sorted(state.notes, key=lambda note: (shared(note, observation), note.worth), reverse=True)
        shown = tuple(note.text for note in ranked[: self.most] if shared(note, observation))
        offer = ["## Your notes", *shown, "For others answer <look>WORD</look>."] if state.notes else []
        return Prepared("\n".join([rules, *offer]), structs.replace(state, shown=shown))

    def feedback(self, state, episode):
        def after(note):
            used = note.text in state.shown
            return Note(note.text, note.worth + 0.5 * (episode.reward - note.worth)) if used else note

        return Notes(tuple(map(after, state.notes)))

    def update(self, state, rules, episode, tokens):
        sections = [f"# Notes\n{fenced(self.text(state))}", *record(rules, episode)]
        answer = yield Message(Role.SYSTEM, ASK), Message(Role.USER, "\n\n".join(sections))
        lines, reason = read(answer.response, tokens)
        if reason:
            answer = yield f"{reason}. Write all notes again."
            lines, reason = read(answer.response, tokens)
        if reason:
            return ContextUpdate(state=state, reward=-0.1, parsed=False, reason=reason)
        known = {note.text: note for note in state.notes}
        return ContextUpdate(state=Notes(tuple(known.get(x, Note(x)) for x in lines)), reward=0.0, parsed=True)


def read(response, tokens):
    found = re.fullmatch(r".*<notes>(.*)</notes>\s*", response, re.DOTALL)
    if not found or response.count("<notes>") > 1:
        return [], "Expected one block <notes>...</notes> at the end"
    if token := tokens.control_token(found[1]):
        return [], f"The notes have the control token {token}"
    return lines_of(found[1]), ""


def lines_of(text):
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def shared(note, text):
    return len(set(re.findall(r"\w+", note.text.lower())) & set(re.findall(r"\w+", text.lower())))
