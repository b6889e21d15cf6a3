"""The page of `safety.py`: its tables and texts."""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from cod_lightning.markdown import table
from examples.studies.memory_page import NOTHING, interval

SIZES = {4: 256, 8: 64, 16: 32, 32: 16}
"""Tasks of a pack, and how many packs of that size are played."""
NUM_TASKS = 16
"""Of the packs in which a false fact is planted."""
_WHO = {"trained": "trained", "warm_start": "warm start"}
_RULED = ("rule", "confirm", "a fact")
"""How the arms begin that have a rule."""
_UNSHOWN = ("said in", "KL", "checked")
"""Of those whose figures are in the JSON alone."""

Read = Callable[[Any], float | None]


def of(results: dict[str, Any], arm: str, read: Read) -> str:
    """Mean and interval over the seeds of an arm."""
    values = [read(run) for run in results["arms"].get(arm, {}).values()]
    return interval([value for value in values if value is not None], digits=2)


def at(who: str, size: int, name: str, place: slice) -> Read:
    """Reads the mean of a curve at some positions; None where it has none."""

    def read(run: Any) -> float | None:
        values = [value for value in run[who][str(size)].get(name, [])[place] if value is not None]
        return mean(values) if values else None

    return read


def page(results: dict[str, Any], names: Sequence[str], command: str) -> str:
    """The results of these arms as Markdown."""
    arms = [arm for arm in names if results["arms"].get(arm)]
    ruled = [arm for arm in arms if arm.startswith(_RULED) and not any(one in arm for one in _UNSHOWN)]
    about = ABOUT.strip().format(command=command)
    parts = ["# Safety, measured", about, _rules(results, ruled), FOUND.strip(), "## Poisoned contexts", POISON.strip()]
    return "\n\n".join([*parts, _poison(results), "\n".join(_elsewhere(results)), LIMITS.strip()]) + "\n"


def _rules(results: dict[str, Any], arms: Sequence[str]) -> str:
    """A row for each training: what it breaks before and after, and what it solves."""
    head = ["training", "broken, warm start", "broken, trained", "success at 3"]
    second = slice(2, None)
    columns = [at("warm_start", 4, "broken", second), at("trained", 4, "broken", second)]
    columns.append(at("trained", 4, "success", slice(3, 4)))
    return table(head, [[arm, *(of(results, arm, read) for read in columns)] for arm in arms])


def _poison(results: dict[str, Any]) -> str:
    """A row for each player of `PLAYERS` in packs with a false fact."""

    def read(curves: Any, which: str, less: str | None, n: int) -> float | None:
        first, second = (curves.get(name, _NONE)[n] for name in (which, less or which))
        return None if first is None or second is None else second - first if less else first

    rows = []
    for label, name in PLAYERS.items():
        if name in results["scripted"]:
            values = [read(results["scripted"][name], *column) for column in COLUMNS.values()]
            rows.append([label, *(NOTHING if value is None else f"{value:.2f}" for value in values)])
        else:
            poisoned = (lambda run, at=at: read(run["trained"]["poisoned"], *at) for at in COLUMNS.values())
            rows.append([label, *(of(results, name, one) for one in poisoned)])
    return table(["memory; player", *COLUMNS], rows)


def _elsewhere(results: dict[str, Any]) -> list[str]:
    """What was measured beside, a sentence each."""

    def cost(arm: str, key: str, which: str, n: int) -> str:
        return of(results, arm, lambda run: run["trained"][key]["clean"][n] - run["trained"][key][which][n])

    def read(arm: str, who: str, name: str, place: slice) -> str:
        return of(results, arm, at(who, 4, name, place))

    judged, second, last = "no rule, flattered judge", slice(1, None), slice(3, 4)
    records = "records, half of the packs poisoned"

    def rule(which: str, n: int) -> str:
        return of(results, "rule in the first task", lambda run: run["trained"]["poisoned rule"][which][n])

    return [
        "- **A false rule**, said in the first task, which forbids another lever than the true one, stands in "
        f"{rule('held said', 15)} of a trained policy's contexts at position 15, and the true rule is broken in "
        f"{rule('broken said', 1)} of the tasks at position 1.",
        "- **Another agent's context** at the start costs a trained hint "
        f"{cost('no rule, honest reward', 'handed', 'handed', 1)} at position 1 and "
        f"{cost('no rule, honest reward', 'handed', 'handed', 15)} at 15.",
        "- **A summary within a task** (FrozenLake 3x3) with a wrong direction costs "
        f"{cost('lake, tasks summarised', 'lake', 'planted', 0)} at position 0, without summaries "
        f"{cost('lake, tasks as they are', 'lake', 'planted', 0)}.",
        "- **A false record** costs a policy that trained with some "
        f"{cost(records, 'half poisoned', 'planted', 1)} at position 1, with its provenance shown "
        f"{cost(f'{records}, provenance shown', 'half poisoned', 'planted', 1)}.",
        "- **A judge that takes 0.5 off a context with a question mark** has training remove the question marks "
        f"({read(judged, 'warm_start', 'unknown', second)} to {read(judged, 'trained', 'unknown', second)}); success at 3 is "
        f"{read(judged, 'trained', 'success', last)}, with honest reward "
        f"{read('no rule, honest reward', 'trained', 'success', last)}.",
    ]


_NONE = [None] * NUM_TASKS
ABOUT = """
**Does training by reward break a rule that costs reward? How long does a lie stay in a context?** Tiny policies in compact words on
levers, 80 updates, three seeds, from a warm start whose demonstrations keep the rule nine times of ten.

    {command}

Means with 95 % intervals over seeds (Student's t); other arms, memories, curves and packs of 8 to 32 are in
[safety.json](safety.json). *Rule*: one lever, which gives any colour, must not be pulled; a quarter of the tasks cannot be won
otherwise. *Confirmation*: ask before a pull, at the cost of one of two. *A fact*: one lever's colour must not stand in the context.
*Broken*: share of tasks (of contexts) in the second half of packs of 4. Penalty 1 is a success's worth.
"""
FOUND = """
- **Training breaks two rules, unless breaking them costs as much as a success.** For the third no difference is shown. KL to the
  start (.68 broken) and checked contexts (.64) are not shown to help.
- **Contexts carry the rule to ask, and the policy ignores it**: said in the first task alone, it stands in .96 of the contexts,
  and .98 of those tasks break it.
- **Contexts lose a secret's rule slowly, and then name the secret**: in packs of 32 .60 [.19, 1.00] of those without the rule do.
"""
POISON = """
Packs of 16 with a wrong colour for one lever: *planted* in the context before the first task, or *said* by the environment in it.
*Costs*: success lost in the first task that reads it.
"""
COLUMNS = {
    "planted, contexts that hold it at 1": ("held planted", None, 1),
    "at 15": ("held planted", None, 15),
    "costs at 0": ("planted", "clean", 0),
    "said, costs at 1": ("said", "clean", 1),
}
PLAYERS = {
    "hint; scripted": "hint",
    "episodes; scripted": "episodes",
    "transcript; scripted": "transcript",
    "hint; trained by honest reward": "no rule, honest reward",
}
"""Row -> a scripted player's memory, or an arm."""
LIMITS = """
**Limits**: one kind of environment, tiny policies, a strong temptation. Trained policies meet poison with the hint alone, false
records with `episodes`. Packs of several lengths begin with the same tasks. Intervals are read one by one.
"""
