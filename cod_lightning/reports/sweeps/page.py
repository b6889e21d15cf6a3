"""The comparison as a page: what won, by how much, at what cost, what made no difference, and how to run each row again."""

from collections.abc import Iterator

from cod_lightning.evaluation.schema import Figure
from cod_lightning.evaluation.view import packs_of, with_interval
from cod_lightning.markdown import escaped, fenced, table
from cod_lightning.reports.sweeps.cells import COSTS
from cod_lightning.reports.sweeps.schema import CellRecord, Statistics, SweepRecord, SweepResults

_ABOUT = """Success (share of tasks solved) on held-out packs that are the same for all runs, with 95 % intervals over seeds and
packs (whole hidden rules, where packs share one): both count as drawn at random, with Satterthwaite's degrees of freedom, one less
than there are seeds at most, so that few seeds make wide intervals.
Differences are paired by seed and pack. *mean* is over positions, *gain* is last minus first position. Intervals are read one by
one; the notes say what is left after Holm's correction. Sampled tokens are those of training rollouts; trained tokens
went through forward and backward."""


def page(results: SweepResults, title: str, command: str) -> str:
    """The whole page; `command` is what wrote it."""
    parts = [f"# {title}", f"Written by `{command}`.", _ABOUT]
    for sweep in results["sweeps"]:
        parts += _sweep(sweep)
    return "\n\n".join(parts) + "\n"


def sentences(sweep: SweepRecord) -> Iterator[str]:
    """The table in words."""
    cells = sorted(sweep["cells"], key=lambda cell: -(cell["success"]["mean"]["mean"] or 0.0))
    best = cells[0]
    yield f"Highest mean: {best['label']}, {_shown(best['success']['mean'])}."
    for cell in sweep["cells"]:
        if cell["minus_reference"] is None:
            continue
        mean, gain = cell["minus_reference"]["mean"], cell["minus_reference"]["gain"]
        yield (
            f"{cell['label']} against {sweep['reference']}: {_signed(mean)} in the mean ({_verdict(mean)}), "
            f"{_signed(gain)} in the gain ({_verdict(gain)}){_dearer(cell, sweep)}."
        )


def _sweep(sweep: SweepRecord) -> Iterator[str]:
    seeds = sorted({seed for cell in sweep["cells"] for seed in cell["seeds"]})
    yield f"## {escaped(sweep['config'])}, suite {escaped(sweep['suite'])}"
    about = f"{packs_of(sweep)} of {sweep['pack_size']}; seeds {', '.join(map(str, seeds))}; reference: "
    yield f"{about}{escaped(sweep['reference'])}."
    yield "\n".join(f"- {escaped(sentence)}" for sentence in sentences(sweep))
    yield _outcomes(sweep)
    yield _differences(sweep)
    yield _costs(sweep)
    yield "Each row again:"
    yield fenced("\n".join(cell["command"] for cell in sweep["cells"]), "bash")
    if sweep["notes"]:
        yield "\n".join(f"- Note: {escaped(note)}" for note in sweep["notes"])


def _outcomes(sweep: SweepRecord) -> str:
    positions = [str(n) for n in range(sweep["pack_size"])]
    lines = [
        [
            escaped(cell["label"]),
            str(len(cell["seeds"])),
            *_statistics(cell["success"]),
            "-" if cell["blanked"] is None else _shown(cell["blanked"]),
        ]
        for cell in sweep["cells"]
    ]
    if (warm := sweep["warm_start"]) is not None:
        for name, found in warm["temperatures"].items():
            mark = " (its best)" if name == warm["best_temperature"] else ""
            lines.append([escaped(f"{name}{mark}"), "", *_statistics(found), ""])
    return table(["cell", "seeds", *positions, "mean", "gain", "mean, blanked context"], lines)


def _differences(sweep: SweepRecord) -> str:
    lines = []
    for cell in sweep["cells"]:
        minus, above = cell["minus_reference"], cell["minus_warm_start"]
        last = None if minus is None else minus["by_position"][-1]
        figures = [None if minus is None else minus["mean"], last, None if minus is None else minus["gain"]]
        figures.append(None if above is None else above["mean"])
        lines.append([escaped(cell["label"]), *("-" if one is None else _signed(one) for one in figures)])
    head = ["minus the reference", "mean", "last position", "gain", "minus the best warm start, mean"]
    return table(head, lines)


def _costs(sweep: SweepRecord) -> str:
    lines = []
    for cell in sweep["cells"]:
        values = [cell["cost"][name] for name in COSTS]
        lines.append([escaped(cell["label"]), *("-" if value is None else f"{value:,.0f}" for value in values)])
    return table(["cost of a run", *COSTS.values()], lines)


def _dearer(cell: CellRecord, sweep: SweepRecord) -> str:
    """Seconds of training and trained tokens beside the reference's."""
    reference = next(one for one in sweep["cells"] if one["label"] == sweep["reference"])
    parts = []
    for key, word in (("train_s", "seconds of training"), ("trained_tokens", "trained tokens")):
        own, theirs = cell["cost"][key], reference["cost"][key]
        if own and theirs:
            parts.append(f"{own / theirs:.2f} times its {word}")
    return f"; at {' and '.join(parts)}" if parts else ""


def _statistics(found: Statistics) -> list[str]:
    return [*map(_shown, found["by_position"]), _shown(found["mean"]), _signed(found["gain"])]


def _verdict(figure: Figure) -> str:
    """The conclusion that the interval allows.

    >>> _verdict({"mean": 0.1, "ci95": [-0.1, 0.3], "n": 9})
    'no difference shown'
    """
    if figure["ci95"] is None:
        return "no interval"
    low, high = figure["ci95"]
    return "higher" if low > 0 else "lower" if high < 0 else "no difference shown"


def _shown(figure: Figure) -> str:
    return with_interval(figure["mean"], figure["ci95"])


def _signed(figure: Figure) -> str:
    return with_interval(figure["mean"], figure["ci95"], "+.3f")
