"""The report's curves as files for papers, each as PNG and as SVG."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cod_lightning.reports.run import RunFolder
from cod_lightning.reports.suite_plots import change_figure, grid, recovery_figure, regret_figure, success_figure
from cod_lightning.whole_file import write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_plots(runs: Sequence[RunFolder], beside: Path) -> list[Path]:
    """Write `STEM_success`, `_regret`, `_recovery`, `_change`, `_training` beside the report, those that there is something for."""
    found = {
        "success": success_figure(runs),
        "regret": regret_figure(runs),
        "recovery": recovery_figure(runs),
        "change": change_figure(runs),
        "training": training_figure(runs),
    }
    written: list[Path] = []
    for name, figure in found.items():
        if figure is not None:
            written += write_figure(beside.with_name(f"{beside.stem}_{name}"), figure)
    return written


def training_figure(runs: Sequence[RunFolder]) -> "Figure | None":
    """Every panel of the training curves; None where there are none."""
    titles = list(dict.fromkeys(title for run in runs for title in run.panels))
    if not titles:
        return None
    figure, panels = grid(len(titles), (3.6, 2.7))
    for title, axes in zip(titles, panels, strict=True):
        for index, run in enumerate(runs):
            lines = run.panels.get(title, [])
            for number, line in enumerate(lines):
                label = ": ".join(filter(None, (run.name if len(runs) > 1 else "", line.label)))
                style = ("-", "--", ":", "-.")[number % 4] if len(runs) > 1 else "-"
                colour = f"C{index if len(runs) > 1 else number}"
                axes.plot(line.x, line.y, linestyle=style, color=colour, linewidth=1.2, label=label or None)
        axes.set(xlabel="step", title=title)
        axes.title.set_fontsize("medium")
        if title.startswith(("Success", "Contexts that parsed")):
            axes.set_ylim(0, 1.02)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize="x-small")
    return figure
