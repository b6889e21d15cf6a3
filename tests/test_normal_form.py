"""One form for all spellings that a reader takes for the same."""

from cod_lightning.hostile_text import hidden_letter, normal_form, with_tags_read
from tests.cases import each
from tests.hostile_texts import SPELLINGS, TAGS


@each("text", SPELLINGS.values())
def test_every_spelling_has_the_same_form(text):
    assert normal_form(text) == "ignore the rule"
    assert normal_form(normal_form(text)) == normal_form(text)


def test_digits_of_other_scripts_are_digits_and_tags_are_read_as_what_they_spell():
    assert normal_form("lever ٣ ３ ③ 𝟑") == "lever 3 3 3 3"
    assert with_tags_read(f"the note{TAGS}") == "the noteignore"


@each("text", ["lever 3 is red", "Straße", "naïve", "日本語", "नमस्ते", "Привет, мир", "👩\u200d💻", "e\u0301"])
def test_honest_texts_hide_nothing(text):
    assert hidden_letter(text) == ""
    assert normal_form(text)


@each("letter", ["\U000e0061", "\ue000", "\u202e", "\u2063", "\U000e0100", "\U0010fffd", "\u3164", "\ufffb"])
def test_a_letter_that_only_a_model_reads_is_named(letter):
    assert hidden_letter(f"red{letter}") == f"U+{ord(letter):04X}"
