"""`evaluation.json` as a page: the main rows of every suite in the open, the rest folded."""

from collections.abc import Iterator, Sequence

from cod_lightning.evaluation.rows import Row, rows, shown_positions
from cod_lightning.evaluation.schema import Figure, Interval, PositionRecord, Results, SuiteRecord
from cod_lightning.evaluation.wording import CAVEAT, sentences


def page(results: Results, title: str, about: str) -> str:
    """The whole page."""
    parts = [f"# {title}", about]
    for name, record in results["suites"].items():
        parts += _suite(f"## {name}", record)
    for checkpoint, suites in results.get("checkpoints", {}).items():
        parts.append(f"## {checkpoint}")
        for name, record in suites.items():
            parts += _suite(f"### {name}", record)
    return "\n\n".join([*parts, CAVEAT]) + "\n"


def _suite(heading: str, record: SuiteRecord) -> Iterator[str]:
    found = list(rows(record))
    folded = [row for row in found if not row.main]
    yield heading
    yield f"Success by position on {record['packs']:,} packs of {record['pack_size']} from `{record['env']}`."
    yield _table(record, [row for row in found if row.main])
    yield "\n".join(f"- {sentence}" for sentence in sentences(record))
    more = [_table(record, folded)] if folded else []
    more += _figures(record, found)
    if more:
        yield "<details><summary>more</summary>"
        yield from more
        yield "</details>"


def _table(record: SuiteRecord, chosen: Sequence[Row]) -> str:
    shown = shown_positions(record["pack_size"])
    lines = [[row.label, *(_cell(row.positions[n]) for n in shown), _number(row.gain)] for row in chosen]
    return _lines(["policy", *map(str, shown), "gain"], lines)


def _figures(record: SuiteRecord, found: Sequence[Row]) -> Iterator[str]:
    """Trained minus every control, regret by position, success around a change of the rule."""
    if (figures := record.get("figures")) is None:
        return
    labels = {row.key: row.label for row in found}
    if figures["differences"]:
        lines = [
            [labels[key], _figure(one["success"]), _figure(one["reward"]), _figure(one["gain"])]
            for key, one in figures["differences"].items()
        ]
        yield _lines(["trained minus", "success", "reward", "gain of success"], lines)
    if (regret := figures["regret"]) is not None:
        shown = shown_positions(record["pack_size"])
        lines = [["oracle minus trained, reward", *(_figure(regret["by_position"][n]) for n in shown)]]
        yield _lines(["regret", *map(str, shown)], lines)
    if (recovery := figures["recovery"]) is not None:
        lines = [[labels[key], *map(_figure, row)] for key, row in recovery["rows"].items()]
        yield _lines(["tasks after the change", *(f"{offset:+d}" for offset in recovery["offsets"])], lines)


def _lines(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *lines])


def _cell(position: PositionRecord) -> str:
    return _with(position["success"], position["success_ci95"])


def _figure(figure: Figure) -> str:
    return _with(figure["mean"], figure["ci95"])


def _with(mean: float | None, ci95: Interval) -> str:
    return "-" if mean is None or ci95 is None else f"{mean:.3f} [{ci95[0]:.3f}, {ci95[1]:.3f}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"
