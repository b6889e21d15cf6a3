"""The page of `apps.py`: its tables and texts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from cod_lightning.markdown import table
from examples.studies.memory_page import interval
from examples.studies.signals import first_to_late


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    guard, runs = results["guarded"], results["learned"]["runs"]
    columns = ("random", 3), ("memoryless", 3), ("scripted", 0), ("scripted", 3)
    references = [
        [f"`{world}`", *(f"{results['references'][world][label]['success'][n]:.3f}" for label, n in columns)]
        for world in WORLDS
    ]
    learned = [row for name, seeds in runs.items() if seeds for row in _solved(name, list(seeds.values()))]
    seeds = {run.rpartition(" ")[2]: of for run, of in results["code_model"].items() if run.startswith("5 kinds")}
    parts = [
        "# Apps, measured",
        ABOUT.strip(),
        table(["environment", *(f"{label} at {n}" for label, n in columns)], references),
        GUARD.strip().format(**guard),
        "## What a tiny policy learns",
        LEARNED.format(budget=results["learned"]["budget"]),
        table(
            ["training", "solved", "random", "warm start, at its best T", "trained", "trained less it", "blanked"],
            learned,
        ),
        READING.strip().format(
            ends="; ".join(
                f"{name.split(',')[0]} {_ends(list(seeds.values()))}" for name, seeds in runs.items() if seeds
            )
        ),
        CODE.strip(),
        _code_reading(list(seeds.values())),
        LIMITS.strip(),
    ]
    return "\n\n".join(parts) + "\n"


def _code_reading(seeds: Sequence[dict[str, Any]]) -> str:
    """What the seeds show together."""

    def together(policy: str, kind: str, of: Sequence[dict[str, Any]] = seeds) -> list[int]:
        return [sum(tasks) for tasks in zip(*(one[policy]["kinds"][kind] for one in of), strict=True)]

    by_kind = {
        kind: (together("warm_start_t0.0", kind), together("trained_t0.0", kind))
        for kind in seeds[0]["trained"]["kinds"]
    }

    def by_seed(of: Iterable[dict[str, Any]], key: str) -> str:
        return ", ".join(f"{one['tgc'][0]:.2f}" if key == "tgc" else str(one["sgc"][0]) for one in of)

    best, greedy, hot = (
        [_best(of) for of in seeds],
        [of["trained_t0.0"] for of in seeds],
        [of["trained"] for of in seeds],
    )
    return CODE_READING.strip().format(
        start=by_seed(best, "tgc"),
        start_packs=by_seed(best, "sgc"),
        end=by_seed(greedy, "tgc"),
        end_packs=by_seed(greedy, "sgc"),
        hot=by_seed(hot, "tgc"),
        more=", ".join(_signed(one["greedy_less"]) for one in best),
        kinds=", ".join(
            f"`{kind}` {before[0]} to {after[0]} of {after[1]}" for kind, (before, after) in by_kind.items()
        ),
        rare=together("training", "contact_moves", seeds[:2]),
        before=together("warm_start_t0.0", "contact_moves", seeds[:2]),
        after=together("trained_t0.0", "contact_moves", seeds[:2]),
    )


def _best(of: Mapping[str, Any]) -> Any:
    """The warm start at the temperature at which it solves most."""
    return max((one for name, one in of.items() if name.startswith("warm_start")), key=lambda one: one["tgc"])


def _signed(found: Sequence[float]) -> str:
    return "{:+.2f} [{:.2f}, {:.2f}]".format(*found)


def _solved(name: str, runs: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """A row for tasks and one for whole packs, beside the warm start at the temperature at which it solves most of them."""

    def tasks(of: str) -> list[dict[str, float]]:
        return [{key: mean(curve) for key, curve in run[of].items()} for run in runs if of in run]

    for label, shares in (("tasks (TGC)", tasks("curves")), ("packs (SGC)", [run["whole"] for run in runs])):
        starts = [key for key in shares[0] if re.fullmatch(r"warm_start(_t[\d.]+)?", key)]
        best = max(starts, key=lambda key: mean(one[key] for one in shares))
        found = {key: [one[key] for one in shares] for key in ("random", best, "trained", "blanked_context")}
        less = [one - start for one, start in zip(found["trained"], found[best], strict=True)]
        heat = best.removeprefix("warm_start").removeprefix("_t") or "1"
        cells = [
            f"{mean(found['random']):.3f}",
            f"{interval(found[best])}, T={heat}",
            interval(found["trained"]),
            interval(less),
        ]
        yield [name, label, *cells, interval(found["blanked_context"])]


def _ends(runs: Sequence[dict[str, Any]]) -> str:
    """What training did to pass@K and entropy."""
    return ", ".join(f"{name} {first_to_late(runs, name)}" for name in ("pass@1", "pass@8", "entropy"))


WORLDS = ("apps", "apps_hard", "apps_compact")
"""Of those whose references are in the JSON."""
ABOUT = """
**Is the world of apps solvable, not guessable and safe, and do contexts pay in it?** Twelve apps, 136 calls, 40 kinds of tasks over
a person's mail, calendar and money; hidden are quirks of the site and habits of the person ([the world](../worlds.md)).

    PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json

Success of [players](references.md) without a model in 250 packs of 4 test tasks; *oracle* solves all. Further settings, positions
and temperatures are in [apps.json](apps.json).
"""
GUARD = """
A context can be worth *scripted* less *memoryless*. Random calls solve {random_success:.1%} of 1,000 tasks, informed play
{solved_by_oracle:,}; {mutations_caught} of 500 rows changed after informed play fail a check; {escapes_refused} of
{escapes} programs that try to leave or exhaust the sandbox change nothing.
"""
LEARNED = """
`apps_compact`: five habits, a word for each; {budget:,} sampled tokens, three seeds, 1,024 held-out packs of 4, temperature 1. TGC
and SGC are AppWorld's: shares of tasks solved, and of packs solved whole. Means with 95 % intervals over seeds (Student's t).
*Blanked*: with the context hidden.
""".strip()
READING = """
**REC, which is CoD, and LOOP end above random and not above their warm start at its best temperature**, in packs of the training
split neither. Both become surer of what they did before, and no more tasks are solved by any of eight. From the first update to
the last quarter: {ends} (nats a token).
"""
CODE = """
## A language model that writes code

SmolLM2-135M-Instruct writes every call of five kinds of tasks that need no habit, quirk or context; untrained it solved none of 12.

    python -m cod_lightning fit --config examples/studies/apps_code.yaml --seed_everything 1 --trainer.default_root_dir runs/code1
    PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json --page_only --code runs/code*

13 updates on 52 demonstrated tasks, then 32 of LOOP, eight rollouts of 8 tasks with six tries each: two hours on a core.
192 test tasks in 64 packs, at T=1 a quarter of them; 95 % intervals over packs. Random calls solve none.
"""
CODE_READING = """
- **Acting greedily, LOOP solves more than its warm start does at any temperature**, in three seeds: at its best the warm start
  solves {start} of the tasks and {start_packs} packs whole, LOOP {end} and {end_packs}, more by
  {more}. At T=1, where it errs in passwords and tokens, which it copies
  letter by letter, LOOP solves {hot}.
- By kind, at T=0: {kinds}.
- **Kinds help each other**: in seeds 1 and 2 just {rare[0]} of {rare[1]} tries at `contact_moves` succeed in training; greedy play
  rises from {before[0]} to {after[0]} of {after[1]}.
"""
LIMITS = """
**Limits**: the tiny policy chooses beliefs, not calls, which a scripted plan makes; a model as the user is not measured.
"""
