"""The comparison as a page of tables, and as the short one that a terminal shows."""

from collections.abc import Sequence

from cod_lightning.evaluation.view import packs_of
from cod_lightning.reports.page import figure, rendered
from cod_lightning.reports.sweeps.compare import COSTS, SweepRecord


def page(sweeps: Sequence[SweepRecord], command: str) -> str:
    """The whole page; `command` is what wrote it."""
    return rendered("sweep.md.j2", sweeps=sweeps, about=list(map(_about, sweeps)), costs=COSTS, command=command)


def summary(sweep: SweepRecord) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table that a terminal shows."""
    head = ["cell", "seeds", "mean", "gain", f"mean, minus {sweep['reference']}"]
    return head, [
        [
            cell["label"],
            str(len(cell["seeds"])),
            figure(cell["success"]["mean"]),
            figure(cell["success"]["gain"], "+.3f"),
            figure(None if (minus := cell["minus_reference"]) is None else minus["mean"], "+.3f"),
        ]
        for cell in sweep["cells"]
    ]


def _about(sweep: SweepRecord) -> str:
    sizes = " or ".join(map(str, sorted({len(cell["success"]["by_position"]) for cell in sweep["cells"]})))
    seeds = ", ".join(map(str, sorted({seed for cell in sweep["cells"] for seed in cell["seeds"]})))
    return f"{packs_of(sweep)} of {sizes}; seeds {seeds}"
