"""Does connecting the dots carry over to domains never trained on? Success in them against the number of kinds trained on.

    PYTHONPATH=. python examples/studies/generalisation.py --out docs/results/generalisation.json
        [--kinds 1 4 16] [--half] [--seeds 1 2 3] [--page_only]

Each cell warm-starts a policy on the first so many of the sixteen kinds of `env/invented`, with as many demonstrated packs
whatever the number of kinds, and tests it; then it trains it by reinforcement learning (`fit --config experiment/invented`) and
tests it again. Cells are kept under `--runs`: one that was stopped goes on, a finished one is skipped; cells that the folder lacks
stay in the JSON as they were. `--page_only` trains nothing.
"""

import argparse
import copy
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import yaml
from jaxtyping import Float

from cod_lightning.envs.invented.kinds import MOST_HELD_OUT
from cod_lightning.evaluation.crossed import crossed_estimate, seed_estimate
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.evaluation.view import with_interval
from cod_lightning.markdown import table
from examples.studies.looks_up import looked_up

SHIPPED = yaml.safe_load(Path("configs/experiment/invented.yaml").read_text())
KINDS = yaml.safe_load(Path("configs/env/invented.yaml").read_text())["init_args"]["kinds"]
AN_EIGHTH = 256
"""Names held out, beside 1,792 for training."""
HALF_CELL = "16-half"


def suites(held_out: int = AN_EIGHTH) -> list[dict[str, Any]]:
    """The shipped ones, with so many names held out."""
    shipped = copy.deepcopy(SHIPPED["data"]["suites"])
    for one in shipped:
        if "env" in one:
            one["env"]["init_args"]["held_out"] = held_out
    return shipped


COMMON = suites()[2:]
"""The suites that are the same for every number of kinds."""
SUITES = {
    "own": "new packs of the kinds trained on",
    "words": "the same kinds in unseen words",
    "sixteen": "all sixteen kinds in unseen words",
    "sizes": "unseen sizes in unseen words",
    "order": "unseen family order in unseen words",
    "threshold": "unseen family threshold in unseen words",
    "offset": "unseen family offset in unseen words",
}
NAMES = {
    "warm": "warm start, T=0.3",
    "warm_blanked": "the same, context blanked",
    "warm_hot": "warm start, T=1",
    "trained": "then trained, T=1",
    "trained_blanked": "the same, context blanked",
    "scripted": "scripted player",
}
PLAYED = {
    "warm": {
        "warm": "trained",
        "warm_blanked": "blanked_context",
        "warm_hot": "warm_start_t1.0",
        "scripted": "scripted",
    },
    "run": {"trained": "trained", "trained_blanked": "blanked_context"},
}
"""Folder of a cell -> our name of a condition -> its name in the folder's outcomes."""
SHOWN = {name: NAMES[name] for name in ("warm", "trained")}
COMMAND = "PYTHONPATH=. python examples/studies/generalisation.py --half --out docs/results/generalisation.json"
LAST = "report.html"
"""What a finished test or training writes last; outcomes of its trained policy are there before those of its warm start."""
Cells = dict[str, dict[str, dict[str, dict[str, Float[np.ndarray, "P N"]]]]]
"""Name of a cell (its number of kinds, or `1-trajectory`) -> seed -> suite -> condition -> success by pack and position."""


@dataclass(frozen=True)
class Variant:
    """What a cell has otherwise than the cell with as many kinds."""

    kinds: int
    groups: tuple[str, ...] = ()
    """Config groups that its training chooses."""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Sizes of its policy, which then has a warm start of its own."""
    only: str = ""
    """The kind that it trains on, in place of the first so many."""
    teacher: dict[str, float] = field(default_factory=dict[str, float])
    """Dials of its demonstrations; a warm start of its own, too."""
    held_out: int = AN_EIGHTH
    """How many names its policy never meets before it is tested on them."""
    about: str = ""
    """What pages say of it."""


HALVED = Variant(16, held_out=MOST_HELD_OUT)


def cell(name: str, of: Variant, seed: int, runs: Path, experiment: str, demonstrated: int | None = None) -> None:
    """Test one warm start, at T=0.3 and T=1, and what reinforcement learning makes of it; each from where it was stopped.

    The warm start before sees `demonstrated` kinds (default: those trained on).
    """
    folder = runs / f"{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    teacher = {"teacher": of.teacher} if of.teacher else {}
    kinds = [of.only] if of.only else KINDS[: of.kinds]
    env = {"env": {"init_args": {"kinds": kinds, "held_out": of.held_out} | teacher}}
    shown = {"env": {"kinds": KINDS[: demonstrated or of.kinds]}}
    model = {"model": {"policy": {"init_args": of.sizes}}} if of.sizes else {}
    cooler = [one | {"temperature": 0.3, "warm_start_temperatures": [1.0]} for one in suites(of.held_out)]
    for part, command, groups, tests in (("warm", "test", (), cooler), ("run", "fit", of.groups, suites(of.held_out))):
        if (folder / part / LAST).is_file():
            continue
        config = folder / f"{part}.yaml"
        data = env | {"suites": tests}
        config.write_text(yaml.safe_dump({"warm_start": shown, "data": data} | model))
        argv = [
            sys.executable,
            "-m",
            "cod_lightning",
            command,
            "--config",
            experiment,
            "--config",
            str(config),
            *groups,
        ]
        argv += ["--seed_everything", str(seed), "--torch_threads", "1"]
        argv += ["--trainer.default_root_dir", str(folder / part)]
        if (folder / part / "checkpoints" / "last.ckpt").is_file():
            argv += ["--ckpt_path", "last"]
        subprocess.run(argv, check=True)


def measured(runs: Path, names: Sequence[str], seeds: Sequence[int]) -> Cells:
    """The outcomes of every cell whose warm start is tested."""
    found: Cells = {}
    for name_of, seed, (folder, conditions) in product(names, seeds, PLAYED.items()):
        tested = runs / f"{name_of}-{seed}" / folder
        if (tested / LAST).is_file():
            of = found.setdefault(name_of, {}).setdefault(str(seed), {suite: {} for suite in SUITES})
            for suite, (name, key) in product(SUITES, conditions.items()):
                outcomes = read_packs(tested / "evaluation_packs.parquet", suite, key)
                assert outcomes is not None, f"{tested}: {suite} {key}"
                of[suite][name] = outcomes.success
    return found


def transfers(cells: dict[str, dict[str, dict[str, Any]]], suite: str, condition: str) -> Float[np.ndarray, "S P"]:
    """Of every seed and pack: success in the tasks after the first with the context shown, less the same with it blanked."""
    of = [one[suite] for one in cells.values() if condition in one[suite]]
    return np.array([one[condition][:, 1:].mean(1) - one[f"{condition}_blanked"][:, 1:].mean(1) for one in of])


def differences(results: Cells, suite: str, condition: str) -> Float[np.ndarray, "S P"]:
    """Transfer with the most kinds less that with the fewest, of the seeds that have both."""
    least, most = (results[of(results, key=int)] for of in (min, max))
    both = [seed for seed in most if all(condition in cells.get(seed, {}).get(suite, {}) for cells in (least, most))]
    found = [transfers({seed: cells[seed] for seed in both}, suite, condition) for cells in (most, least)]
    return found[0] - found[1]


def interval(values: Float[np.ndarray, "S P"], rules: Sequence[str] = ()) -> str:
    """Mean and 95 % interval over seeds and packs, or hidden rules with their packs."""
    if not len(values):
        return "not measured"
    one = crossed_estimate(values, rules)
    return with_interval(one.known, one.ci95)


def over_seeds(values: Sequence[float]) -> str:
    """Mean with Student's interval."""
    one = seed_estimate(np.array(values))
    return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]" if len(values) > 1 else f"{one.mean:.2f} (one seed)"


def plain(cells: Cells) -> Cells:
    """The cells in which an eighth of the names are held out."""
    return {name: one for name, one in cells.items() if name != HALF_CELL}


def page(cells: Cells) -> str:
    """The results as Markdown."""
    results = plain(cells)
    ceiling = looked_up(COMMON)
    least, most = (of(results, key=int) for of in (min, max))
    rows = [
        [
            title,
            *(interval(transfers(results[count], suite, "warm")) for count in (least, most)),
            interval(differences(results, suite, "warm")) if suite in ceiling else "",
            interval(transfers(results[most], suite, "trained")),
            f"{ceiling[suite]:.3f}" if suite in ceiling else "",
        ]
        for suite, title in SUITES.items()
    ]
    head = [
        "tested on",
        f"{least} kind",
        f"{most} kinds",
        "difference",
        f"{most} kinds, then trained, T=1",
        "only looks up",
    ]
    lines = [
        "# Does it carry over?",
        "",
        *ABOUT.strip().format(command=COMMAND).splitlines(),
        "",
        table(head, rows),
        "",
    ]
    lines += [*SEEN.strip().splitlines(), "", "![transfer by number of kinds](generalisation.svg)", ""]
    return "\n".join([*lines, "## Limits", "", LIMITS.strip(), ""])


def read(file: Path) -> dict[str, Any]:
    """What the JSON file of an earlier call holds."""
    return json.loads(file.read_text()) if file.is_file() else {"success": {}, "noted": {}, "samples": []}


def kept(old: dict[str, Any], found: Cells) -> Cells:
    """The cells as JSON has them, of which those found anew take the place of theirs."""
    both = parsed(old)
    for count, seeds in found.items():
        both.setdefault(count, {}).update(seeds)
    return {count: dict(sorted(both[count].items())) for count in sorted(both, key=_place)}


def parsed(old: dict[str, Any]) -> Cells:
    """The cells as JSON has them."""
    both: Cells = {}
    for count, seeds in old.items():
        for seed, suites in seeds.items():
            both.setdefault(count, {})[seed] = {
                suite: {name: unspelled(one) for name, one in cells.items()} for suite, cells in suites.items()
            }
    return both


def _place(name: str) -> tuple[int, str]:
    """Where a cell stands: by its number of kinds, variants behind."""
    count, _, variant = name.partition("-")
    return int(count), variant


def written(results: Cells) -> Any:
    """The cells in the form of JSON."""
    return {
        count: {
            seed: {suite: {name: spelled(one) for name, one in by_name.items()} for suite, by_name in suites.items()}
            for seed, suites in cells.items()
        }
        for count, cells in results.items()
    }


def spelled(success: Float[np.ndarray, "P N"]) -> str:
    """A word for each pack: 1 for a task that was solved, else 0."""
    return " ".join("".join(str(int(task)) for task in pack) for pack in success)


def unspelled(words: str) -> Float[np.ndarray, "P N"]:
    """What `spelled` wrote."""
    return np.array([list(map(float, pack)) for pack in words.split()])


def lives(file: Path, count: int) -> list[str]:
    """The first lifecycles of a suite as a table each."""
    lines: list[str] = []
    if not file.is_file():
        return lines
    for line in file.read_text().splitlines()[:count]:
        rows: list[list[str]] = []
        for episode in json.loads(line)["episodes"]:
            if episode["kind"] == "solve":
                asked = episode["turns"][0]["observation"]
                answer = " ".join(turn["response"] for turn in episode["turns"])
                rows.append(
                    [episode["context_before"] or "(none)", asked, answer.replace("|", ""), episode["feedback"]]
                )
        quoted = [[f"`{cell}`" for cell in row] for row in rows]
        lines += [table(["context", "task", "answer", "feedback"], quoted), ""]
    return lines


ABOUT = """
**Do contexts help in domains that training never saw?** A policy of 0.61 million parameters, warm-started on 10,000 packs of one,
four or sixteen kinds of [invented domains](../guides/invented_domains.md) (six families), then trained on 12 rollouts of 128
lifecycles, plays 96 packs of 4 of each suite; *unseen* words, sizes and families occur in no demonstration and no rollout.

    {command}

*Transfer*: success in tasks 1 to 3 with the policy's own contexts, less the same with contexts blanked. Warm starts at T=0.3 but in
one column; 95 % intervals over seeds and packs, three seeds a cell. *Only looks up* is the demonstrations' scripted player. Four
kinds, half of the names held out, positions and samples are in [generalisation.json](generalisation.json).
"""
SEEN = """
- **Looking things up carries over.** After sixteen kinds own contexts help in unseen words, in unseen sizes and in offset; in
  threshold and order no transfer is shown.
- **It is recall, not inference.** The policy comes near the player that only looks up; a player that infers solves every task of
  offset from the second on.
- **One kind is enough for most of the transfer to offset**; sixteen transfer more than one only to the sixteen themselves.
- **Reinforcement learning adds nothing that shows**: these demonstrations note every fact. From weak notes it adds what
  [carries over](habit.md).
"""
LIMITS = """
No trained policy is shown to be better than its warm start at its best temperature. The policy begins with induction heads; a start
without them is not measured. By family packs are few (7 to 24).
"""


def plot(results: Cells, file: Path) -> None:
    """Transfer against the number of kinds trained on, in every suite; means with 95 % intervals, and every seed."""
    figure, every = plt.subplots(2, 4, figsize=(12, 5.5), sharex=True, sharey=True, layout="constrained")
    for axes, (suite, title) in zip(every.flat, SUITES.items(), strict=False):
        for i, (condition, name) in enumerate(SHOWN.items()):
            found = {int(count): transfers(seeds, suite, condition) for count, seeds in results.items()}
            found = {count: values for count, values in found.items() if len(values)}
            at = np.array(list(found)) * 2 ** (0.2 * (i - 0.5))
            estimates = [crossed_estimate(values) for values in found.values()]
            spans = [(one.mean - one.low, one.high - one.mean) for one in estimates]
            means = [one.mean for one in estimates]
            axes.errorbar(at, means, yerr=np.array(spans).T, marker="o", capsize=3, label=name, color=f"C{i}")
            for x, values in zip(at, found.values(), strict=True):
                axes.plot([x] * len(values), values.mean(1), ".", color=f"C{i}", alpha=0.5)
        axes.axhline(0, color="grey", linewidth=0.5)
        axes.set_xscale("log", base=2)
        axes.set_title(title, fontsize="small")
        axes.set_xticks(list(map(int, results)), list(results))
    every[1, 3].axis("off")
    every[1, 3].legend(*every[0, 0].get_legend_handles_labels(), loc="center")
    figure.supxlabel("kinds trained on")
    figure.supylabel("success in tasks 1 to 3:\nown context less blanked context")
    figure.savefig(file)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/generalisation"))
    parser.add_argument("--kinds", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--half", action="store_true", help="Sixteen kinds with half of the names held out, too.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    cells = {str(count): Variant(count) for count in args.kinds} | ({HALF_CELL: HALVED} if args.half else {})
    if not args.page_only:
        for seed, (name, of) in product(args.seeds, cells.items()):
            cell(name, of, seed, args.runs, "experiment/invented")
    old = read(args.out)
    results = kept(old["success"], measured(args.runs, list(cells), args.seeds))
    tested = args.runs / f"{max(args.kinds, default=16)}-{args.seeds[0]}" / "warm"
    shown = lives(tested / "lifecycles" / "test_offset_trained.jsonl", 4) or old["samples"]
    args.out.write_text(json.dumps({"success": written(results), "samples": shown}, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(page(results))
    plot(plain(results), args.out.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
