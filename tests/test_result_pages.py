"""The pages of results are what their scripts make of the committed numbers; nothing is measured here."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from examples.studies import (
    across_worlds_page,
    apps_page,
    asynchronous,
    distillation,
    doctor,
    evaluation,
    foreign_worlds,
    generalisation,
    habit,
    memory_page,
    pretrained,
    quickstart,
    references,
    regime,
    safety,
    safety_page,
    sentences,
    signals,
    syncs,
    training_pays,
    uninformative,
)
from examples.studies.gpu import measure

RESULTS = Path(__file__).parents[1] / "docs" / "results"
AGAIN = "PYTHONPATH=. python examples/studies/{name}.py --out docs/results/{name}.json"
CONTROLS = "python examples/studies/evaluation.py --config quickstart --packs 2048 --out docs/results/evaluation.json"


def habits(found: Any) -> str:
    cells = generalisation.kept(found["success"], {})
    noted = {name: {seed: found["noted"][name][seed] for seed in seeds} for name, seeds in cells.items()}
    return habit.page(cells, noted)


MADE = {
    "across_worlds": lambda found: across_worlds_page.page(
        generalisation.parsed(found["success"]), {one: of.split() for one, of in found["rules"].items()}
    ),
    "apps": apps_page.page,
    "asynchronous": asynchronous.page,
    "distillation": distillation.page,
    "doctor": lambda found: doctor.page(**found),
    "evaluation": lambda found: evaluation.page(found, CONTROLS),
    "foreign_worlds": lambda found: foreign_worlds.page(found, RESULTS),
    "generalisation": lambda found: generalisation.page(generalisation.kept(found["success"], {})),
    "gpu": measure.page,
    "habit": habits,
    "memory": lambda found: memory_page.page(found, AGAIN.format(name="memory")),
    "pretrained": pretrained.page,
    "quickstart": quickstart.page,
    "references": references.page,
    "regime": regime.page,
    "safety": lambda found: safety_page.page(found, list(safety.ARMS), AGAIN.format(name="safety")),
    "sentences": sentences.page,
    "signals": lambda found: signals.page(found["runs"], found.get("proposals", {})),
    "syncs": syncs.page,
    "uninformative": uninformative.page,
}


SECONDS = {"generalisation", "gpu"}
"""Pages that play or import for seconds."""


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SECONDS)) for one in MADE])
def test_a_page_is_what_its_numbers_make(name):
    found = json.loads((RESULTS / f"{name}.json").read_text())
    assert (RESULTS / f"{name}.md").read_text() == MADE[name](found)


@pytest.mark.parametrize("name", sorted({*MADE, "training_pays"} - {"references"}))
def test_a_page_is_a_screen_with_its_question_its_command_and_what_limits_it(name):
    text = (RESULTS / f"{name}.md").read_text()
    assert re.search(r"\*\*[^*]+\?\*\*", text)
    assert re.search("^    .*python ", text, re.MULTILINE)
    assert re.search("(?i)limit|not measured", text)
    assert len(text.splitlines()) < 70


def test_the_readme_leads_with_what_training_adds_to_transfer_above_the_warm_start_at_its_best():
    found = json.loads((RESULTS / "pretrained.json").read_text())
    assert len(found["cpu"]) == 3
    adds = found["seeds"]["held_out"]["training_adds"]["difference"]
    said = "{:.2f} [{:.2f}, {:.2f}]".format(*adds).replace("0.", ".")
    assert f"**Training adds {said} to transfer**" in (RESULTS.parents[1] / "README.md").read_text()
    assert adds[1] > 0


def test_the_page_on_when_training_pays_is_what_the_others_numbers_make():
    runs = json.loads((RESULTS / "training_pays.json").read_text())
    assert (RESULTS / "training_pays.md").read_text() == training_pays.page(training_pays.settings(), runs)
