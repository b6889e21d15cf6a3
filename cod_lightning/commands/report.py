"""`report`: one HTML file about one run or several, to be opened from disk."""

import os
from collections.abc import Sequence
from pathlib import Path

from cod_lightning.commands.parser import parser_of
from cod_lightning.errors import ConfigError, in_a_line
from cod_lightning.files import check_folder, write_whole


def run(argv: Sequence[str]) -> int:
    """Write the report and print its path."""
    about = (
        "Write one HTML file about a run, or several runs side by side: success by position, training curves, and a browser of "
        "lifecycles. It loads nothing from any network."
    )
    text = "File to write, or folder for report.html, of several runs compared.html; null: the first RUN_DIR."
    parser = parser_of("report", about, {"out": (Path | None, None, text)})
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="Folders of runs, as in runs/quickstart.")
    options = parser.parse_args(list(argv))

    from cod_lightning.reports.page import render
    from cod_lightning.reports.report import report_data

    folders = list({run.resolve(): run for run in options.runs}.values())  # each once
    out: Path = options.out or folders[0]
    if os.path.isdir(out):
        out /= "report.html" if len(folders) == 1 else "compared.html"
    check_folder(out.parent, "--out")
    overview, lifecycles = report_data(folders)
    for one in overview["runs"]:
        for note in one["notes"]:
            print(in_a_line(f"note: {one['name']}: {note}"))
    written = render(overview, lifecycles).encode("utf-8", "replace")
    try:
        write_whole(out, written)
    except OSError as error:
        raise ConfigError(
            "--out", out, f"a file that can be written ({error})", "Choose another with --out."
        ) from error
    print(f"{out} ({len(written) / 1e6:.1f} MB, {len(lifecycles['lifecycles']):,} lifecycles)")
    return 0
