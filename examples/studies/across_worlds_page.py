"""The page of `across_worlds.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from cod_lightning.evaluation.crossed import crossed_estimate, holm
from cod_lightning.markdown import table
from examples.studies.generalisation import Cells, interval, transfers

COMMAND = "PYTHONPATH=. python examples/studies/across_worlds.py --out docs/results/across_worlds.json"
WORLDS = {
    "lake 3x3": "frozen_lake_3x3",
    "lake 4x4": "frozen_lake_3x3",
    "levers": "levers",
    "doors": "doors",
    "alchemy": "alchemy_compact",
    "apps": "apps_compact",
    "terminal": "terminal_compact",
    "clinic": "learn2ask_compact",
    "control": "control_compact",
    "pde": "pde_compact",
}
"""Our names of compact worlds, and the files of `configs/env`; `across_worlds.CHANGED` changes one. In grid every sensible policy
succeeds."""
ELSEWHERE = ("doors", "lake 3x3")
"""Worlds whose policies are taught a world that was left out, beside that of all the others."""
NEW = ", new words"
"""Ends the name of a policy whose embeddings of words that it never met are random again."""
NUM_TASKS = 4
FEW = (100, 300)
"""Numbers of updates, of three demonstrated packs each, by which a world that was left out is taught."""
CONDITIONS = {"own": "trained", "own_blanked": "blanked_context"}
"""Our name of a condition -> its name in a folder's outcomes."""
Rules = dict[str, list[str]]
"""World -> what each of its packs hides."""
Words = dict[str, dict[str, dict[str, list[float]]]]
"""Name of a cell -> seed -> world tested -> share of turns, and of words of notes, that are in that world's words; how alike
those of its words are that training never had, all its words where there are none."""


def all_but(world: str) -> str:
    """The name of the cell that is trained on all others."""
    return f"all but {world}"


def after(world: str, updates: int, before: str = "") -> str:
    """The name of the cell in which a world is taught, to the policy of the cell `before` or to random weights."""
    return f"few_{updates}-{world}-{before}"


def begins(world: str) -> list[str]:
    """The cells whose policies are taught a world, as they are and with new words; the empty name for random weights."""
    trained = [all_but(world), *(one for one in ELSEWHERE if one != world)]
    return ["", *(name for one in trained for name in (one, one + NEW))]


def paired(cells: dict[str, dict[str, Any]], world: str) -> Float[np.ndarray, "S P"]:
    """Gain from the first task to the last of every seed and pack, less that of the same policy with its contexts blanked."""
    of = [one[world] for one in cells.values()]
    return np.array([np.subtract(*(one[name][:, -1] - one[name][:, 0] for name in CONDITIONS)) for one in of])


def curves(cells: dict[str, dict[str, Any]], world: str, condition: str) -> Float[np.ndarray, "S P N"]:
    """Success of every seed, pack and position."""
    return np.array([one[world][condition] for one in cells.values()])


def solved(cells: dict[str, dict[str, Any]], world: str) -> bool:
    """Whether any task was, under any condition."""
    return any(curves(cells, world, condition).any() for condition in CONDITIONS)


def matrix(results: Cells, names: Sequence[str], rules: Rules) -> tuple[str, int]:
    """A row for each cell: transfer in the world that it is named after, and elsewhere where its interval leaves out 0; `†` marks
    what Holm's correction leaves of all pairs, whose number comes second."""
    found = {
        (name, one): transfers(results[name], one, "own")
        for name in names
        for one in WORLDS
        if solved(results[name], one)
    }
    every = {pair: crossed_estimate(values, rules[pair[1]]) for pair, values in found.items()}
    left = holm({" -> ".join(pair): one.p_value for pair, one in every.items()})
    cells = {
        pair: interval(values, rules[pair[1]]) + "†" * (" -> ".join(pair) in left) for pair, values in found.items()
    }
    rows: list[list[str]] = []
    for name in names:
        world = name.removeprefix("all but ")
        shown = [one for one in WORLDS if one != world and (name, one) in every and every[name, one].low > 0]
        elsewhere = "; ".join(f"{one} {cells[name, one]}" for one in shown)
        rows.append([name, str(len(results[name])), cells.get((name, world), "none"), elsewhere])
    return table(["trained on", "seeds", "transfer there", "elsewhere, where shown"], rows), len(found)


def lessons(results: Cells, rules: Rules) -> str:
    """What few demonstrations make of a policy of other worlds, and of random weights: success in the last task, several seeds."""
    rows: list[list[str]] = []
    for world in WORLDS:
        new = results.get(after(world, FEW[-1]), {})
        for before in begins(world):
            cells = results.get(after(world, FEW[-1], before), {})
            if len(cells) < 2:
                continue
            last = {seed: one[world]["own"][:, -1] for seed, one in cells.items()}
            seeds = [seed for seed in last if before and seed in new]
            less = [last[seed] - new[seed][world]["own"][:, -1] for seed in seeds]
            cell = interval(np.array(list(last.values())), rules[world])
            against = interval(np.array(less), rules[world]) if less else ""
            rows.append([world, before or "random weights", str(len(cells)), cell, against])
    return table(["taught", "before", "seeds", "success in the last task", "less random weights"], rows)


def page(results: Cells, rules: Rules) -> str:
    """The results as Markdown."""
    names = [one for one in (*WORLDS, *map(all_but, WORLDS)) if one in results]
    transferred, num_pairs = matrix(results, names, rules)
    about = ABOUT.strip().format(command=COMMAND, num_pairs=num_pairs)
    lines = ["# Trained in one world, tested in another", "", *about.splitlines(), ""]
    lines += [transferred, "", *SEEN.strip().splitlines(), ""]
    lines += ["## A few demonstrations of the world left out", "", *TAUGHT.strip().splitlines(), ""]
    return "\n".join([*lines, lessons(results, rules), "", *LEARNT.strip().splitlines(), "", LIMITS.strip(), ""])


ABOUT = """
**Does a policy trained in one world use its contexts in another?** Ten worlds in compact words, one vocabulary; a
policy of 0.2 million parameters gets a short warm start and 20 rollouts of 256 lifecycles in one of them, or in all but one,
then plays 256 held-out packs of 4 of each (8 to 256 hidden rules) at T=1.

    {command}

*Transfer*: success in tasks 1 to 3, less that with contexts blanked, with 95 % intervals over seeds and rules (one seed: rules).
*None*: no task was solved. †: left by Holm's correction for {num_pairs} pairs. [All](across_worlds.json).
"""
SEEN = """
- **Each world is learnt where it is trained, nine of ten over three seeds**; in pde seeds differ too much.
- **It carries over between worlds that share their words.** In the 88 other pairs no task is solved: answers are in the words of
  the policy's own world.
- **Words never trained become one word**: their mean cosine is .96 to .99, that of trained words -.01 to .37. The embeddings are
  the output layer, and training pushes all unseen words the same way.
- **Nine worlds do not help with the tenth.**
"""
TAUGHT = """
Policies trained without levers, and random weights, get 900 demonstrated packs of levers and play levers at T=0.3. *New words*:
before that, the embeddings of words that the policy never met are random again.
"""
LEARNT = """
Training elsewhere makes levers (and, with one seed, alchemy) harder to learn; with new words the nine worlds neither hinder nor
help. Where words are no obstacle, looking up and noting carry over ([carry-over](generalisation.md), [a habit](habit.md)).
"""
LIMITS = """
**Limits.** Not measured: all but each of the other seven worlds, longer training, larger policies. Compact alchemy, apps and
terminal held out rules in tests ([splits](splits.md)).
"""
