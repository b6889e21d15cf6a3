"""Where training pays: trained policies beside their warm start at its best temperature.

    PYTHONPATH=. python examples/studies/training_pays.py --runs runs/training_pays [--updates 75 ...] [--seeds 1 2 3] [--page_only]

It trains levers after warm starts cut short, `LENGTHS`, and writes `docs/results/training_pays.json`; all other settings it reads
from the other results. Finished runs are kept; runs that the folder lacks stay in the JSON. It writes `training_pays.md`.
"""

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from cod_lightning.evaluation.crossed import holm, seed_estimate
from cod_lightning.markdown import table
from examples.studies.signals import LAST, RESULTS, command, ends, finished, first_to_late, folder_of, interval

LENGTHS = (75, 600)
"""Updates of the warm starts; `smoke` has 600."""
COLD = 0.3
SUITES = [
    {
        "name": "held_out",
        "num_packs": 512,
        "controls": ["blanked_context"],
        "warm_start_temperatures": [0.0, COLD, 1.0],
    },
    {
        "name": "cold",
        "num_packs": 512,
        "controls": ["blanked_context"],
        "warm_start_temperatures": [],
        "temperature": COLD,
    },
]
SOURCES = {
    "135 million parameters, levers": "pretrained/cpu/held_out/success",
    "135 million parameters, doors": "pretrained_doors/doors/cpu/held_out/success",
    "vending machine, 120 rollouts": "quickstart/runs/vending machine/evaluation/suites/held_out",
    "quick start (lake 3x3), 60 rollouts": "quickstart/runs/evaluation/suites/held_out",
    "uninformative demonstrations of levers, 200 rollouts": "uninformative/seeds/evaluation/suites/held_out",
    "levers, reward, 120 updates": "distillation/studies/A teacher that sees more/reward alone/held_out",
    "levers, a teacher of three times the tokens": "distillation/studies/Which divergence/reverse KL/held_out",
    "lake of two worlds, reward": "distillation/studies/Specialists into one student/specialist on lakes/lake",
    "alchemy of two worlds, reward": "distillation/studies/Specialists into one student/specialist on alchemy/alchemy",
    **{f"levers, warm start of {n} updates": f"training_pays/levers, {n} updates/curves" for n in LENGTHS},
    "levers, the paper's regime": "regime/regime/curves",
    **{
        f"{label}, {name}": f"apps/{place}/runs/{name}/curves"
        for label, place in (("apps", "learned"), ("apps of three habits", "three_habits"))
        for name in ("REC, contexts", "LOOP, contexts", "LOOP, per token")
    },
    "TextWorld": "foreign_worlds/seeds/success",
    "levers in sentences": "sentences/worlds/levers/success",
    "lake in sentences": "sentences/worlds/lake/success",
    **{
        f"{label}, {mechanism}": f"memory/worlds/{world}/{mechanism}/curves/held_out"
        for label, world in (("levers", "levers"), ("lake 3x3", "frozen_lake_3x3"), ("doors", "doors"))
        for mechanism in ("hint", "notebook", "episodes", "transcript", "compacting", "constant_state")
    },
}
"""What is listed, and where: the file, then the way to it without seeds."""
ENDS = "pass@8", "entropy"
SHARPER = 0.06
"""What a lower temperature adds to success where it counts as sharpening."""

ABOUT = """# When training pays

**Does training add more than a lower temperature does?** Trained policies at temperature 1 beside the warm start that they began
with, at the temperature at which it does best, chosen on the same packs in its favour. Success, mean over positions and seeds;
brackets are 95 % intervals over seeds (Student's t), paired by seed. Rows are the settings with a difference; all come from
[other results](index.md), whose JSON `SOURCES` of the script names.

    PYTHONPATH=. python examples/studies/training_pays.py --runs runs/training_pays
"""
READING = """
**Of {all} settings training ends above the warm start at its best in {above_all} and below in {below_all}**; in {none_all} no
difference is shown. Holm's correction for all leaves: {holm}. Above the
warm start at T=1 training ends in {above_hot}: a lower temperature gives much of that, too.

**Training gives more where a lower temperature gives little.** Where the best temperature adds less than {sharper} to T=1, training
ends above in {above_flat} of {flat} and below in {below_flat}; elsewhere above in {above_steep} of {steep} and below in
{below_steep}. Part of that is arithmetic: both columns have the warm start's best. **A run may have ended early**: hint on lake
3x3 gains nothing above T=0.3 in the memory study and .15 in the longer quick start.
"""
CUT = """## Demonstrations cut short

Levers (`smoke`, 120 updates) after warm starts of 75 and of 600 updates; the trained policy also at T=0.3. *pass@8*, tasks that any
of a training pack's 8 lifecycles solves, and *entropy*, nats a token, are those of the first update and of the last quarter.
"""
CUT_READING = """
- **On levers training is more than a lower temperature**: played cold, too, the trained policy ends above the warm start at its
  best after both warm starts; at T=1 that is not shown after 600 updates.
- **What it strengthens can be sampled from the start**: one of eight lifecycles solves nearly every task before training, and
  fewer after it, as entropy falls.
- **A short warm start leaves only answers to strengthen**: after 75 updates contexts stay unused (.470 against .474 with the
  context hidden), after 600 they are worth .30.

**Limits.** Three seeds; apps of three habits five, whose split was against habits ([splits](splits.md)). Why doors, compacting and
constant states end below is not shown.
"""


@dataclass(frozen=True)
class Setting:
    """Means over positions by seed."""

    trained: list[float]
    hot: list[float]
    """The warm start at temperature 1."""
    best: list[float]
    best_name: str
    runs: list[dict[str, Any]]
    """With pass@K and entropy as `ends`; those that recorded none have none."""

    @property
    def gained(self) -> list[float]:
        return [one - other for one, other in zip(self.trained, self.best, strict=True)]

    @property
    def sharper(self) -> float:
        """What the best temperature adds to temperature 1."""
        return mean(self.best) - mean(self.hot)


def curves(
    found: Any, way: tuple[str, ...] = (), ends: Any = None
) -> Iterator[tuple[str, dict[str, list[Any]], dict[str, Any]]]:
    """The way without seeds, success by condition (of an `evaluation.json`'s suite, or as a study wrote it), pass@K and entropy."""
    if not isinstance(found, dict):
        return
    if "positions" in found and "controls" in found:
        every = {"trained": found["positions"], **found["controls"]}
        yield (
            "/".join(way),
            {name: [one["success"] for one in of] for name, of in every.items() if "warm" in name or name == "trained"},
            {},
        )
    elif "trained" in found and "warm_start" in found:
        by_condition = {name: solved(of) for name, of in found.items() if "warm" in name or name == "trained"}
        yield "/".join(way), by_condition, ends or {}
    else:
        for key, inside in found.items():
            seeded = re.fullmatch(r"(?:(.+), )?(?:seed )?\d+", str(key))
            steps = (str(key),) if seeded is None else filter(None, seeded.groups())
            yield from curves(inside, (*way, *steps), found.get("ends"))


def solved(of: Any) -> list[float]:
    """Success by position; texts have a digit a task, a word a pack."""
    return [mean(int(digit) for digit in of if digit.isdecimal())] if isinstance(of, str) else of


def settings() -> dict[str, Setting]:
    """Those of `SOURCES`."""
    every: dict[str, list[dict[str, Any]]] = {}
    for name in dict.fromkeys(source.partition("/")[0] for source in SOURCES.values()):
        for way, of, recorded in curves(json.loads((RESULTS / f"{name}.json").read_text())):
            if f"{name}/{way}" not in SOURCES.values():
                continue
            means = {
                key: mean(values) for key, values in of.items() if key == "trained" or key.startswith("warm_start")
            }
            every.setdefault(f"{name}/{way}", []).append(means | {"ends": recorded})
    made = {}
    for label, source in SOURCES.items():
        if not (seeds := every.get(source)):
            continue
        names = [
            name
            for name in seeds[0]
            if name.startswith("warm_start") and "blanked" not in name and all(name in one for one in seeds)
        ]
        best = max(names, key=lambda name: mean(one[name] for one in seeds))
        hot = [one["warm_start"] for one in seeds]
        made[label] = Setting([one["trained"] for one in seeds], hot, [one[best] for one in seeds], best, seeds)
    return made


def page(found: dict[str, Setting], runs: dict[str, Any]) -> str:
    """The page; `runs` are those of the warm starts cut short, by name and seed."""
    cells, verdicts, p_values = [], list[str](), dict[str, float]()
    named = sorted(found.items(), key=lambda item: -mean(item[1].gained))
    ordered = [one for _, one in named]
    for label, one in named:
        estimate = seed_estimate(np.array(one.gained))
        p_values[label] = estimate.p_value
        verdicts.append("above" if estimate.low > 0 else "below" if estimate.high < 0 else "no difference shown")
        if verdicts[-1] != "no difference shown":
            temperature = one.best_name.removeprefix("warm_start_t").replace("warm_start", "1")
            best = f"{mean(one.best):.3f} (T={temperature})"
            cells.append(
                [label, f"{mean(one.hot):.3f}", best, f"{mean(one.trained):.3f}", interval(one.gained, signed=True)]
            )
    flat, steep = (
        [verdict for one, verdict in zip(ordered, verdicts, strict=True) if (one.sharper < SHARPER) == is_flat]
        for is_flat in (True, False)
    )
    head = ["setting", "warm start, T=1", "at its best T", "trained, T=1", "trained - best"]
    counts = {
        "all": len(found),
        "above_hot": sum(seed_estimate(np.subtract(one.trained, one.hot)).low > 0 for one in ordered),
        "sharper": SHARPER,
        "holm": "; ".join(holm(p_values)) or "none",
        **{
            f"{name}_{part}": of.count(verdict)
            for part, of in (("all", verdicts), ("flat", flat), ("steep", steep))
            for name, verdict in (("above", "above"), ("below", "below"), ("none", "no difference shown"))
        },
        "flat": len(flat),
        "steep": len(steep),
    }
    return f"{ABOUT}\n{table(head, cells)}\n{READING.format(**counts)}\n{CUT}\n{_cut_short(runs)}\n{CUT_READING}"


def _cut_short(runs: dict[str, Any]) -> str:
    """Levers after warm starts of different lengths: trained hot and cold, less the warm start at its best temperature."""
    rows = []
    for name, seeds in runs.items():
        means = [{key: mean(curve) for key, curve in one["curves"].items()} for one in seeds.values()]
        starts = [key for key in means[0] if key.startswith("warm_start") and "blanked" not in key] if means else []
        best = max(starts, key=lambda key: mean(one[key] for one in means), default="")
        hot, cold = ([one[key] - one[best] for one in means] for key in ("trained", "cold"))
        cells = (
            [f"{mean(one[key] for one in means):.3f}" for key in ("warm_start", best, "trained", "cold")]
            if means
            else []
        )
        recorded = [first_to_late(seeds.values(), key) for key in ENDS]
        rows += (
            [[name, str(len(means)), *cells, interval(hot, signed=True), interval(cold, signed=True), *recorded]]
            if means
            else []
        )
    levels = ("T=1", "best T", "trained, T=1", f"trained, T={COLD}")
    head = ["warm start", "seeds", *levels, "hot - best", "cold - best", *ENDS]
    return table(head, rows)


def measured(folder: Path) -> dict[str, Any]:
    """A finished run: success by position and condition, pass@K and entropy."""
    suites = json.loads((folder / "evaluation.json").read_text())["suites"]
    curves = {"trained": suites["held_out"]["positions"], "cold": suites["cold"]["positions"]} | suites["held_out"][
        "controls"
    ]
    return {
        "curves": {name: [one["success"] for one in curve] for name, curve in curves.items()},
        "ends": ends(folder),
    }


def main() -> None:
    """Train what is missing, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--updates", type=int, nargs="+", default=list(LENGTHS), choices=LENGTHS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true", help="train nothing")
    options = parser.parse_args()
    root = options.runs.resolve()
    for seed, num in () if options.page_only else product(options.seeds, options.updates):
        if not (folder := folder_of(root, f"levers, {num} updates", seed)).joinpath(LAST).exists():
            folder.mkdir(parents=True, exist_ok=True)
            place = ["--trainer.default_root_dir", str(folder), "--seed_everything", str(seed), "--ckpt_path", "auto"]
            sizes = ["--warm_start.num_updates", str(num), "--data.suites", json.dumps(SUITES)]
            command(root, "fit", "--config", "smoke", *sizes, *place)
    path = RESULTS / "training_pays.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for num in LENGTHS:
        of = found.setdefault(f"levers, {num} updates", {})
        of.update((seed, measured(folder)) for seed, folder in finished(root, f"levers, {num} updates"))
    path.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "training_pays.md").write_text(page(settings(), found))


if __name__ == "__main__":
    main()
