"""The page of `apps.py`: its tables and texts."""

from typing import Any

from cod_lightning.markdown import table
from examples.studies.memory_page import interval

LEARNERS = ("REC", "GRPO", "LOOP")
WITHOUT = {"REC": "REC", "GRPO": "GRPO", "LOOP": "LOOP, per token"}
PAIRS = [
    *((f"{name}, contexts", WITHOUT[name]) for name in LEARNERS),
    *(("REC, contexts", f"{name}, contexts") for name in ("GRPO", "LOOP")),
]
"""Which training less which."""
WARM = "warm_start_t0.3"


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    guard, fast, runs = results["guarded"], results["speed"], results["learned"]["runs"]
    lines = [
        "# Apps, measured",
        "",
        *ABOUT.strip().splitlines(),
        "",
        "## References",
        "",
        *REFERENCES.strip().splitlines(),
        "",
    ]
    references = ("random", 3), ("memoryless", 3), ("scripted", 0), ("scripted", 3), ("oracle", 3)
    rows = [
        [f"`{world}`", *(f"{every[label]['success'][n]:.3f}" for label, n in references)]
        for world, every in results["references"].items()
    ]
    lines += [table(["environment", *(f"{label} at {n}" for label, n in references)], rows), ""]
    lines += [
        f"- Random calls solve {guard['random_success']:.1%} of 1,000 tasks, informed play {guard['solved_by_oracle']:,}. In "
        "`apps_compact` *random* chooses between beliefs, and solves more.",
        f"- {guard['mutations_caught']} of 500 rows changed, deleted or doubled after informed play fail a check; "
        f"{guard['escapes_refused']} of {guard['escapes']} programs that try to leave the sandbox or exhaust it are refused or "
        "fail, and change nothing.",
        f"- {guard['hostile_calls']:,} hostile calls raise nothing but the site's own errors; one core makes "
        f"{fast['calls_per_s']:,} calls a second.",
        "",
        "## What a tiny policy learns",
        "",
        *LEARNED.format(budget=results["learned"]["budget"]).splitlines(),
        "",
    ]
    rows = []
    for name in results["learned"]["arms"]:
        curves = {
            key: [run["curves"][key] for run in runs[name].values()] for key in ("trained", "blanked_context", WARM)
        }
        ends = [[one[n] for one in curves["trained"]] for n in (0, -1)]
        less = [one[-1] - start[-1] for one, start in zip(curves["trained"], curves[WARM], strict=True)]
        last = [*ends, [one[-1] for one in curves["blanked_context"]], less]
        rows.append([name, *map(interval, last)])
    head = ["training", "0", "3", "at 3, context blanked", "at 3, less its warm start at T=0.3"]
    lines += [table(head, rows), "", "Differences at the last task, paired by seed:", ""]
    lines += [
        table(["", "at 3"], [[f"{one} less {other}", interval(_apart(runs, one, other))] for one, other in PAIRS])
    ]
    lines += ["", *FOUND.strip().splitlines(), ""]
    return "\n".join([*lines, "## Limits", "", LIMITS.strip(), ""])


def _apart(runs: dict[str, Any], one: str, other: str) -> list[float]:
    """Differences at the last task, of the seeds that both have."""
    seeds = sorted(runs[one].keys() & runs[other].keys())
    return [runs[one][seed]["curves"]["trained"][-1] - runs[other][seed]["curves"]["trained"][-1] for seed in seeds]


ABOUT = """
**Is the world of apps solvable, not guessable and safe, and do contexts pay in it?** Twelve apps, 136 calls, 40 kinds of tasks over
a person's mail, calendar and money; hidden are quirks of the site and habits of the person ([the world](../worlds.md)).

    PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json

All positions, rewards, difficulties, temperatures and arguments are in [apps.json](apps.json).
"""
REFERENCES = """
Success in 250 packs of 4 of the test split. *Memoryless* plays as if each task were its first; *scripted* knows every documented
call, tries, reads errors and notes what they show; *oracle* knows what is hidden. A context can be worth scripted less memoryless.
"""
LEARNED = """
Compact words, a policy of 0.2 million parameters, held-out packs. Means with 95 % intervals over five seeds (Student's t), not
corrected for their number. All trainings of a seed begin with one warm start and end at {budget:,} sampled tokens.
""".strip()
FOUND = """
Contexts are worth .33 to .36 at the last task under REC, GRPO and LOOP alike. None ends above its warm start at T=0.3.
"""
LIMITS = """
- The tiny policy chooses beliefs, not calls: a scripted plan carries a word out through the same calls and checks.
- The policy was measured with three habits, 64 combinations, split by hash, in which the best guess of training paid least in tests
  ([splits](splits.md)); `apps_compact` now has five habits and a balanced split.
- LOOP had clips of 0.2; later runs have the source's [1/1.1, 1.1].
- Language models here, and a model as the user, are not measured.
"""
