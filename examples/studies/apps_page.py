"""The page of `apps.py`: its tables and texts."""

from statistics import mean
from typing import Any

from cod_lightning.markdown import table
from examples.studies.memory_page import interval

LEARNERS = ("REC", "GRPO", "LOOP")
WITHOUT = {"REC": "REC", "GRPO": "GRPO", "LOOP": "LOOP, per token"}
PAIRS = [
    *((f"{name}, contexts", WITHOUT[name]) for name in LEARNERS),
    *(("REC, contexts", f"{name}, contexts") for name in ("GRPO", "LOOP")),
    *((name, WITHOUT["LOOP"]) for name in ("GRPO", "REC", "LOOP, per turn", "LOOP, per rollout")),
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
        f"- Informed play solves {guard['solved_by_oracle']:,} of 1,000 tasks, random calls "
        f"{guard['random_success']:.1%}. Of `apps_compact` "
        "*random* solves more: it chooses between beliefs.",
        f"- {guard['mutations_caught']} of 500 rows changed, deleted or doubled after informed play fail a check.",
        f"- Of {guard['escapes']} programs that try to get out of the sandbox or to use up what it runs on, "
        f"{guard['escapes_refused']} end "
        "refused or with an error and change nothing (`tests/envs/apps/escapes.py`).",
        f"- {guard['hostile_calls']:,} calls with hostile names and arguments raise nothing but the site's own errors.",
        f"- One core makes {fast['calls_per_s']:,} calls a second, half of them writes, or {fast['code_turns_per_s']:,} "
        "turns of code.",
        "",
        "## What a tiny policy learns",
        "",
        *LEARNED.format(budget=results["learned"]["budget"]).splitlines(),
        "",
    ]
    rows = []
    for name in results["learned"]["arms"]:
        curves = {
            key: [run["curves"][key] for run in runs.get(name, {}).values()]
            for key in ("trained", "blanked_context", WARM)
        }
        last = (interval([curve[-1] for curve in curves[key]]) for key in ("blanked_context", WARM))
        rows.append([name, *(interval([curve[n] for curve in curves["trained"]]) for n in range(4)), *last])
    head = ["training", *map(str, range(4)), "at 3, context blanked", "at 3, warm start, T=0.3"]
    lines += [table(head, rows), "", *_compared(runs), *FOUND.strip().splitlines(), ""]
    return "\n".join([*lines, "## Limits", "", LIMITS.strip(), ""])


def _compared(runs: dict[str, Any]) -> list[str]:
    """Differences at the last task and of the mean over positions, paired by seed."""
    rows = []
    pairs = [((one, "trained"), (other, "trained")) for one, other in PAIRS]
    pairs += [((name, "trained"), (name, WARM)) for name in runs]
    for (one, here), (other, there) in pairs:
        seeds = sorted(runs.get(one, {}).keys() & runs.get(other, {}).keys())
        ends = [(runs[one][seed]["curves"][here], runs[other][seed]["curves"][there]) for seed in seeds]
        last, means = [a[-1] - b[-1] for a, b in ends], [mean(a) - mean(b) for a, b in ends]
        less = "its warm start at T=0.3" if there == WARM else other
        rows.append([f"{one} less {less}", str(len(seeds)), interval(last), interval(means)])
    return ["Differences, paired by seed:", "", table(["", "seeds", "last task", "mean of tasks"], rows), ""]


ABOUT = """
**Is the world of apps solvable, not guessable and safe, and do contexts pay in it?** Twelve apps, 136 calls, 40 kinds of tasks
over a person's mail, calendar and money; hidden are quirks of the site and habits of the person ([the world](../worlds.md)).
`PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json` makes it again; rewards, difficulties, temperatures
and the arguments of every training are in [apps.json](apps.json).
"""
REFERENCES = """
Success by position in 250 packs of 4 of the test split. *Scripted* knows every documented call, tries, reads errors and notes
what they show; *memoryless* plays as if each task were its first; *oracle* knows what is hidden. Scripted less memoryless is what
a context can be worth.
"""
LEARNED = """
Compact words, a policy of 0.2 million parameters, held-out packs. Means with 95 % intervals over five seeds (Student's t), none
corrected for their number. All trainings of a seed begin with one warm start and end at {budget:,} sampled tokens.
""".strip()
FOUND = """
Contexts are worth .33 to .36 at the last task under REC, GRPO and LOOP alike, which cannot be told apart with them. None ends
above its warm start at T=0.3.
"""
LIMITS = """
- The tiny policy chooses beliefs, not calls: a scripted plan carries a word out through the same calls and checks.
- The policy was measured with three habits, 64 combinations, split by hash, in which the best guess of training paid least in tests
  ([splits](splits.md)); `apps_compact` now has five habits and a balanced split.
- LOOP was measured with clips of 0.2; the source has [1/1.1, 1.1], which later runs have.
- Language models here, and a simulated user that is a model, are not measured.
"""
