"""A run's folder, read for a report: whatever is there, and a note for whatever is not."""

from dataclasses import dataclass
from pathlib import Path

from cod_lightning.errors import ConfigError
from cod_lightning.reports.curves import Panels, checkpoint_curves, read_curves
from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.reports.suites import STALE, PlayedSuite, read_evaluation
from cod_lightning.rollout import policy_logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """One run; its lifecycles are read from `files` when they are wanted."""

    name: str
    folder: Path
    suites: dict[str, PlayedSuite]
    panels: Panels
    files: tuple[LifecycleFile, ...]
    notes: list[str]


def no_run(command: str, folder: Path, expected: str) -> ConfigError:
    """The refusal of a folder that is none of a run."""
    remedy = "A run of `fit` is in runs/NAME, or where --trainer.default_root_dir put it."
    return ConfigError(f"{command} RUN_DIR", folder, expected, remedy)


def read_run(folder: Path, name: str) -> RunFolder:
    """The run in that folder. Raises `ConfigError` where there is none."""
    found = filter(Path.is_file, (folder / "lifecycles").glob("*.jsonl"))  # a pipe or a device would be read for ever
    lives = sorted((path for path in found if not path.name.startswith(f"{policy_logprobs.NAME}.")), key=_place)
    expected = [folder / file for file in ("config.yaml", "metrics.csv", "evaluation.json")]
    if not lives and not any(path.is_file() for path in expected):
        parts = "config.yaml, metrics.csv, evaluation.json or lifecycles/"
        raise no_run("report", folder, f"the folder of a run, with {parts}")
    evaluation = read_evaluation(folder)
    panels, more = read_curves(folder)
    none = [] if lives else ["There are no lifecycles/*.jsonl, so there is nothing to browse."]
    return RunFolder(
        name=name,
        folder=folder,
        suites=evaluation.all_suites,
        panels=checkpoint_curves(evaluation.checkpoints) | panels,
        files=tuple(map(LifecycleFile, lives)),
        notes=[*evaluation.notes, *_stale(folder), *more, *none],
    )


def _stale(folder: Path) -> list[str]:
    """A note where training went on after the evaluation, as in a run that was killed before its end."""
    evaluation, newest = folder / "evaluation.json", folder / "checkpoints" / "last.ckpt"
    if not (evaluation.exists() and newest.exists()) or evaluation.stat().st_mtime >= newest.stat().st_mtime:
        return []
    return [STALE.format("checkpoints/last.ckpt")]


def _place(path: Path) -> tuple[bool, bool, str]:
    """What the trained policy did on held-out packs first, controls after the training itself."""
    is_trained, is_test = path.stem.endswith("_trained"), path.stem.startswith("test_")
    return not is_trained, is_test, path.name
