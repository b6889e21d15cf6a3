"""The pages of results are what their scripts make of the committed numbers; nothing is measured here."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from msgspec import structs

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import HiddenRules, Reference, beside
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.references import play_reference
from cod_lightning.rollout import transcript
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Group, Split
from examples.studies import (
    across_worlds_page,
    apps_page,
    as_published,
    asynchronous,
    distillation,
    doctor,
    evaluation,
    foreign_worlds,
    generalisation,
    habit,
    memory_page,
    note_worth,
    pretrained,
    pretrained_doors,
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
from examples.studies.gpu import language_model, measure
from tests.records import group, solve

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
    "pretrained_doors": pretrained_doors.page,
    "quickstart": quickstart.page,
    "references": references.page,
    "regime": regime.page,
    "safety": lambda found: safety_page.page(found, list(safety.ARMS), AGAIN.format(name="safety")),
    "sentences": sentences.page,
    "signals": lambda found: signals.page(found["runs"], found.get("proposals", {})),
    "syncs": syncs.page,
    "uninformative": uninformative.page,
}


PAGES = sorted(path.stem for path in RESULTS.glob("*.md"))
SECONDS = {"generalisation", "gpu"}
"""Pages that play or import for seconds."""


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SECONDS)) for one in MADE])
def test_a_page_is_what_its_numbers_make(name):
    found = json.loads((RESULTS / f"{name}.json").read_text())
    assert (RESULTS / f"{name}.md").read_text() == MADE[name](found)


@pytest.mark.parametrize("name", sorted({*MADE, "training_pays"} - {"references"}))
def test_a_page_has_its_question_its_command_and_what_limits_it(name):
    text = (RESULTS / f"{name}.md").read_text()
    assert re.search(r"\*\*[^*]+\?\*\*", text)
    assert re.search("^    .*python ", text, re.MULTILINE)
    assert re.search("(?i)limit|not measured", text)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_a_screen(name):
    lines = (RESULTS / f"{name}.md").read_text().splitlines()
    assert sum(1 if line.startswith("|") else max(1, ceil(len(line) / 132)) for line in lines) < 60


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_many_comparisons_says_that_each_interval_stands_alone_or_what_is_left_of_all(name):
    text = (RESULTS / f"{name}.md").read_text()
    few = len(re.findall(r"[+-]\d?\.\d+\** \[", text)) <= 20
    assert few or re.search("Holm|one by one|by itself", text)


def test_no_published_interval_is_of_no_width():
    def widths(found: Any) -> Iterator[float]:
        for name, value in found.items() if isinstance(found, dict) else enumerate(found):
            if isinstance(value, dict | list):
                yield from widths(value)
                if str(name).endswith("ci95") and isinstance(value, list):
                    yield value[1] - value[0]

    for file in RESULTS.glob("*.json"):
        assert all(width > 0 for width in widths(json.loads(file.read_text()))), file.name


def test_intervals_of_the_page_on_sentences_are_over_what_its_packs_hide():
    found, world = json.loads((RESULTS / "sentences.json").read_text()), Levers()
    packs = [world.sample_pack(split=Split.TEST, index=i, num_tasks=4) for i in range(128)]
    hidden = [beside(world, HiddenRules).hidden_rule(pack) for pack in packs]
    places = list(dict.fromkeys(hidden))
    assert [places.index(one) for one in hidden] == list(map(int, found["rules"]["levers"].split()))
    assert [len(set(of.split())) for of in found["rules"].values()] == [24, 24]


@pytest.mark.slow
def test_a_setting_of_the_paper_s_runs_is_the_published_one_or_said_to_differ_and_then_what_is_said():
    sections = as_published.TABLE["sections"]
    keyed = [row for place in range(len(sections)) for row in as_published.rows(place) if row.key]
    published, differing = ([row for row in keyed if ("why" in row.row) == differs] for differs in (False, True))
    assert len(published) > 100
    assert [row for row in published if row.found != row.row["value"]] == []
    assert [row for row in differing if row.found != row.row["ours"] or row.found == row.row["value"]] == []
    assert all(row["why"] and row["theirs"] for section in sections for row in section["rows"] if not row.get("key"))
    assert as_published.PAGE.read_text() == as_published.page(), "PYTHONPATH=. python examples/studies/as_published.py"


def test_the_readme_leads_with_what_training_adds_to_transfer_above_the_warm_start_at_its_best():
    found = json.loads((RESULTS / "pretrained.json").read_text())
    assert len(found["cpu"]) == 3
    adds = found["seeds"]["held_out"]["training_adds"]["difference"]
    said = "{:.2f} [{:.2f}, {:.2f}]".format(*adds).replace("0.", ".")
    readme = (RESULTS.parents[1] / "README.md").read_text()
    assert f"**Training adds {said} to transfer**" in readme
    assert adds[1] > 0
    runs = json.loads((RESULTS / "quickstart.json").read_text())["runs"]
    for world in ("vending machine, seed", "seed"):
        suites = [runs[f"{world} {seed}"]["evaluation"]["suites"]["held_out"] for seed in (1, 2, 3)]
        each = [suite["figures"]["training_adds"]["difference"]["mean"] for suite in suites]
        assert ", ".join(f"{one:.2f}".replace("0.", ".") for one in each) in readme


def test_what_other_pages_say_of_the_quick_start_is_what_it_ends_at():
    runs = json.loads((RESULTS / "quickstart.json").read_text())["runs"]

    def end(run: str, suite: str) -> float:
        return runs[run]["evaluation"]["suites"][suite]["positions"][3]["success"]

    new, seen = (end("four of 24 mappings held out, seed 1", f"{one}_mappings") for one in ("new", "seen"))
    said = f"they end at {new:.2f}, orders seen at {seen:.2f}".replace("0.", ".")
    assert said in (RESULTS / "index.md").read_text()
    mean = fmean(end(f"seed {seed}", "held_out") for seed in (1, 2, 3))
    assert f"quick start ({mean:.2f} at position 3)" in (RESULTS / "mixture.md").read_text()


def test_the_index_says_how_many_planted_bugs_the_tests_caught():
    found = json.loads((RESULTS / "planted.json").read_text())
    assert f"| {found['caught']} of {found['planted']} planted bugs are caught" in (RESULTS / "index.md").read_text()


def test_the_page_on_when_training_pays_is_what_the_others_numbers_make():
    runs = json.loads((RESULTS / "training_pays.json").read_text())
    assert (RESULTS / "training_pays.md").read_text() == training_pays.page(training_pays.settings(), runs)


def test_a_run_that_was_cut_in_its_evaluation_is_not_finished(tmp_path: Path) -> None:
    folder = signals.folder_of(tmp_path, "an arm", 2)
    folder.mkdir()
    (folder / "evaluation.json").write_text("{}")  # there before the warm start has played
    assert list(signals.finished(tmp_path, "an arm")) == []
    (folder / "report.html").write_text("")
    assert list(signals.finished(tmp_path, "an arm")) == [("2", folder)]


def test_a_study_records_what_training_did_to_pass_at_k_and_entropy(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(
        "step,train/loss,train/pass_at/8,train/entropy\n0,1,0.5,1.25\n1,1,0.25,1\n2,1,0.75,0.25\n"
    )
    assert signals.ends(tmp_path) == {"pass@8": [0.5, 0.75], "entropy": [1.25, 0.25]}


def test_of_recorded_lifecycles_what_a_stopped_run_played_twice_counts_once(tmp_path: Path) -> None:
    def played(siblings: list[list[bool | None]], note: str) -> Group:
        made = group("p", siblings, context=note)
        spec = {"labels": {"names": ["A", "B"]}, "goal": "red"}
        tasks = tuple(replace(task, spec=spec) for task in made.pack.tasks)
        noted = [structs.replace(life.episodes[0], feedback="A gives red") for life in made.lifecycles]
        lives = [
            structs.replace(life, episodes=(first, *life.episodes[1:]))
            for life, first in zip(made.lifecycles, noted, strict=True)
        ]
        return Group(pack=replace(made.pack, tasks=tasks), lifecycles=tuple(lives))

    file = tmp_path / "train.jsonl"
    last = played([[True, True, True], [False, True, None], [False, None, None]], "A gives red")
    for one in (played([[True, False, True]] * 3, ""), last):
        transcript.write(file, [one], step=4)
    (counts,) = note_worth.counted(file).values()
    assert (counts.seen, counts.noted) == (6, 6)
    assert [list(one) for one in counts.products] == [[0.0, 0.0]] * 2, "all siblings noted alike"
    assert len(counts.products) == 2


def test_a_scripted_player_reads_what_its_context_names_and_pulls_no_lever_again_that_gives_another_colour(
    tmp_path: Path,
) -> None:
    world, file = Levers(max_turns=1), tmp_path / "train.jsonl"
    for index in range(8):
        pack = world.sample_pack(split=Split.TEST, index=index, num_tasks=4)
        lives = play_reference(world, [pack], Reference.SCRIPTED, HintContext())
        transcript.write(file, [Group(pack=pack, lifecycles=tuple(lives))])
    (counts,) = note_worth.counted(file).values()
    assert counts.read == counts.named > 0
    assert counts.others > 0 == counts.again
    assert counts.guessed >= counts.others / 4
    assert note_worth.chooses("B", "A or <answer>Lever B</answer>")
    assert not note_worth.chooses("A", "A or <answer>Lever B</answer>")


def test_a_scripted_player_opens_a_door_with_the_key_that_its_context_names(tmp_path: Path) -> None:
    world, file = Doors(num_doors=4, glimpses=2, max_turns=1), tmp_path / "train.jsonl"
    for index in range(8):
        pack = world.sample_pack(split=Split.TEST, index=index, num_tasks=4)
        lives = play_reference(world, [pack], Reference.SCRIPTED, HintContext())
        transcript.write(file, [Group(pack=pack, lifecycles=tuple(lives))])
    (counts,) = note_worth.counted(file).values()
    assert counts.read == counts.named > 0 == counts.others
    assert counts.noted == counts.seen > 0


def test_an_update_that_was_not_played_notes_nothing_and_leaves_nothing_out(tmp_path: Path) -> None:
    world, file = Levers(), tmp_path / "test_a_trained.jsonl"
    own = world.sample_pack(split=Split.TEST, index=0, num_tasks=3)
    (life,) = play_reference(world, [own], Reference.SCRIPTED, HintContext())
    skipped = Episode(kind=EpisodeKind.UPDATE, position=0, status=EpisodeStatus.SKIPPED)
    without = [one if one.kind is EpisodeKind.SOLVE else skipped for one in life.episodes]
    transcript.write(file, [Group(pack=own, lifecycles=(life,))])
    assert language_model._notes(file)["seen facts noted"] == 1.0
    assert safety.curves([own], [life])["success"] == [float(bool(one.success)) for one in life.solves]
    failed = structs.replace(solve(0, None), state_before=None, state_after=None)
    of = structs.replace(life, episodes=(failed, *without[1:]))
    transcript.write(file, [Group(pack=own, lifecycles=(of,))], append=False)
    assert "seen facts noted" not in language_model._notes(file)
    assert safety.curves([own], [of])["success"][0] is None
