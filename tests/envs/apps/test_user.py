"""The person: answers what is asked, a few times."""

import copy

from cod_lightning.envs.apps.facts import HiddenFacts
from cod_lightning.envs.apps.user import IMPATIENT, NO_ANSWER, User
from tests.cases import each

FACTS = HiddenFacts(card="gold", boss="head", sign="Best")


def user(patience=9, **withheld):
    return User(FACTS, withheld, patience)


@each(
    ("question", "answer"),
    [
        ("Which CARD?", "I pay with the gold card."),
        ("Who is the boss?", "The boss is the head."),
        ("How do you sign?", "I sign with Best."),
        ("What is the weather?", NO_ANSWER),
        ("To which address?", NO_ANSWER),
        ("", NO_ANSWER),
    ],
)
def test_a_scripted_person_answers_what_is_asked_and_what_it_knows(question, answer):
    assert user().asked(question) == answer


def test_what_the_task_left_out_is_answered_first():
    assert user(day="2026-03-05").asked("On which day?") == "The day is 2026-03-05."
    for question in ("To whom?", "Which email address do I send it to?", "What is the recipient's address?"):
        assert User(HiddenFacts(address="home"), {"email": "a@b"}, 1).asked(question) == "The email is a@b."


def test_patience_ends_and_a_copy_has_its_own():
    person = user(patience=1)
    twin = copy.copy(person).copy()
    assert person.asked("Which card?") != IMPATIENT
    assert person.asked("Which card?") == IMPATIENT
    assert twin.asked("Which card?") != IMPATIENT
