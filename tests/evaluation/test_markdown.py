"""The page shows the main rows and folds the rest."""

import dataclasses

from cod_lightning.evaluation.markdown import page
from cod_lightning.evaluation.results import results_of
from cod_lightning.evaluation.suite import Suite
from tests.played import NUM_PACKS, play

PLAYED = [dataclasses.replace(one, changes=(2,) * NUM_PACKS) for one in play(Suite(name="heldout"))]
RESULTS = results_of(PLAYED)


def test_main_rows_stand_in_the_open_and_the_rest_is_folded() -> None:
    text = page(RESULTS, "Title", "About.")
    head, _, folded = text.partition("<details>")
    assert "| trained T=1 | 0." in head
    assert "| warm start T=0.5 *" in head
    assert "memoryless" not in head
    assert "| memoryless | 0." in folded
    assert "| warm start T=0.3 | 0." in folded
    assert text.count("<details>") == text.count("</details>") == 1


def test_figures_have_tables_of_their_own() -> None:
    text = page(RESULTS, "Title", "About.")
    assert "| trained minus | success | reward | gain of success |" in text
    assert "| oracle minus trained, reward | " in text
    assert "| tasks after the change | -1 | +0 | +1 |" in text


def test_every_row_has_as_many_cells_as_its_table() -> None:
    cells: int | None = None
    for line in page(RESULTS, "Title", "About.").splitlines():
        cells = line.count("|") if line.startswith("|") and cells is None else cells if line.startswith("|") else None
        assert cells is None or line.count("|") == cells


def test_checkpoints_follow_the_run_s_own_suites() -> None:
    text = page({**RESULTS, "checkpoints": {"x.ckpt": RESULTS["suites"]}}, "Title", "About.")
    assert text.index("## heldout") < text.index("## x.ckpt") < text.index("### heldout")
