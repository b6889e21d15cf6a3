"""From a config and axes to jobs: every combination composed, every warm start's evaluation taken out and done once a seed."""

import copy
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from cod_lightning.commands.composition import Composed, composed
from cod_lightning.commands.config_files import find_config, full_key, inline
from cod_lightning.commands.shipped import CLASS_KEYS, CLASS_NAME, choices_of, groups
from cod_lightning.errors import ConfigError
from cod_lightning.reports.sweeps.record import JobKind, JobRecord
from cod_lightning.whole_file import write_whole

SEED = "seed_everything"
_OF_A_WARM_START = {"model": ("policy",), "trainer": ("accelerator", "devices", "precision")}
"""What the evaluation of a warm start depends on, beside all of `data` but `_OF_TRAINING`; cells that differ elsewhere share it."""
_OF_TRAINING = (
    *("source", "replay", "group_size", "packs_per_rollout", "updates_per_rollout"),
    *(
        "passes_per_rollout",
        "resample_packs",
        "max_staleness",
        "buffer",
        "rollouts_per_epoch",
        "val_packs",
        "temperature",
        "top_p",
    ),
    "baseline",
)
"""Keys of `data` that say how a policy is trained, and what else plays the suites."""
_OF_ONE_RUN = ("trainer.default_root_dir", "ckpt_path", "overwrite", "accept_changes")


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
        write_whole(self.folder / "job.yaml", yaml.safe_dump(self.config, sort_keys=False))


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
        varied = [line for at, line in enumerate(combination) if any(other[at] != line for other in combinations)]
        typed = [line.lstrip("+~") for line in varied]
        telling = [line for line in typed if not line.startswith(f"{SEED}=")]
        label = " ".join([Path(config).stem, *telling, f"seed={job.record.seed}"])
        job = replace(job, record=replace(job.record, label=label, order=len(fits)))
        warm = _warm_start(job, root)
        if warm is not None:
            jobs.setdefault(warm.folder, warm)
            job = replace(job, record=replace(job.record, warm_start=warm.folder.name))
        config_left = copy.deepcopy(job.config)  # without the warm start's evaluation, which a job of its own does
        if job.config.get("warm_start") is not None:
            for suite in config_left.get("data", {}).get("suites") or []:
                suite["warm_start_temperatures"] = []
        fit = _placed(job, root, JobKind.FIT, config_left)
        twin = next((one for one in fits.values() if one.config == fit.config), None)
        if twin is not None and twin.record.label != fit.record.label:
            labels = f"{twin.record.label} and {fit.record.label}"
            expected = f"axes that change the config; {labels} are the same training"
            raise ConfigError("sweep", " ".join(overrides), expected, "Leave out what another choice overrules.")
        fits.setdefault(fit.folder, fit)
    return [*jobs.values(), *fits.values()]


def _own_keys(combination: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Line -> key and value, for keys at the top (`warm_start`, `seed_everything`): Hydra would take some for groups."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    lines = [line for line in combination if line.startswith("++") and not re.search(r"[./@]", line.partition("=")[0])]
    parsed = OverridesParser.create().parse_overrides(lines)
    return {line: (one.key_or_group, one.value()) for line, one in zip(lines, parsed, strict=True)}


def _combinations(first: Composed, overrides: Sequence[str]) -> list[list[str]]:
    """Every combination of the values of all axes, those of the file below those that were typed."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    lines = [*(f"{key}={values}" for key, values in first.axes.items()), *overrides]
    for line in lines:
        if not re.match(r"^[+~]*[A-Za-z_][\w./@]*=", line):
            raise ConfigError("sweep", line, "GROUP=A,B or key=1,2,3", "Keys as in `fit --help`, without the dashes.")
        key, _, values = line.lstrip("+~").partition("=")
        if key in _OF_ONE_RUN:
            expected = "left out, since every run has a folder of its own, and goes on there where it was stopped"
            raise ConfigError(key, values, expected, "--out is the folder of the sweep.")
    typed: dict[str, str] = {}
    for line in overrides:
        key, _, values = _with_short_keys(line.lstrip("+~")).partition("=")
        if earlier := typed.get(key):
            expected = f"all of its values in one place; {key}={earlier} stands before it"
            raise ConfigError(key, values, expected, f"Write {key}={earlier},{values}, or leave one out.")
        typed[key] = values
    chosen_in = groups() - first.plain.keys()
    addressed = []  # a choice in a group as it is; a value so that it may be new to the file (`fit` checks every key)
    for line in map(_with_short_keys, lines):
        key = line.partition("=")[0]
        as_it_is = key in first.choices or key in chosen_in or key[0] in "+~"
        addressed.append(line if as_it_is else f"++{line}")
    try:
        parsed = OverridesParser.create().parse_overrides(addressed)
        (batch,) = BasicSweeper.split_arguments(parsed, None)
    except HydraException as error:
        reason = " ".join(str(error).split())
        raise ConfigError("sweep", " ".join(lines), "axes that Hydra can read", f"Hydra's error: {reason}") from error
    return batch


def _with_short_keys(line: str) -> str:
    """An axis without `init_args`, and with the group, or the key of the class, where the values are classes."""
    key, _, values = line.partition("=")
    key = full_key(key.replace(".init_args.", "."))
    for group, path in CLASS_KEYS.items():
        if key in (group, path):
            named = values.split(",")
            if set(named) <= set(choices_of(group)):
                return f"{group}={values}"
            are_classes = [bool(CLASS_NAME.fullmatch(name)) for name in named]
            if all(are_classes):
                return f"{path}.class_path={values}"
            if any(are_classes):
                expected = "names of what ships, or class paths, not both in one axis"
                raise ConfigError(key, values, expected, "Sweep each kind by itself, into one --out.")
    return f"{key}={values}"


def _canonical(value: Any) -> Any:
    """The config with all arguments of a class under `init_args`, so that equal jobs have equal hashes however they were typed."""
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if not isinstance(value, dict):
        return value
    beside = {key: item for key, item in value.items() if key not in ("class_path", "init_args", "dict_kwargs")}
    if "class_path" not in value or not beside:
        return {key: _canonical(item) for key, item in value.items()}
    from omegaconf import OmegaConf

    arguments = OmegaConf.to_container(OmegaConf.merge(value.get("init_args") or {}, beside))
    return _canonical({key: item for key, item in value.items() if key not in beside} | {"init_args": arguments})


def _fit(config: str, made: Composed, combination: list[str], own: Iterable[tuple[str, Any]], threads: int) -> Job:
    """The job with its config, suites spelled out, before its place and its warm start are settled."""
    content = {SEED: 1, "torch_threads": threads, **copy.deepcopy(made.plain), **dict(own)}
    for line in combination:  # arguments of the class in the file are not those of the class that takes its place
        section, _, name = line.lstrip("+").partition(".class_path=")[0].partition(".")
        if ".class_path=" in line and isinstance(found := content.get(section, {}).get(name), dict):
            found.pop("init_args", None)
    content = _canonical(content)
    data: dict[str, Any] = content.get("data") or {}
    if not data.get("suites"):
        expected = "a suite by which runs are compared"
        raise ConfigError("data.suites", "empty", expected, "Try 'data.suites=[in_domain]'.")
    suites = [data["suites"]] if isinstance(data["suites"], str) else data["suites"]
    content["data"] = {**data, "suites": inline(suites)}
    typed = [line.lstrip("+~").partition("=")[::2] for line in combination]
    values = {key: value for key, value in typed if key not in made.choices and key != SEED}
    record = JobRecord(
        kind=JobKind.FIT,
        label="",
        config=config,
        overrides=tuple(combination),
        setting=made.choices | values,
        seed=_whole(SEED, content[SEED]),
        threads=_whole("torch_threads", content["torch_threads"]),
    )
    return Job(Path(), record, content)


def _warm_start(fit: Job, root: Path) -> Job | None:
    """The evaluation of what a job starts from; None where no suite asks for it."""
    if fit.config.get("warm_start") is None:
        return None
    config: dict[str, Any] = {key: fit.config[key] for key in ("warm_start", SEED, "torch_threads")}
    for part, keys in _OF_A_WARM_START.items():
        found = fit.config.get(part) or {}
        config[part] = copy.deepcopy({key: found[key] for key in keys if key in found})
    data = fit.config["data"]
    config["data"] = copy.deepcopy({key: data[key] for key in data if key not in _OF_TRAINING})
    suites = config["data"]["suites"]
    asking = [{**suite, "controls": []} for suite in suites if suite.get("warm_start_temperatures") != []]
    if not asking:
        return None
    config["data"]["suites"] = asking
    return _placed(fit, root, JobKind.WARM_START, config)


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
