"""`evaluation.json` as a page: the main rows of every suite in the open, the rest folded."""

from collections.abc import Iterator, Sequence

from cod_lightning.evaluation.schema import Figure, Results, SuiteRecord
from cod_lightning.evaluation.view import Row, packs_of, rows, shown_positions, with_interval
from cod_lightning.evaluation.wording import CAVEAT, sentences
from cod_lightning.markdown import table


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
    found = rows(record)
    folded = [row for row in found if not row.main]
    yield heading
    yield f"Success by position on {packs_of(record)} of {record['pack_size']} from `{record['env']}`."
    yield _success(record, [row for row in found if row.main])
    yield "\n".join(f"- {sentence}" for sentence in sentences(record))
    more = [_success(record, folded)] if folded else []
    more += _figures(record, found)
    if more:
        yield "<details><summary>more</summary>"
        yield from more
        yield "</details>"


def _success(record: SuiteRecord, chosen: Sequence[Row]) -> str:
    shown = shown_positions(record["pack_size"])
    lines = []
    for row in chosen:
        cells = [with_interval(row.positions[n]["success"], row.positions[n]["success_ci95"]) for n in shown]
        lines.append([row.label, *cells, with_interval(row.gain, None, "+.3f"), with_interval(row.malformed, None)])
    return table(["policy", *map(str, shown), "gain", "malformed"], lines)


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
        yield table(["trained minus", "success", "reward", "gain of success"], lines)
    if whole := figures.get("whole_packs"):
        lines = [[labels[key], _figure(figures["area"][key]["success"]), _figure(one)] for key, one in whole.items()]
        yield table(["solved", "tasks (TGC)", "packs, every task (SGC)"], lines)
    if (gain := figures.get("stateful_gain")) is not None:
        shown = shown_positions(record["pack_size"])
        line = ["reward minus " + labels[gain["control"]], *(_figure(gain["gain_t"][n]) for n in shown)]
        yield table(
            ["gain_t", *map(str, shown), "gain_norm"],
            [[*line, _figure(gain["gain_norm"]) if gain["gain_norm"] else "-"]],
        )
    if (regret := figures["regret"]) is not None:
        shown = shown_positions(record["pack_size"])
        line = ["oracle minus trained, reward", *(_figure(regret["by_position"][n]) for n in shown)]
        yield table(["regret", *map(str, shown)], [line])
    if (recovery := figures["recovery"]) is not None:
        lines = [[labels[key], *map(_figure, row)] for key, row in recovery["rows"].items()]
        yield table(["tasks after the change", *(f"{offset:+d}" for offset in recovery["offsets"])], lines)


def _figure(figure: Figure) -> str:
    return with_interval(figure["mean"], figure["ci95"])
