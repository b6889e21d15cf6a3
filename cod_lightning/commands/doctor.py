"""`doctor`: why a run does not learn, named from what it recorded."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cod_lightning.commands.parser import OneLine, program
from cod_lightning.errors import CodLightningError


def run(argv: Sequence[str]) -> int:
    """Print the causes that are found, or that none is."""
    parser = OneLine(
        prog=f"{program()} doctor",
        description="Name what ails a training: it looks at metrics.csv, the lifecycles and evaluation.json of a run, and scores "
        "late notes with its last checkpoint. Causes and thresholds: docs/guides/doctor.md.",
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="Folder of a run, as in runs/quickstart.")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="Let the run's config name classes of other packages; naming one runs its module.",
    )
    options = parser.parse_args(list(argv))

    from cod_lightning.diagnosis.causes import CAUSES, causes_of
    from cod_lightning.diagnosis.evidence import read_evidence

    evidence = read_evidence(options.run)
    late, num = len(evidence.late_groups), evidence.num_updates
    print(f"{options.run}: {num:,} updates, {len(evidence.groups):,} groups of lifecycles read, {late:,} of them late")
    evidence, without = _with_notes(evidence, trust=options.trust)
    findings = causes_of(evidence)
    for finding in findings:
        print(f"\n{finding.cause}: {finding.seen}")
        for place in finding.shown_by:
            print(f"  see lifecycles/train.jsonl, {place}")
        print(f"  {finding.remedy}")
    if not findings:
        print(f"None of {len(CAUSES)} causes was found.")
    for note in without:
        print(f"note: {note}")
    if findings:
        print("\nTo read these lifecycles: " + f"{program()} report {options.run}. Thresholds: docs/guides/doctor.md.")
    return 0


def _with_notes(evidence: Any, *, trust: bool) -> tuple[Any, list[str]]:
    """The evidence with the dependence of its notes, by the last checkpoint, and why there is none."""
    from cod_lightning.commands.from_run import FromRunCLI, built, model_of
    from cod_lightning.diagnosis.causes import late_notes
    from cod_lightning.diagnosis.notes import of_notes

    path, notes = evidence.folder / "checkpoints" / "last.ckpt", late_notes(evidence)
    if not notes:
        return evidence, []
    if not path.exists():
        return evidence, ["No checkpoints/last.ckpt: whether notes depend on what was seen was not looked at."]
    try:
        cli = built(FromRunCLI, ["--ckpt_path", str(path), *(["--trust"] if trust else [])])
        model = model_of(cli.model.policy, cli.datamodule, str(path))
        return replace(evidence, dependence=of_notes(model, notes)), []
    except CodLightningError as error:
        return evidence, [f"Whether notes depend on what was seen was not looked at: {error}"]
