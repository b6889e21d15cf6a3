"""`doctor`: why a run does not learn, named from what it recorded."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from cod_lightning.commands.parser import TRUST, parser_of, program
from cod_lightning.commands.train import OF_A_RUN, built, model_of
from cod_lightning.diagnosis.cause import Finding
from cod_lightning.diagnosis.causes import CAUSES, causes_of, late_notes
from cod_lightning.diagnosis.evidence import Evidence, read_evidence
from cod_lightning.diagnosis.notes import of_notes
from cod_lightning.errors import CodLightningError
from cod_lightning.reports.curves import num_updates


def run(argv: Sequence[str]) -> int:
    """Print the causes that are found, or that none is."""
    about = (
        "Name what ails a training: it looks at metrics.csv, the lifecycles and evaluation.json of a run, and scores late notes "
        "with its last checkpoint. The causes: docs/guides/doctor.md."
    )
    parser = parser_of("doctor", about, {"trust": TRUST})
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="Folder of a run, as in runs/quickstart.")
    options = parser.parse_args(list(argv))
    evidence, findings, notes = examined(options.run, trust=options.trust)
    num, page = len(evidence.groups), (options.run / "report.html").resolve().as_uri()
    print(
        f"{options.run}: {num_updates(evidence.metrics):,} updates, {num:,} groups read, {len(evidence.late_groups):,} of them late"
    )
    for finding in findings:
        print(f"\n{finding.cause}: {finding.seen}")
        for one in finding.shown_by:
            print(f"  see {one}: {page}#{one.address}")
        print(f"  {finding.remedy}")
    if not findings:
        print(f"None of {len(CAUSES)} causes was found.")
    for note in notes:
        print(f"note: {note}")
    if findings:
        print(
            f"\nTo follow these links: {program()} report {quote(str(options.run))}. The causes: docs/guides/doctor.md."
        )
    return 0


def examined(folder: Path, *, trust: bool) -> tuple[Evidence, list[Finding], list[str]]:
    """What the run recorded, what ails it, and notes on what was not looked at."""
    evidence, last = read_evidence(folder), folder / "checkpoints" / "last.ckpt"
    written, notes = late_notes(evidence), [*evidence.notes]
    if written and not last.exists():
        notes.append("No checkpoints/last.ckpt: whether notes depend on what was seen was not looked at.")
    elif written:
        try:
            cli = built("doctor", OF_A_RUN, ["--ckpt_path", str(last), *(["--trust"] if trust else [])])
            evidence = replace(evidence, dependence=of_notes(model_of(cli, str(last)), written))
        except CodLightningError as error:
            notes.append(f"Whether notes depend on what was seen was not looked at: {error}")
        except SystemExit as refused:  # by the parser, which has printed why
            if refused.code != 2:
                raise
            said = "config.yaml is refused, as said above."
            notes.append(f"Whether notes depend on what was seen was not looked at: {said}")
    return evidence, causes_of(evidence), notes
