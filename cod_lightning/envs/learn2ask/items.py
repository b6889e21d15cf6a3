"""What a patient's history is made of: items with words that name them, and conditions with complaints that name none."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One thing that a clinic may want to know."""

    name: str
    """A single word, for compact text."""
    title: str
    """For sentences."""
    pattern: str
    """Regular expression of the words that name it, in small letters."""
    question: str
    """A good question: one sentence, one question mark, three choices."""
    tells: tuple[str, ...]
    """What patients say of it; no sentence occurs in another one."""


ITEMS: tuple[HistoryItem, ...] = (
    HistoryItem(
        "duration",
        "duration",
        r"duration|how long|since when|when did|when was the (?:start|onset)|onset|how many (?:hours|days|weeks|months)",
        "How long have you had this: a few days, a few weeks or longer?",
        ("It started two days ago.", "I have had this for about a week.", "It began last month."),
    ),
    HistoryItem(
        "chronic",
        "chronic disease",
        r"chronic|long[- ]term (?:illness|disease|condition)\w*|underlying|diabet\w+|hypertension|blood pressure|asthma|"
        r"medical conditions?",
        "Do you have any chronic disease: none, diabetes or another one?",
        (
            "I have no chronic disease.",
            "I have been diabetic for years.",
            "My blood pressure is too high, says my doctor.",
        ),
    ),
    HistoryItem(
        "fever",
        "fever",
        r"fever\w*|temperature|chills",
        "Do you have a fever: no, a slight one or a high one?",
        ("I have no fever.", "My temperature is 38.5 degrees.", "I feel a little feverish."),
    ),
    HistoryItem(
        "pain",
        "pain",
        r"pain|pains|painful|hurts?|hurting|ach(?:e|es|ing)|sore\w*",
        "Do you feel any pain: none, some or a lot?",
        ("Nothing hurts.", "There is some pain, three out of ten.", "The pain is strong."),
    ),
    HistoryItem(
        "allergy",
        "allergy",
        r"(?:drug|medication|medicine|food)s?[ -]+(?:allerg\w*|hypersensitiv\w*)|"
        r"allerg\w*(?: to (?:any |some |a |certain )?(?:drug|medicine|medication|food)s?)?",
        "Do you have an allergy: none, to drugs or to something else?",
        ("I have no allergies.", "I am allergic to penicillin.", "Nuts give me an allergic reaction."),
    ),
    HistoryItem(
        "medication",
        "medication",
        r"(?:pain|fever|sleeping) ?(?:medic\w+|pills?|tablets?|killers?)|medications?|medicines?|drugs?|tablets?|pills?|"
        r"painkillers?|antibiotics?",
        "Do you take any medication: none, one or several?",
        ("I take no medicine.", "I took an antibiotic yesterday.", "I take a pill for my stomach every day."),
    ),
    HistoryItem(
        "sleep",
        "sleep",
        r"sleep\w*|slept|insomnia",
        "How do you sleep: well, badly or hardly at all?",
        ("I sleep well.", "I wake up three times a night.", "I can hardly fall asleep."),
    ),
    HistoryItem(
        "appetite",
        "appetite",
        r"appetite|eat|eating|hungry|hunger",
        "How is your appetite: normal, low or gone?",
        ("I eat as usual.", "My appetite is low.", "I could not eat a thing today."),
    ),
    HistoryItem(
        "smoking",
        "smoking",
        r"smok\w*|tobacco|cigarettes?",
        "Do you smoke: no, now and then or daily?",
        ("I have never smoked.", "I smoke ten cigarettes a day.", "I gave up smoking in spring."),
    ),
    HistoryItem(
        "alcohol",
        "alcohol",
        r"alcohol\w*|drink|drinking|beer|wine",
        "Do you drink alcohol: no, now and then or daily?",
        ("I do not drink alcohol.", "I have a beer at weekends.", "I drink wine with every meal."),
    ),
    HistoryItem(
        "travel",
        "travel",
        r"travel\w*|trips?|abroad",
        "Have you travelled lately: no, within the country or abroad?",
        ("I have not travelled.", "I came back from abroad on Sunday.", "I was on a trip to the coast."),
    ),
    HistoryItem(
        "contact",
        "sick contacts",
        r"contacts?|exposed|exposure|(?:sick|ill|infected) (?:people|persons?|colleagues?|relatives?)|"
        r"(?:anyone|anybody|someone)(?: \w+){0,3} (?:ill|sick)",
        "Have you been in contact with sick people: no, at home or at work?",
        ("Nobody around me is ill.", "My son has the same thing.", "Two colleagues are off sick with it."),
    ),
)
"""Item 2i and 2i + 1 are kin: a question about one is highly relevant where the other is missing."""
BY_NAME = {item.name: item for item in ITEMS}
BY_TITLE = {item.title: item for item in ITEMS}
_READ_FIRST = ("allergy", "medication")
"""Their patterns take "drug allergy" and "pain medication" whole, so that these do not count as two items."""
_PATTERNS = {
    item.name: re.compile(rf"\b(?:{item.pattern})\b", flags=re.ASCII)
    for item in sorted(ITEMS, key=lambda item: item.name not in _READ_FIRST)
}

CONDITIONS: dict[str, tuple[str, ...]] = {
    "cold": ("My nose is running and I keep sneezing.", "I have caught a cold and sneeze all day."),
    "cough": ("I keep coughing up phlegm.", "I have a dry cough."),
    "conjunctivitis": ("My eyes are red and watery.", "There is yellow discharge in my left eye."),
    "eczema": ("The skin on my arms is dry and red.", "I have an itchy rash in the elbows."),
    "vertigo": ("I get dizzy when I stand up.", "The room spins when I turn my head."),
    "laryngitis": ("My voice is hoarse.", "I have lost my voice."),
    "constipation": ("I have not been to the toilet for days.", "My belly feels bloated and nothing comes."),
    "hives": ("Red bumps have come up on my back.", "My skin is covered with itchy welts."),
    "sinusitis": ("My nose is blocked and my face feels full.", "I cannot breathe through my nose."),
    "athlete": ("The skin between my toes is peeling.", "My toes itch and the skin is cracked."),
}


def kin_of(name: str) -> str:
    """The item of the same pair.

    >>> kin_of("fever"), kin_of("pain")
    ('pain', 'fever')
    """
    return ITEMS[[item.name for item in ITEMS].index(name) ^ 1].name


def named_items(text: str) -> tuple[str, ...]:
    """Names of all items that the text mentions, in the order of `ITEMS`.

    >>> named_items("Any drug allergies, or a fever?")
    ('fever', 'allergy')
    """
    rest, found = text.lower(), set()
    for name, pattern in _PATTERNS.items():
        rest, count = pattern.subn(" ", rest)
        if count:
            found.add(name)
    return tuple(item.name for item in ITEMS if item.name in found)
