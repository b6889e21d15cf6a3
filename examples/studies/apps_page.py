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
    command = "`PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json`"
    lines = ["# Apps, measured", "", f"{command} writes this page.", *ABOUT, "", "## References", "", *REFERENCES, ""]
    rows = [
        [
            f"`{world}`", label, *(f"{one:.3f}" for one in of["success"]), f"{of['reward']:.3f}",
            *(f"{of['by_difficulty'][level]:.3f}" if level in of["by_difficulty"] else "" for level in "123"),
        ]
        for world, every in results["references"].items() for label, of in every.items()
    ]  # fmt: skip
    head = ["environment", "reference", *map(str, range(4)), "reward", "level 1", "2", "3"]
    lines += [table(head, rows), ""]
    if found := results.get("calls"):
        said = (f"{n:.1f} at level {level} ({least} to {most})" for level, (n, least, most) in found.items())
        lines += [f"Informed play of `apps` takes so many calls on average: {', '.join(said)}.", ""]
    guard, fast = results["guarded"], results["speed"]
    of_beliefs = mean(results["references"]["apps_compact"]["random"]["success"])
    lines += [
        "## Tasks, checks, sandbox", "",
        f"- Informed play solves {guard['solved_by_oracle']:,} of 1,000 tasks; random calls solve "
        f"{guard['random_success']:.1%} of 1,000, less than the 2 % that were the bound. The bound is for calls: of `apps_compact` "
        f"*random* solves {of_beliefs:.2f}, since it chooses between beliefs.",
        f"- Ending a task at once passes {guard['checks_without_a_call']:.2f} of its checks on average, since nothing else "
        "has changed then; so a reward is 0 until something that was asked for has come about.",
        f"- After informed play, one more row was changed, deleted or doubled at random: {guard['mutations_caught']} of 500 such "
        "damages fail a check.",
        f"- Of {guard['escapes']} programs that try to get out of the sandbox or to use up what it runs on (imports, dunder walks, "
        f"recursion, memory, fork, time, output), {guard['escapes_refused']} end refused or with an error and change nothing; the "
        f"slowest takes {guard['slowest_escape_s']} s of computing. `tests/envs/apps/escapes.py` lists them.",
        f"- {guard['hostile_calls']:,} calls with hostile names and arguments raise nothing but the site's own errors; "
        f"{guard['hostile_answered']:,} of them are answered.", "",
        "## Speed, one core", "",
        table(
            ["what", "measured", "wanted"],
            [
                ["calls a second, half of them writes", f"{fast['calls_per_s']:,}", "5,000"],
                ["turns of code a second, one call each", f"{fast['code_turns_per_s']:,}", ""],
                ["a snapshot in the middle of a task", f"{fast['snapshot_us']:.0f} us", "200 us"],
                [
                    "256 lifecycles with packs of their own",
                    f"{fast['memory_mib']['with_256']} MiB, {fast['memory_mib']['before']} of them Python and imports", "1,024 MiB",
                ],
            ],
        ),
        "",
        "## What a tiny policy learns", "", *LEARNED.format(budget=results["learned"]["budget"]).splitlines(), "",
    ]  # fmt: skip
    rows = []
    for name in results["learned"]["arms"]:
        runs = list(results["learned"]["runs"].get(name, {}).values())
        if not runs:
            rows.append([name, "trained", "0", "not measured", *[""] * 5])
            continue
        cost = [f"{mean(run[key] for run in runs):,.0f}" for key in ("sampled_tokens", "rollouts")]
        common = set.intersection(*(set(run["curves"]) for run in runs))
        for condition in sorted(common, key=lambda one: (one != "trained", one)):
            curves = [run["curves"][condition] for run in runs]
            columns = [interval([curve[n] for curve in curves]) for n in range(4)]
            spent = cost if condition == "trained" else ["", ""]
            rows.append([name, condition.replace("_", " "), str(len(curves)), *columns, *spent])
    head = ["training", "condition", "seeds", *map(str, range(4)), "tokens sampled", "rollouts"]
    lines += [table(head, rows), "", *_compared(results["learned"]["runs"])]
    lines += [f"- {name}: `fit --config {' '.join(one)}`" for name, one in results["learned"]["arms"].items()]
    lines += ["", "## Try it", "", *COMMANDS, "", "## Limits", "", *LIMITS, ""]
    return "\n".join(lines)


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
Twelve apps, 136 calls, 40 kinds of tasks over a person's mail, calendar, money and so on; hidden are quirks of the site and habits
of the person. [What it is](../worlds.md).
""".rstrip().splitlines()
REFERENCES = """
Success by position in 250 packs of 4 of the test split, mean reward, and success by the difficulty of a task. *scripted* knows
every documented call, tries, reads errors and notes what they show; *memoryless* plays as if each task were its first; *oracle*
knows what is hidden. By how much *scripted* exceeds *memoryless* at positions 1 to 3 is what a context can be worth to a
player that makes no other mistake.
""".strip().splitlines()
COMMANDS = """
- `python -m cod_lightning play --env apps`: a pack in the terminal, of which you are the agent; `--policy scripted` shows how.
- `OMP_NUM_THREADS=1 .venv-vllm/bin/python -m pytest -q -m vllm tests/test_tools.py`: a checkpoint with tool calls in natural
  wording, trained end to end with vLLM, drift 0. `make vllm` installs vLLM and runs this test, too; `-m slow` does without vLLM.
- [Your own app](../guides/your_app.md): an app in 80 lines, with documentation, quirks and checks. `tests/test_examples.py` plays
  it.
""".strip().splitlines()
LEARNED = """
Compact words, tiny policy (0.2 M parameters), the recipe of the quick start, held-out packs whose habits, taken together, no
training pack has. Means with 95 % intervals over seeds (Student's t) where there are several, none of them corrected for their
number. All trainings of a seed begin with one warm start and end with the rollout in which they have sampled {budget:,} tokens;
the learning rate falls over that budget. What has no contexts plays packs of four, too, and nothing is carried from task to task;
LOOP was measured with clips of 0.2 on both sides; the source has [1/1.1, 1.1], which later runs have. Its rollouts sample fewer
tokens, and so it makes more of them. CoD is REC with contexts.
""".strip()
LIMITS = """
- The tiny policy chooses beliefs, not calls: a word is carried out by a scripted plan through the same calls and checks.
- The template lists the calls of `user` as tools (`actions: tools`); all others are documented by `user.docs`.
- Not measured: language models in this environment, a simulated user that is a model.
""".strip().splitlines()
