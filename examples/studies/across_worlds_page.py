"""The page of `across_worlds.py`."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from cod_lightning.markdown import table
from examples.studies.generalisation import Cells, interval, transfers

COMMAND = "PYTHONPATH=. python examples/studies/across_worlds.py --out docs/results/across_worlds.json"
WORLDS = {
    "lake 3x3": "frozen_lake_3x3",
    "lake 4x4": "frozen_lake_4x4",
    "levers": "levers",
    "doors": "doors",
    "alchemy": "alchemy_compact",
    "apps": "apps_compact",
    "terminal": "terminal_compact",
    "clinic": "learn2ask_compact",
    "control": "control_compact",
    "pde": "pde_compact",
}
"""Our names of compact worlds, and the files of `configs/env` that they are. In grid every sensible policy succeeds."""
ELSEWHERE = ("doors", "lake 3x3")
"""Worlds whose policies are taught a world that was left out, beside that of all the others."""
NEW = ", new words"
"""Ends the name of a policy whose embeddings of words that it never met are random again."""
NUM_TASKS = 4
FEW = (100, 300)
"""Numbers of updates, of three demonstrated packs each, by which a world that was left out is taught."""
CONDITIONS = {"own": "trained", "own_blanked": "blanked_context"}
"""Our name of a condition -> its name in a folder's outcomes."""
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


def row(of: Float[np.ndarray, "S P N"]) -> list[str]:
    """Success by position, and the gain from the first to the last."""
    return [*(interval(of[:, :, n]) for n in range(NUM_TASKS)), interval(of[:, :, -1] - of[:, :, 0])]


def solved(cells: dict[str, dict[str, Any]], world: str) -> bool:
    """Whether any task was, under any condition."""
    return any(curves(cells, world, condition).any() for condition in CONDITIONS)


def matrix(results: Cells, names: Sequence[str], of_cells: Callable[[Any, str], Float[np.ndarray, "S P"]]) -> str:
    """A row for each cell, a column for each world tested."""
    rows: list[list[str]] = []
    for name in names:
        of = (interval(of_cells(results[name], one)) if solved(results[name], one) else "none" for one in WORLDS)
        rows.append([name, str(len(results[name])), *of])
    return table(["trained on", "seeds", *WORLDS], rows)


def by_position(results: Cells, names: Sequence[str], chance: dict[str, list[float]]) -> str:
    """Success by position wherever a task was solved."""
    rows: list[list[str]] = []
    for world in WORLDS:
        rows.append([world, "valid answers at random", "", *(f"{one:.3f}" for one in chance[world]), ""])
        for name in names:
            if solved(results[name], world):
                for condition, title in zip(CONDITIONS, ("own", "blanked"), strict=True):
                    rows.append(["", name, title, *row(curves(results[name], world, condition))])
    return table(["tested on", "trained on", "contexts", *map(str, range(NUM_TASKS)), "gain"], rows)


def figures(words: Words, names: Sequence[str], which: int) -> str:
    """A row for each cell, a column for each world tested: a figure of `Words`, mean over seeds."""
    of = [
        [name, *(f"{np.mean([one[to][which] for one in words[name].values()]):.2f}" for to in WORLDS)] for name in names
    ]
    return table(["trained on", *WORLDS], of)


def lessons(results: Cells) -> str:
    """What few demonstrations make of a policy of the other worlds, and of random weights."""
    rows: list[list[str]] = []
    for world, updates in product(WORLDS, FEW):
        new = results.get(after(world, updates), {})
        for before in begins(world):
            cells = results.get(after(world, updates, before), {})
            if cells:
                of = curves(cells, world, "own")
                title = before or "random weights"
                rows.append([world, str(3 * updates), title, str(len(cells)), *row(of), interval(paired(cells, world))])
            if before and (seeds := sorted(set(cells) & set(new))):
                known, other = ({seed: of[seed] for seed in seeds} for of in (cells, new))
                less = curves(known, world, "own") - curves(other, world, "own")
                gains = paired(known, world) - paired(other, world)
                rows.append(["", "", "less random weights", str(len(seeds)), *row(less), interval(gains)])
    head = ["taught", "packs", "before", "seeds", *map(str, range(NUM_TASKS)), "gain", "less blanked"]
    return table(head, rows)


def page(results: Cells, words: Words, chance: dict[str, list[float]], samples: Sequence[str]) -> str:
    """The results as Markdown."""
    alone, mixed = ([one for one in names if one in results] for names in (WORLDS, map(all_but, WORLDS)))
    both = [*alone, *mixed]
    lines = ["# Trained in one world, tested in another", "", f"`{COMMAND}` writes this page.", ""]
    lines += [*ABOUT.strip().splitlines(), "", *SEEN.strip().splitlines(), ""]
    lines += ["## Gain, less that with blanked contexts", "", matrix(results, both, paired), ""]
    shown = matrix(results, both, partial(transfers, condition="own"))
    lines += ["## Success in tasks 1 to 3, less that with blanked contexts", "", shown, ""]
    lines += ["## Success by position", "", *POSITIONS.strip().splitlines(), "", by_position(results, both, chance), ""]
    lines += ["## Turns in the words of the world tested", "", figures(words, both, 0), ""]
    lines += ["## Words of notes that are words of the world tested", "", figures(words, both, 1), ""]
    lines += [
        "## How alike its words are to the policy",
        "",
        *ALIKE.strip().splitlines(),
        "",
        figures(words, both, 2),
        "",
    ]
    lines += [
        "## A few demonstrations of the world left out",
        "",
        *TAUGHT.strip().splitlines(),
        "",
        lessons(results),
        "",
    ]
    return "\n".join([*lines, "## Samples", "", *SAMPLES.strip().splitlines(), "", *samples])


ABOUT = """
Ten worlds in compact words, one vocabulary of them all, and one world at a time to train on: a short warm start on its
demonstrations (800 updates of three packs), then 20 rollouts of 256 lifecycles. Every policy (0.2 million parameters) then plays
256 held-out packs of 4 of each of the ten at T=1, without further training. *All but* a world: 1,000 updates of six packs of
the nine others, then as many rollouts. *Gain* is success in the last task less that in the first; the same policy with its
contexts blanked plays the same packs. Intervals (95 %) are over seeds and packs, with a single seed over packs alone. *None*:
not one task was solved. The world grid is left out: every sensible policy succeeds there.
Measured when the splits of compact alchemy, apps and terminal still held out rules, 8 to 31 in tests ([splits](splits.md)): their
packs are others now.
"""
SEEN = """
## What it shows

**Each world is learnt where it is trained, nine of ten over three seeds.** Contexts are worth .11 (doors) to .49 (control) of
success in tasks 1 to 3; in pde, .15 [-.02, .32], the seeds differ too much.

**Between worlds that share their words it carries over.** The words of lake 3x3 are among those of lake 4x4. Trained on 4x4,
contexts are worth .20 [.12, .27] on 3x3, after .23 [.18, .28] for a policy trained there. The other way round, where a quarter
of the words was never trained, they are worth .07 [.04, .09].

**Where words differ nothing does.** In the 88 other pairs not one task of 256 packs is solved by any of three seeds, far less
than by valid answers at random. The policy answers in the words of its own world, and all is malformed: hardly a turn in a
hundred is in those of the world tested, and feedback then has nothing to note. Notes hold words of the other world only where
both have them: .76 of the words for levers in doors (`1=gold`), .23 to .61 between levers and lakes (`1=?`), all of them made
up.

**Words that training never has become one word.** The mean cosine between the embeddings of different words of a world that was
never trained on is .96 to .99, that of words trained on -.01 to .21 after one world and .07 to .37 after nine: the embeddings are
the output layer too, and training pushes all words that it never has the same way, until nothing tells them apart.

**Training on nine worlds is no help with the tenth.** In levers all but levers solve one task of 3,072 (three seeds), in
alchemy all but alchemy none (one seed); in lake 3x3, whose words lake 4x4 has, contexts are worth nothing after all but lake
3x3 (one seed). Nine worlds in so short a training are also less well learnt: after all but levers contexts are worth something
in control, .48 [.45, .50], and nothing that shows in the eight others.

**So training elsewhere makes a world harder to learn, much of it for that reason.** From 900 demonstrated packs of levers, each
shown once, random weights come to .75 in the last task, those of all but levers, doors and lake 3x3 to .47, .47 and .40: .28
[.05, .51], .28 [.12, .45] and .35 [.19, .51] less (three seeds). One thing taken away, with random embeddings again for the
words that they never met, the policy of all but levers comes to .75, -.01 [-.21, .20] from random weights: what was trained on
nine worlds is then no hindrance that shows, nor a help. Those of doors and lake 3x3 come back to .64 and .60. In alchemy it is
likewise (one seed): .66 for random weights, .41, .41 and .42, and with new words .68, .58 and .61; of doors -.08 [-.14, -.01]
is left there, and no start is shown to use its contexts. In lake 3x3, whose words are
known from 4x4, nine other worlds do help: .37 in the last task, .18 [.11, .25] more than random weights (one seed). With 300
packs hardly any start uses its contexts.

**Where words are no obstacle**, looking things up and the habit of noting carry over: [carry-over](generalisation.md), [a
habit](habit.md). There the embeddings stay the random vectors that they begin as, and the policy begins as a copier.

The column *seeds* says how many there are; with two the intervals are very wide where seeds differ at all. Not measured: all but
each of the other seven worlds, longer training, a mixture in which all nine are learnt well.
"""
POSITIONS = """
Pairs in which no task was solved are left out. Gains are from the first task to the last.
"""
ALIKE = """
Mean cosine between the embeddings of different words of the world tested, of those that training never had where there are any.
"""
TAUGHT = """
So many packs of a world are demonstrated, each once and nothing else, to policies that were trained without it and to one of random
weights; then they play it at T=0.3, where [warm starts](quickstart.md) do best. *New words*: before that, the embeddings of words
that the policy never met are random again. Differences are on the same packs; *less blanked* is the gain less that with blanked
contexts.
"""
SAMPLES = """
The first lifecycle of some pairs, seed 1.
"""
