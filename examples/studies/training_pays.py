"""Where training pays: trained policies beside their warm start at its best temperature, from the results that are there.

    PYTHONPATH=. python examples/studies/training_pays.py

It trains nothing: it reads `docs/results/*.json` and writes `docs/results/training_pays.md`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from cod_lightning.evaluation.crossed import seed_estimate
from cod_lightning.markdown import table

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
SOURCES = {
    "quick start (lake 3x3), 60 rollouts": "quickstart/runs/evaluation/suites/held_out",
    "uninformative demonstrations of levers, 200 rollouts": "uninformative/seeds/evaluation/suites/held_out",
    "levers, reward, 120 updates": "distillation/studies/A teacher that sees more/reward alone/held_out",
    "levers, a teacher of three times the tokens": "distillation/studies/Which divergence/reverse KL/held_out",
    "lake of two worlds, reward": "distillation/studies/Specialists into one student/specialist on lakes/lake",
    "alchemy of two worlds, reward": "distillation/studies/Specialists into one student/specialist on alchemy/alchemy",
    "apps, contexts, REC": "apps/learned/runs/REC, contexts/curves",
    "apps, contexts, LOOP": "apps/learned/runs/LOOP, contexts/curves",
    "apps, no contexts, LOOP": "apps/learned/runs/LOOP, per token/curves",
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
SHARPER = 0.06
"""What a lower temperature adds to success where it counts as sharpening."""

ABOUT = """# When training pays

**Does training add more than a lower temperature does?** Trained policies at temperature 1 beside the warm start that they began
with, at the temperature at which it does best, chosen on the same packs in its favour. Success, mean over positions and seeds;
brackets are 95 % intervals over seeds (Student's t), paired by seed and not corrected for their number.

    PYTHONPATH=. python examples/studies/training_pays.py
"""
READING = """
**Of {all} settings training ends above the warm start at its best in {above_all} and below in {below_all} (bold); in {none_all} no
difference is shown.** It ends above the warm start at T=1 in {above_hot}: a lower temperature gives much of that, too.

**Training gives more where a lower temperature gives little.** Where the best temperature adds less than {sharper} to T=1, training
ends above in {above_flat} of {flat} and below in {below_flat}; elsewhere above in {above_steep} of {steep} and below in
{below_steep}. Part of that is arithmetic: both columns have the warm start's best. A likely reason: a warm start that gains by a
low temperature answers rightly already and samples noisily; where its likeliest answers are wrong, no temperature helps.

**Length.** Hint on lake 3x3 gains nothing above T=0.3 in the memory study and .15 in the quick start, in the same world: a run that
ends no higher than T=0.3 may have ended early.

**Limits.** Three seeds (apps: five). The split of apps was against habits ([splits](splits.md)); why doors, compacting and constant
states end below is not shown. No result recorded entropy or pass@k: sharpening is read from temperatures alone.
"""


@dataclass(frozen=True)
class Setting:
    """Means over positions by seed."""

    trained: list[float]
    hot: list[float]
    """The warm start at temperature 1."""
    best: list[float]
    best_name: str

    @property
    def gained(self) -> list[float]:
        return [one - other for one, other in zip(self.trained, self.best, strict=True)]

    @property
    def sharper(self) -> float:
        """What the best temperature adds to temperature 1."""
        return mean(self.best) - mean(self.hot)


def curves(found: Any, way: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """The way without seeds, and success by condition: of an `evaluation.json`'s suite, or as a study wrote it."""
    if not isinstance(found, dict):
        return
    if "positions" in found and "controls" in found:
        every = {"trained": found["positions"], **found["controls"]}
        yield (
            "/".join(way),
            {name: [one["success"] for one in of] for name, of in every.items() if "warm" in name or name == "trained"},
        )
    elif "trained" in found and "warm_start" in found:
        yield "/".join(way), {name: solved(of) for name, of in found.items() if "warm" in name or name == "trained"}
    else:
        for key, inside in found.items():
            is_seed = str(key).removeprefix("seed ").isdecimal()
            yield from curves(inside, way if is_seed else (*way, str(key)))


def solved(of: Any) -> list[float]:
    """Success by position; texts have a digit a task, a word a pack."""
    return [mean(int(digit) for digit in of if digit.isdecimal())] if isinstance(of, str) else of


def settings() -> dict[str, Setting]:
    """Those of `SOURCES`."""
    every: dict[str, list[dict[str, float]]] = {}
    for name in dict.fromkeys(source.partition("/")[0] for source in SOURCES.values()):
        for way, of in curves(json.loads((RESULTS / f"{name}.json").read_text())):
            if f"{name}/{way}" not in SOURCES.values():
                continue
            means = {
                key: mean(values) for key, values in of.items() if key == "trained" or key.startswith("warm_start")
            }
            every.setdefault(f"{name}/{way}", []).append(means)
    made = {}
    for label, source in SOURCES.items():
        seeds = every[source]
        names = [name for name in seeds[0] if name.startswith("warm_start")]
        best = max(names, key=lambda name: mean(one[name] for one in seeds))
        hot = [one["warm_start"] for one in seeds]
        made[label] = Setting([one["trained"] for one in seeds], hot, [one[best] for one in seeds], best)
    return made


def page(found: dict[str, Setting]) -> str:
    """The page."""
    cells, verdicts = [], list[str]()
    named = sorted(found.items(), key=lambda item: -mean(item[1].gained))
    ordered = [one for _, one in named]
    for label, one in named:
        estimate = seed_estimate(np.array(one.gained))
        verdicts.append("above" if estimate.low > 0 else "below" if estimate.high < 0 else "no difference shown")
        temperature = one.best_name.removeprefix("warm_start_t").replace("warm_start", "1")
        gained = f"{estimate.mean:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]"
        bold = "" if verdicts[-1] == "no difference shown" else "**"
        best = f"{mean(one.best):.3f} (T={temperature})"
        cells.append([label, f"{mean(one.hot):.3f}", best, f"{mean(one.trained):.3f}", f"{bold}{gained}{bold}"])
    flat, steep = (
        [verdict for one, verdict in zip(ordered, verdicts, strict=True) if (one.sharper < SHARPER) == is_flat]
        for is_flat in (True, False)
    )
    head = ["setting", "warm start, T=1", "at its best T", "trained, T=1", "trained - best"]
    counts = {
        "all": len(found),
        "above_hot": sum(mean(one.trained) > mean(one.hot) for one in ordered),
        "sharper": SHARPER,
        **{
            f"{name}_{part}": of.count(verdict)
            for part, of in (("all", verdicts), ("flat", flat), ("steep", steep))
            for name, verdict in (("above", "above"), ("below", "below"), ("none", "no difference shown"))
        },
        "flat": len(flat),
        "steep": len(steep),
    }
    return f"{ABOUT}\n{table(head, cells)}\n{READING.format(**counts)}"


if __name__ == "__main__":
    (RESULTS / "training_pays.md").write_text(page(settings()))
