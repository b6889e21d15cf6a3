"""The page of `apps.py`: its tables and texts."""

import re
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from cod_lightning.markdown import table
from examples.studies.memory_page import interval
from examples.studies.signals import first_to_late


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
    references = ("random", 3), ("memoryless", 3), ("scripted", 0), ("scripted", 3)
    rows = [
        [f"`{world}`", *(f"{every[label]['success'][n]:.3f}" for label, n in references)]
        for world, every in results["references"].items()
    ]
    lines += [table(["environment", *(f"{label} at {n}" for label, n in references)], rows), ""]
    lines += [
        f"- Random calls solve {guard['random_success']:.1%} of 1,000 tasks, informed play {guard['solved_by_oracle']:,}. In "
        "`apps_compact` *random* chooses between beliefs, and solves more.",
        f"- {guard['mutations_caught']} of 500 rows changed, deleted or doubled after informed play fail a check; "
        f"{guard['escapes_refused']} of {guard['escapes']} programs that try to leave the sandbox or exhaust it change nothing; "
        f"{guard['hostile_calls']:,} hostile calls raise nothing but the site's own errors. One core makes "
        f"{fast['calls_per_s']:,} calls a second.",
        "",
        "## What a tiny policy learns",
        "",
        *LEARNED.format(budget=results["learned"]["budget"]).splitlines(),
        "",
    ]
    head = [
        "training",
        "seeds",
        "solved",
        "random",
        "warm start, at its best T",
        "trained",
        "trained less it",
        "seeds above both",
    ]
    rows = [row for name, seeds in runs.items() if seeds for row in _solved(name, list(seeds.values()))]
    lines += [table([*head, "blanked"], rows), ""]
    lines += [f"- {name}, {_ends(list(seeds.values()))}" for name, seeds in runs.items() if seeds]
    lines += ["", READING.strip(), ""]
    lines += [*CODE.strip().splitlines(), "", table(CODE_HEAD, list(_of_code(results["code_model"]))), ""]
    less = results["code_model"]["24"]["warm_start_t0.0"]["trained_less"]
    loop = "{:+.2f} [{:.2f}, {:.2f}]".format(*(round(one, 2) + 0.0 for one in less))
    lines += [*CODE_READING.strip().format(at_size=results["code"], loop=loop).splitlines(), ""]
    return "\n".join([*lines, "## Limits", "", LIMITS.strip(), ""])


def _of_code(runs: dict[str, Any]) -> Iterator[list[str]]:
    for tasks, policies in sorted(runs.items(), key=lambda one: int(one[0])):
        for policy, label in CODE_POLICIES.items():
            if (of := policies.get(policy)) is not None:
                share = "{:.2f} [{:.2f}, {:.2f}]".format(*of["tgc"])
                kinds = ["{} of {}".format(*of["kinds"][kind]) for kind in CODE_KINDS]
                yield [tasks, label, share, "{} of {}".format(*of["sgc"]), *kinds]


def _solved(name: str, runs: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """A row for tasks and one for whole packs, beside the warm start at the temperature at which it solves most of them."""
    for label, shares in (
        ("tasks (TGC)", [{key: mean(curve) for key, curve in run["curves"].items()} for run in runs]),
        ("packs (SGC)", [run["whole"] for run in runs]),
    ):
        starts = [key for key in shares[0] if re.fullmatch(r"warm_start(_t[\d.]+)?", key)]
        best = max(starts, key=lambda key: mean(one[key] for one in shares))
        found = {key: [one[key] for one in shares] for key in ("random", best, "trained", "blanked_context")}
        less = [one - start for one, start in zip(found["trained"], found[best], strict=True)]
        both = [
            min(trained - guessed, apart) > 0
            for trained, guessed, apart in zip(found["trained"], found["random"], less, strict=True)
        ]
        heat = best.removeprefix("warm_start").removeprefix("_t") or "1"
        cells = [
            f"{mean(found['random']):.3f}",
            f"{interval(found[best])}, T={heat}",
            interval(found["trained"]),
            interval(less),
            f"{sum(both)} of {len(both)}",
        ]
        yield [name, str(len(runs)), label, *cells, interval(found["blanked_context"])]


def _ends(runs: Sequence[dict[str, Any]]) -> str:
    """What training did to pass@K and entropy."""
    said = ", ".join(f"{name} {first_to_late(runs, name)}" for name in ("pass@1", "pass@8", "entropy"))
    return f"first update to last quarter of the training: {said} nats a token"


ABOUT = """
**Is the world of apps solvable, not guessable and safe, and do contexts pay in it?** Twelve apps, 136 calls, 40 kinds of tasks over
a person's mail, calendar and money; hidden are quirks of the site and habits of the person ([the world](../worlds.md)).

    PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json

All positions, rewards, temperatures and arguments are in [apps.json](apps.json).
"""
REFERENCES = """
Success in 250 packs of 4 of the test split, by [players](references.md) without a model; *oracle* solves all. A context can be
worth *scripted* less *memoryless*.
"""
LEARNED = """
`apps_compact`: five habits, a word for each, carried out by a scripted plan of calls; 0.2 million parameters, {budget:,} sampled
tokens, 1,024 held-out packs of 4 tasks, temperature 1. TGC and SGC are AppWorld's: the shares of tasks solved, and of packs solved
whole. Means with 95 % intervals over seeds (Student's t). *Blanked*: with the context hidden.
""".strip()
READING = """
**LOOP ends above random and not above its warm start at its best temperature**, in three seeds of three. It becomes surer of what
it did before: more first tries succeed, no more tasks are solved by any of eight, and entropy falls.
"""
CODE_KINDS = ("new_todo", "contact_moves")
CODE_HEAD = ["demonstrated tasks", "policy", "tasks (TGC)", "packs (SGC)", *(f"`{kind}`" for kind in CODE_KINDS)]
CODE_POLICIES = {
    "warm_start_t0.0": "warm start, T=0",
    "warm_start_t0.3": "warm start, T=0.3",
    "warm_start": "warm start, T=1",
    "trained": "after LOOP, T=1",
    "trained_t0.0": "after LOOP, T=0",
}
CODE = """
## A language model that writes code

**Does SmolLM2-135M-Instruct solve tasks by code, and what does reward add?** After 56 demonstrated tasks it solves nearly all of
this small setting; untrained it solved none of 12, and no answer was well-formed.

    python -m cod_lightning fit --config examples/studies/apps_code.yaml --warm_start.num_updates 6 \\
        --trainer.default_root_dir runs/code/24
    PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json --page_only --code runs/code/24

Two kinds of tasks that need no habit, no quirks, no contexts; SmolLM2 writes every call, with passwords, tokens and ids that differ
in every task. 12 packs of 3 test tasks, one seed, intervals over packs; random calls solve none, informed play all. An update of
the warm start has 4 demonstrated tasks. LOOP: 16 updates, four rollouts of 8 tasks with six tries each.
"""
CODE_READING = """
- **It writes code**: `user.passwords()`, `contacts.login(password='k9ggkmwe')`, `contacts.search(label='neighbour',
  token='contacts-8733')`, `contacts.update(id=16, city='Graz', token='contacts-8733')`, `user.done()`.
- **What fails is copying**: for a partner it searched for `paternal`, for the password `ssmc2sxv` it gave `smc2sxv`; once wrong it
  invents ids and ends.
- **LOOP makes sure of what is sampled now and then, and finds nothing else.** Of its tries at `new_todo` .29 succeed in the first
  rollout, .75 in the fourth; of 114 at `contact_moves` one does, so that siblings hardly ever differ. At T=1 it solves three times
  as many tasks as before, and no more than the warm start does at T=0 (less it {loop}).
- At LOOP's setting (`experiment/loop_apps_8b`) a task takes {at_size[turns]:.1f} turns, of whose {at_size[whole]:,.0f} letters the
  player writes {at_size[written]:,.0f}; {at_size[new]:.0%} of its words are in no earlier demonstration.
"""
LIMITS = """
- The tiny policy chooses beliefs, not calls: a scripted plan carries a word out through the same calls and checks.
- A model as the user is not measured.
"""
