"""The page of `apps.py`: its tables and texts."""

import re
from collections.abc import Iterator, Mapping, Sequence
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
    code = results["code_model"]
    few, more, many = (code[f"{count} tasks, seed 1"] for count in (24, 40, 56))
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
        table(CODE_HEAD, list(_of_code({run: of for run, of in code.items() if run.startswith("32 ")}))),
        CODE_READING.strip().format(
            few=few["trained"]["tgc"][0],
            more=more["warm_start_t0.0"]["tgc"][0],
            loop=more["trained"]["tgc"][0],
            many=many["warm_start_t0.0"]["tgc"][0],
            tried=code["32 tasks, seed 2"]["training"]["kinds"]["contact_moves"],
        ),
        LIMITS.strip(),
    ]
    return "\n\n".join(parts) + "\n"


def _of_code(seeds: Mapping[str, dict[str, Any]]) -> Iterator[list[str]]:
    """A row for each seed and policy."""
    for run, policies in seeds.items():
        for policy, label in CODE_POLICIES.items():
            of = policies[policy]
            less = "{:+.2f} [{:.2f}, {:.2f}]".format(*of["trained_less"]) if "trained_less" in of else ""
            kinds = ["{} of {}".format(*of["kinds"][kind]) for kind in CODE_KINDS]
            share, packs = "{:.2f} [{:.2f}, {:.2f}]".format(*of["tgc"]), "{} of {}".format(*of["sgc"])
            yield [run.rpartition(" ")[2], label, share, less, packs, *kinds]


def _solved(name: str, runs: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """A row for tasks and one for whole packs, beside the warm start at the temperature at which it solves most of them."""

    def tasks(of: str) -> list[dict[str, float]]:
        return [{key: mean(curve) for key, curve in run[of].items()} for run in runs if of in run]

    for label, shares in (
        ("tasks (TGC)", tasks("curves")),
        ("packs (SGC)", [run["whole"] for run in runs]),
        ("tasks (TGC) of training packs", tasks("training_packs")),
    ):
        if not shares:
            continue
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
`apps_compact`: five habits, a word for each, carried out by a scripted plan of calls; {budget:,} sampled tokens, three seeds, 1,024
held-out packs of 4, temperature 1. TGC and SGC are AppWorld's: shares of tasks solved, and of packs solved whole. Means with 95 %
intervals over seeds (Student's t). *Blanked*: with the context hidden.
""".strip()
READING = """
**REC, which is CoD, and LOOP end above random and not above their warm start at its best temperature**, in packs of the training
split neither: the split is not why. Both become surer of what they did before, and no more tasks are solved by any of eight: from
the first update to the last quarter of the training {ends} (nats a token).
"""
CODE_KINDS = ("new_todo", "contact_moves")
CODE_HEAD = [
    "seed",
    "policy",
    "tasks (TGC)",
    "LOOP, T=1, less it",
    "packs (SGC)",
    *(f"`{kind}`" for kind in CODE_KINDS),
]
CODE_POLICIES = {
    "warm_start_t0.0": "warm start, T=0",
    "warm_start": "warm start, T=1",
    "trained": "**after LOOP**, T=1",
    "trained_t0.0": "**after LOOP**, T=0",
}
CODE = """
## A language model that writes code

SmolLM2-135M-Instruct writes every call of two kinds of tasks that need no habit, quirk or context. Untrained it solved none of 12,
and no answer was well-formed.

    python -m cod_lightning fit --config examples/studies/apps_code.yaml --seed_everything 1 --trainer.default_root_dir runs/code1
    PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json --page_only --code runs/code1 runs/code2

Eight updates on 32 demonstrated tasks, then LOOP: 32 updates, eight rollouts of 8 tasks with six tries each, half an hour. 16 packs
of 3 test tasks, 95 % intervals over packs; random calls solve none.
"""
CODE_READING = """
- **LOOP makes sure of what is sampled now and then, and finds nothing else.** In seed 1 two of the first 24 tries at
  `contact_moves` succeed, and LOOP ends above the warm start at its best temperature. In seed 2 {tried[0]} of {tried[1]} tries of
  the training do: siblings hardly differ, and LOOP ends where its warm start is at T=0.
- **How much is demonstrated decides.** After 24 tasks (`--warm_start.num_updates 6`, 12 packs) one of 114 tries succeeds, and LOOP
  ends at {few:.2f}, as its warm start at T=0. After 40 (10) the warm start solves {more:.2f} at T=0, LOOP {loop:.2f} at T=1;
  after 56 (14) {many:.2f} at T=0. What fails is copying: for the password `ssmc2sxv` it gave `smc2sxv`.
"""
LIMITS = """
**Limits**: the tiny policy chooses beliefs, not calls, which a scripted plan makes; a model as the user is not measured.
"""
