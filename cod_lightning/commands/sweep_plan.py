"""From a config and axes to jobs: every combination composed, every warm start's evaluation taken out and done once a seed."""

import copy
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from cod_lightning.commands.config_files import Composed, composed, config_folders, find_config, inline
from cod_lightning.errors import ConfigError
from cod_lightning.reports.sweeps.record import JobKind, JobRecord

SEED = "seed_everything"
_OF_A_WARM_START = {
    "data": ("env", "context", "engine", "pack_size", "max_new_tokens", "enable_thinking", "suites"),
    "model": ("policy",),
    "trainer": ("accelerator", "devices", "precision"),
}
"""What the evaluation of a warm start depends on; cells that differ elsewhere share it."""


@dataclass(frozen=True)
class Job:
    """A job that is planned; its folder carries the hash of its config, so that the same job is found again."""

    folder: Path
    record: JobRecord
    config: dict[str, Any]
    """Resolved."""

    def write_config(self) -> None:
        """Put `job.yaml` there, which `fit --config` takes too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "job.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))


def plan(config: str, overrides: Sequence[str], root: Path, threads: int) -> list[Job]:
    """The jobs of a sweep, warm starts first; each occurs once."""
    path = find_config(config)
    first = composed(path, [])
    compose = functools.cache(lambda lines: composed(path, lines))
    jobs: dict[Path, Job] = {}
    fits: dict[Path, Job] = {}
    combinations = _combinations(first, overrides)
    for combination in combinations:
        own = _own_keys(combination)
        made = compose(tuple(line for line in combination if line not in own))
        job = _fit(config, made, combination, own.values(), threads)
        label = " ".join([Path(config).stem, *_telling(combination, combinations), f"seed={job.record.seed}"])
        job = replace(job, record=replace(job.record, label=label, order=len(fits)))
        warm = _warm_start(job, root)
        if warm is not None:
            jobs.setdefault(warm.folder, warm)
            job = replace(job, record=replace(job.record, warm_start=warm.folder.name))
        fit = _placed(job, root, JobKind.FIT, _without_warm_start(job.config))
        fits.setdefault(fit.folder, fit)
    return [*jobs.values(), *fits.values()]


def _own_keys(combination: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Line -> key and value, for keys at the top (`warm_start`, `seed_everything`): Hydra would take some for groups."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    lines = [line for line in combination if line.startswith("++") and not re.search(r"[./@]", line.partition("=")[0])]
    parsed = OverridesParser.create().parse_overrides(lines)
    return {line: (one.key_or_group, one.value()) for line, one in zip(lines, parsed, strict=True)}


def _telling(combination: Sequence[str], combinations: Sequence[Sequence[str]]) -> list[str]:
    """What not all combinations have, without the seed."""
    varied = [line for at, line in enumerate(combination) if any(other[at] != line for other in combinations)]
    return [line.lstrip("+~") for line in varied if not line.lstrip("+~").startswith(f"{SEED}=")]


def warm_starts(jobs: Sequence[Job]) -> list[tuple[str, int, int]]:
    """Config, seed and threads of every warm start that jobs begin with, each once."""
    found = ((job.config.get("warm_start"), job.record.seed, job.record.threads) for job in jobs)
    return list(dict.fromkeys((name, seed, threads) for name, seed, threads in found if name))


def _combinations(first: Composed, overrides: Sequence[str]) -> list[list[str]]:
    """Every combination of the values of all axes, those of the file below those that were typed."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    lines = [*(f"{key}={values}" for key, values in first.axes.items()), *overrides]
    for line in lines:
        if not re.match(r"^[+~]*[A-Za-z_][\w./@]*=", line):
            raise ConfigError("sweep", line, "GROUP=A,B or key=1,2,3", "Keys as in `fit --help`, without the dashes.")
    try:
        parsed = OverridesParser.create().parse_overrides([_addressed(line, first) for line in lines])
        (batch,) = BasicSweeper.split_arguments(parsed, None)
    except HydraException as error:
        said = " ".join(str(error).split())
        raise ConfigError("sweep", " ".join(lines), "axes that Hydra can read", f"It says: {said}") from error
    return batch


def _addressed(line: str, first: Composed) -> str:
    """A choice in a group as it is; a value so that it may be new to the file (`fit` checks every key)."""
    key = line.partition("=")[0]
    is_group = key in first.choices or (
        key not in first.plain and any((folder / key).is_dir() for folder in config_folders())
    )
    return line if is_group or key[0] in "+~" else f"++{line}"


def _fit(config: str, made: Composed, combination: list[str], own: Iterable[tuple[str, Any]], threads: int) -> Job:
    """The job with its config, suites spelled out, before its place and its warm start are settled."""
    content = {SEED: 1, "torch_threads": threads, **made.plain, **dict(own)}
    data: dict[str, Any] = content.get("data") or {}
    if not data.get("suites"):
        raise ConfigError(
            "data.suites", "empty", "a suite by which runs are compared", "Try 'data.suites=[in_domain]'."
        )
    content["data"] = {**data, "suites": inline(data["suites"])}
    record = JobRecord(
        kind=JobKind.FIT,
        label="",
        config=config,
        overrides=tuple(combination),
        setting=made.choices | dict(_values(combination, made)),
        seed=_whole(SEED, content[SEED]),
        threads=_whole("torch_threads", content["torch_threads"]),
    )
    return Job(Path(), record, content)


def _values(combination: Sequence[str], made: Composed) -> Iterator[tuple[str, str]]:
    """What was set beside choices in groups."""
    for line in combination:
        key, _, value = line.lstrip("+~").partition("=")
        if key not in made.choices and key != SEED:
            yield key, value


def _warm_start(fit: Job, root: Path) -> Job | None:
    """The evaluation of what a job starts from; None where no suite asks for it."""
    if not fit.config.get("warm_start"):
        return None
    config: dict[str, Any] = {key: fit.config[key] for key in ("warm_start", SEED, "torch_threads")}
    for part, keys in _OF_A_WARM_START.items():
        found = fit.config.get(part) or {}
        config[part] = copy.deepcopy({key: found[key] for key in keys if key in found})
    suites = config["data"].get("suites") or []
    asking = [{**suite, "controls": []} for suite in suites if suite.get("warm_start_temperatures") != []]
    if not asking:
        return None
    config["data"]["suites"] = asking
    return _placed(fit, root, JobKind.WARM_START, config)


def _without_warm_start(config: dict[str, Any]) -> dict[str, Any]:
    """The config, which leaves its warm start's evaluation to the job that does it for all cells."""
    left = copy.deepcopy(config)
    if config.get("warm_start"):
        for suite in left.get("data", {}).get("suites") or []:
            suite["warm_start_temperatures"] = []
    return left


def _placed(fit: Job, root: Path, kind: JobKind, config: dict[str, Any]) -> Job:
    """In a folder with a telling name, found again by the hash of the config, whatever else it is called."""
    digest = hashlib.sha256(json.dumps([kind, config], sort_keys=True).encode()).hexdigest()[:10]
    earlier = next(iter(sorted(root.glob(f"*-{digest}"))), None)
    record = fit.record
    if kind is JobKind.WARM_START:
        label = f"{Path(record.config).stem} warm_start seed={record.seed}"
        record = replace(record, kind=kind, label=label, setting={}, overrides=())
    name = re.sub(r"[^\w=.,+-]", "_", record.label.replace(" ", ","))[:120]
    return Job(earlier or root / f"{name}-{digest}", record, config)


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(key, value, "a whole number", "Give each run one; a sweep pairs runs by their seeds.")
    return value
