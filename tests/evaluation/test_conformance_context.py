"""Every rule for context mechanisms is broken on purpose by one, and found."""

from types import SimpleNamespace

import msgspec

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import ContextUpdate, Stored, TextState
from cod_lightning.contexts.hint import HintScripted
from cod_lightning.contexts.worded import WordedWords
from cod_lightning.evaluation.conformance_context import check_context
from tests.cases import each
from tests.stubs import PlainContext


class Unwritten(PlainContext):
    companions = ()


def test_a_context_that_no_policy_without_a_model_can_write_is_shown_to_a_person():
    (look,) = [verdict for verdict in check_context(Unwritten()) if verdict.look]
    assert "no warm start" in look.remark
    assert not [verdict for verdict in check_context(HintContext("compact")) if verdict.look]


def hinting(kind, **members):
    """The hint, with a companion of this kind that has these members."""
    own = type("Own", (kind,), members)
    return type("Hinting", (HintContext,), {"companions": (own, *HintContext.companions)})


class Loud(HintContext):
    def empty(self):
        return TextState("hello")


class Paying(HintContext):
    def update(self, state, rules, episode, tokens):
        ended = yield from super().update(state, rules, episode, tokens)
        return msgspec.structs.replace(ended, reward=1.0)


class Raw(HintContext):
    def update(self, state, rules, episode, tokens):
        answer = yield self._opening(state)
        return ContextUpdate(state=TextState(answer.response), reward=0.0, parsed=True)

    def _opening(self, state):
        blank = SimpleNamespace(control_token=lambda text: "", count=len)
        from cod_lightning.evaluation.conformance_context import _solved

        return next(super().update(state, "the rules", _solved(self, state), blank))


class Notes(msgspec.Struct):
    text: str = ""


class Mutable(hinting(HintScripted, adopt=lambda self, note: Notes(note))):
    State = Notes

    def empty(self):
        return Notes()

    def text(self, state):
        return state.text

    def feedback(self, state, episode):
        state.text += "!"
        return state


@each(
    ("mechanism", "evidence"),
    [
        (hinting(WordedWords, words=lambda self: ["hint"]), "words() is a list; expected a tuple"),
        (Loud, "expected an empty string"),
        (hinting(HintScripted, adopt=lambda self, note: TextState("")), "text(adopt(note)) lacks"),
        (hinting(Stored, load=lambda self, text: TextState("other")), "is another one after dump and load"),
        (hinting(HintScripted, write=lambda self, note, messages: "no"), "the answer of write() is not taken"),
        (Paying, "expected at most 0"),
        (Raw, "a control token is kept"),
        (Mutable, "changed the state"),
    ],
)
def test_a_context_that_breaks_a_rule_is_named_with_an_example(mechanism, evidence):
    found = [example for verdict in check_context(mechanism("natural")) for example in verdict.broken]
    assert evidence in " ".join(found)
