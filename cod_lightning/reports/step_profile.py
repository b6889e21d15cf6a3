"""One page on where the time of a training step went; what is measured, and when, is decided in `callbacks/step_profile.py`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from cod_lightning.markdown import table

OWN = ("cod_lightning",)
_ROWS = 15


@dataclass(frozen=True, kw_only=True)
class Phases:
    """A step that nothing slowed down, in seconds."""

    total_s: float
    rollout_s: float
    training_s: float
    """All updates of the rollout."""
    sync_s: float
    sampled_tokens: int
    trained_tokens: int
    lifecycles: int

    @property
    def rest_s(self) -> float:
        """Collating, credit tables for other ranks, logging, callbacks."""
        return max(0.0, self.total_s - self.rollout_s - self.training_s - self.sync_s)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds in one place, what it called not included."""

    where: str
    seconds: float
    calls: int


@dataclass(frozen=True, slots=True)
class Function:
    """A row of Python's profiler."""

    file: str
    """`~` for what is built in."""
    line: int
    name: str
    seconds: float
    """Its own."""
    calls: int


def summary(
    phases: Phases, operators: Sequence[Spent], functions: Sequence[Function], slowed: tuple[float, float]
) -> str:
    """The page; `slowed` is the seconds of the steps under torch's and under Python's profiler."""
    parts = {
        "rollout": phases.rollout_s,
        "training": phases.training_s,
        "weight sync": phases.sync_s,
        "the rest (collating, logging, callbacks)": phases.rest_s,
    }
    speed = {
        "lifecycles a second": phases.lifecycles / phases.total_s,
        "sampled tokens a second of rollout": phases.sampled_tokens / max(phases.rollout_s, 1e-9),
        "trained tokens a second of training": phases.trained_tokens / max(phases.training_s, 1e-9),
    }
    lines = [
        "# Where a training step went",
        "",
        f"One step, timed as it is: {phases.total_s:.3f} s for {phases.lifecycles:,} lifecycles, {phases.sampled_tokens:,} sampled "
        f"and {phases.trained_tokens:,} trained tokens.",
        "",
        table(["part", "seconds", "share"], [[n, f"{s:.3f}", f"{s / phases.total_s:.0%}"] for n, s in parts.items()]),
        "",
        *(f"- {value:,.0f} {name}" for name, value in speed.items()),
        "",
        f"Profilers slow down what they look at: the next step took {slowed[0]:.3f} s under torch's and the one after it "
        f"{slowed[1]:.3f} s under Python's. Read the tables below as shares, and Python's as too high for what makes many small "
        "calls.",
        "",
        "## Operators (torch's profiler, own time)",
        "",
        _table(operators),
        "",
        "## Packages (Python's profiler, own time)",
        "",
        _table(packages(functions)),
        "",
        "## Functions (Python's profiler, own time)",
        "",
        _table(sorted(map(_spent, functions), key=lambda one: -one.seconds)),
        "",
        "`trace.json.gz`, beside this page, opens in ui.perfetto.dev or chrome://tracing.",
        "",
    ]
    return "\n".join(lines)


def packages(functions: Iterable[Function]) -> list[Spent]:
    """Own seconds by package: a folder of this project, a library, torch's kernels, the rest of what is built in.

    >>> functions = [Function("~", 0, "<built-in method torch._C._nn.linear>", 2.0, 3), Function("~", 0, "<method 'get'>", 1.0, 1)]
    >>> [(one.where, one.seconds) for one in packages(functions)]
    [('torch, built in', 2.0), ('Python, built in', 1.0)]
    """
    seconds, calls = defaultdict[str, float](float), defaultdict[str, int](int)
    for function in functions:
        place = _package(function)
        seconds[place] += function.seconds
        calls[place] += function.calls
    return sorted((Spent(place, seconds[place], calls[place]) for place in seconds), key=lambda one: -one.seconds)


def _package(function: Function) -> str:
    if function.file in ("~", ""):
        return "torch, built in" if "torch" in function.name else "Python, built in"
    parts = PurePath(function.file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            return parts[len(parts) - parts[::-1].index(folder)]
    for i in range(len(parts) - 2, -1, -1):
        if parts[i] in OWN:
            return "/".join(parts[i : min(i + 2, len(parts) - 1)])
    return "Python's library" if any(part.startswith("python3") for part in parts) else "elsewhere"


def _spent(function: Function) -> Spent:
    place = function.name
    if function.file not in ("~", ""):
        place = f"{'/'.join(PurePath(function.file).parts[-3:])}:{function.line} {function.name}"
    return Spent(place, function.seconds, function.calls)


def _table(rows: Sequence[Spent]) -> str:
    total = sum(row.seconds for row in rows) or 1.0
    shown, left = [replace(row, where=f"`{_safe(row.where)}`") for row in rows[:_ROWS]], rows[_ROWS:]
    if left:
        shown.append(Spent(f"{len(left)} more", sum(row.seconds for row in left), sum(row.calls for row in left)))
    lines = [[row.where, f"{row.seconds:.3f}", f"{row.seconds / total:.0%}", f"{row.calls:,}"] for row in shown]
    return table(["where", "seconds", "share", "calls"], lines)


def _safe(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
