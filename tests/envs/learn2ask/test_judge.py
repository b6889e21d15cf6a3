"""The rule judge, and the items that it looks for."""

from cod_lightning.envs.learn2ask.clinic import content_of
from cod_lightning.envs.learn2ask.items import CONDITIONS, ITEMS, kin_of, named_items
from cod_lightning.envs.learn2ask.judge import RuleJudge, asked_items, format_of, num_choices
from tests.cases import each

JUDGE = RuleJudge()


@each("item", ITEMS)
def test_an_items_own_question_is_perfect_for_it_and_names_nothing_else(item):
    assert asked_items(item.question) == (item.name,)
    verdict = JUDGE.score((), item.question, (item.title,))
    assert (verdict.format, verdict.content, verdict.note) == (1, 1, "")
    assert named_items(item.title) == (item.name,)


def test_complaints_name_no_item_and_no_sentence_of_a_patient_occurs_in_another():
    assert [text for texts in CONDITIONS.values() for text in texts if named_items(text)] == []
    said = [tell for item in ITEMS for tell in item.tells] + [text for texts in CONDITIONS.values() for text in texts]
    assert [(a, b) for a in said for b in said if a != b and a in b] == []
    assert all(len(item.tells) == 3 for item in ITEMS)


def test_kin_come_in_pairs_three_items_are_a_questionnaire_and_choices_are_counted_behind_the_colon():
    assert all(kin_of(kin_of(item.name)) == item.name != kin_of(item.name) for item in ITEMS)
    assert content_of(("fever", "pain", "sleep"), ("fever", "pain", "sleep")) == 0
    assert content_of((), ("fever",)) == 0
    assert num_choices("Fever, pain, or cough: yes, no or unsure?") == 3
    assert num_choices("Well?") == 0


@each(
    ("question", "missing", "content"),
    [
        ("Are you allergic to any medication, yes or no?", ["allergy"], 1),
        ("Any drug allergies?", ["medication"], 0.5),
        ("Do you take painkillers?", ["medication"], 1),
        ("Do you take painkillers?", ["pain"], 0),
        ("Is your temperature up?", ["fever", "sleep"], 1),
        ("Is anything sore?", ["fever"], 0.5),
        ("Any fever or pain?", ["fever"], 0.5),
        ("Any fever or pain?", ["fever", "pain"], 1),
        ("Any fever, pain, allergy or medication?", ["fever"], 0),
        ("Do you have a fever: none, with chills, with pain, sleepless?", ["fever"], 1),
        ("How are you?", ["fever"], 0),
        ("", ["fever"], 0),
    ],
)
def test_content_in_the_clinic(question, missing, content):
    assert JUDGE.score((), question, missing).content == content


@each(
    ("question", "score"),
    [
        ("Do you have a fever: none, slight or high?", 1),
        ("Do you have a fever?", 0.5),
        ("Do you have a fever, yes or no? Any pain?", 0.5),
        ("Fever? Pain? Yes or no?", 0),
        ("Tell me about your fever: yes or no.", 0),
        ("How is it? A. good B. bad C. awful", 1),
        ("Is it: one, two, three, four or five?", 0.5),
        ("Is it good/bad?", 1),
        ("\u4f60\u53d1\u70e7\u5417\uff1a\u662f\u8fd8\u662f\u5426\uff1f", 1),
    ],
)
def test_format_counts_questions_and_choices(question, score):
    assert format_of(question)[0] == score
    assert bool(format_of(question)[1]) == (score != 1)


@each(
    ("question", "content"),
    [
        ("Is the discharge thick: yes or no?", 1),
        ("Is there any discharge: yes or no?", 1),
        ("Is the yellow colour strong?", 0),
        ("Is your mucus thick and green and slimy?", 1),
        ("word " * 0 + " ".join(f"w{i}" for i in range(40)) + " discharge?", 0.5),
    ],
)
def test_items_of_real_data_are_matched_by_words(question, content):
    assert JUDGE.score((), question, ["Symptom quality: thick discharge"]).content == content


def test_a_longer_item_needs_half_of_its_words_and_other_scripts_are_read_in_pairs():
    item = ["Symptom: burning feeling behind the breast bone at night"]
    assert JUDGE.score((), "Does it burn at night?", item).content == 0.5
    assert JUDGE.score((), "Is there a burning feeling behind the bone?", item).content == 1
    assert JUDGE.score((), "\u4f60\u54b3\u55fd\u5417\uff1f", ["\u75c7\u72b6: \u54b3\u55fd"]).content == 1


def test_hostile_questions_are_judged_quickly_and_moderately():
    for text in ("(" * 1000, "or " * 333, "allergic to " * 80, "a, " * 333, "\x00\ud800" * 400, "drug " * 200):
        verdict = JUDGE.score((), text, ("fever",))
        assert verdict.content in (0, 0.5, 1)
