"""The comparison as a page of tables."""

from collections.abc import Iterator, Sequence

from cod_lightning.evaluation.schema import Figure
from cod_lightning.evaluation.view import packs_of, with_interval
from cod_lightning.markdown import escaped, table
from cod_lightning.reports.sweeps.compare import COSTS, CellRecord, Statistics, SweepRecord

_ABOUT = """Success (share of tasks solved) on held-out packs that are the same for all runs, with 95 % intervals over seeds and
packs (whole hidden rules, where packs share one): both count as drawn at random, with Satterthwaite's degrees of freedom, one less
than there are seeds at most, so that few seeds make wide intervals.
Differences are paired by seed and pack. *mean* is over positions, *gain* is last minus first position. Intervals are read one by
one; the notes say what is left after Holm's correction. Sampled tokens are those of training rollouts; trained tokens
went through forward and backward."""


def page(sweeps: Sequence[SweepRecord], command: str) -> str:
    """The whole page; `command` is what wrote it."""
    parts = ["# Runs compared", f"Written by `{command}`.", _ABOUT]
    for sweep in sweeps:
        parts += _sweep(sweep)
    return "\n\n".join(parts) + "\n"


def summary(sweep: SweepRecord) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table that a terminal shows."""
    head = ["cell", "seeds", "mean", "gain", f"mean, minus {sweep['reference']}"]
    return head, [
        [
            cell["label"],
            str(len(cell["seeds"])),
            _shown(cell["success"]["mean"]),
            _signed(cell["success"]["gain"]),
            _minus(cell, "minus_reference", "mean"),
        ]
        for cell in sweep["cells"]
    ]


def _sweep(sweep: SweepRecord) -> Iterator[str]:
    seeds = sorted({seed for cell in sweep["cells"] for seed in cell["seeds"]})
    yield f"## {escaped(sweep['config'])}, suite {escaped(sweep['suite'])}"
    sizes = " or ".join(map(str, sorted({len(cell["success"]["by_position"]) for cell in sweep["cells"]})))
    about = f"{packs_of(sweep)} of {sizes}; seeds {', '.join(map(str, seeds))}; reference: "
    yield f"{about}{escaped(sweep['reference'])}."
    yield _outcomes(sweep)
    yield _differences(sweep)
    if sweep["notes"]:
        yield "\n".join(f"- Note: {escaped(note)}" for note in sweep["notes"])


def _outcomes(sweep: SweepRecord) -> str:
    most = max(len(cell["success"]["by_position"]) for cell in sweep["cells"])
    lines = [
        [
            escaped(cell["label"]),
            str(len(cell["seeds"])),
            *_statistics(cell["success"], most),
            "-" if cell["blanked"] is None else _shown(cell["blanked"]),
        ]
        for cell in sweep["cells"]
    ]
    lines += [[escaped(name), "", *_statistics(found, most), ""] for name, found in sweep["warm_start"].items()]
    return table(["cell", "seeds", *map(str, range(most)), "mean", "gain", "mean, blanked context"], lines)


def _differences(sweep: SweepRecord) -> str:
    lines = []
    for cell in sweep["cells"]:
        against = [("minus_reference", "mean"), ("minus_reference", "gain"), ("minus_warm_start", "mean")]
        costs = [cell["cost"][name] for name in COSTS]
        lines.append(
            [
                escaped(cell["label"]),
                *(_minus(cell, of, what) for of, what in against),
                *("-" if cost is None else f"{cost:,.0f}" for cost in costs),
            ]
        )
    head = ["cell", "mean minus the reference's", "gain minus the reference's", "mean minus the best warm start's"]
    return table([*head, *COSTS.values()], lines)


def _minus(cell: CellRecord, of: str, what: str) -> str:
    return "-" if cell[of] is None else _signed(cell[of][what])


def _statistics(found: Statistics, num_positions: int) -> list[str]:
    by_position = [*map(_shown, found["by_position"]), *[""] * num_positions][:num_positions]
    return [*by_position, _shown(found["mean"]), _signed(found["gain"])]


def _shown(figure: Figure) -> str:
    return with_interval(figure["mean"], figure["ci95"])


def _signed(figure: Figure) -> str:
    return with_interval(figure["mean"], figure["ci95"], "+.3f")
