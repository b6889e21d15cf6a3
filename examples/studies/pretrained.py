"""The page and the figure of the pretrained language model, from pretrained.json and what `make gpu PARTS=cod` left in gpu.json.

    PYTHONPATH=. python examples/studies/pretrained.py [--cpu RUN ...] [--twin RUN ...]

Writes docs/results/pretrained.md and pretrained.svg. The figures of finished runs of `fit --config pretrained`, one a seed, first
replace those of their seeds in pretrained.json. Measures nothing.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import yaml

from cod_lightning.evaluation.crossed import seed_estimate
from cod_lightning.markdown import table
from cod_lightning.rollout import transcript
from cod_lightning.types import EpisodeStatus
from examples.studies.note_worth import counted, worth
from examples.studies.quickstart import GREY, STYLES

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
POLICIES = {
    "trained": "**trained**",
    "blanked_context": "context blanked",
    "shuffled_context": "another pack's context",
}
"""What an evaluation calls a policy -> its name here."""
ALL = POLICIES | {
    "warm_start_t0.0": "warm start, T=0",
    "warm_start_t0.3": "warm start, T=0.3",
    "warm_start": "warm start, T=1",
    "scripted": "scripted play",
}
"""The same, of runs on a CPU."""
UNSHOWN = {"scripted", "unseen_words blanked_context"}
"""Rows that are in the figure, or in what is said of transfer, alone."""
BEST = "best"
"""The name here of the warm start at the temperature that is its best, by seed."""
SHOWN = ALL | {BEST: "warm start at its best"}
"""What rows of tables begin with."""
ADDS = ("trained", "warm_start", "difference")
SEEN = "held_out"
SUITES = {SEEN: "", "unseen_words": ", new words"}
"""What an evaluation calls its packs -> what a row adds for them."""


def of_the_gpu() -> dict[str, Any]:
    """What `make gpu` measured."""
    return json.loads((RESULTS / "gpu.json").read_text())


def page(own: dict[str, Any]) -> str:
    """The page, of the runs on a CPU beside those of gpu.json."""
    found = of_the_gpu()["parts"]["cod"]
    of_seeds_on_gpu = [
        row["success by position"].replace("0.", ".")
        for row in found["rows"]
        if row.get("suite") == SEEN
        and row["policy"] == "trained"
        and row["run"].startswith("seed")  # a twin solves nothing
    ]
    return PAGE.format(
        machine=found["machine"].partition(",")[0],
        gpu="; ".join(of_seeds_on_gpu),
        cpu=of_seeds(own["seeds"]),
        adds=what_training_adds(own),
        began=line(of["noted"][0][0] / of["noted"][0][1] for of in own["cpu"].values()),
        ended=line(of["noted"][-1][0] / of["noted"][-1][1] for of in own["cpu"].values()),
        worth=", ".join(of["worth"] for of in own["cpu"].values()),
        twin_answers=sum(answers for answers, _ in own["twin"].values()),
    )


def of_seeds(suites: dict[str, Any]) -> str:
    """Success by position in packs never seen, in the mean over seeds; of words never seen below."""
    rows = [
        [
            SHOWN[policy] + SUITES[suite],
            *(f"{one:.2f}" for one in success),
            interval(of["less"][policy]) if policy in of["less"] else "",
            " ".join(f"{one:.2f}" for one in of["noted"].get(policy, ())),
        ]
        for suite, of in suites.items()
        for policy, success in of["success"].items()
        if not {policy, f"{suite} {policy}"} & UNSHOWN
    ]
    return table(["policy", "0", "1", "2", "3", "trained less it, in the mean", "seen facts noted, by seed"], rows)


def line(shares: Iterable[float]) -> str:
    """Shares one after another."""
    return " ".join(f"{one:.2f}".lstrip("0") for one in shares)


def best(success: dict[str, list[float]]) -> str:
    """The warm start at its best temperature."""
    return max(
        (policy for policy in success if policy.startswith("warm_start")), key=lambda policy: sum(success[policy])
    )


def what_training_adds(own: dict[str, Any]) -> str:
    """The transfer of trained policies and of their warm starts, over seeds; what each seed adds."""
    rows = []
    for suite, of_suites in own["seeds"].items():
        adds, more = of_suites["training_adds"], SUITES[suite]
        each = " ".join(f"{of[suite]['training_adds']['difference']['mean']:+.2f}" for of in own["cpu"].values())
        rows.append(["packs never seen" + more, *(interval(adds[name]) for name in ADDS), each])
    return table(["", "trained", "warm start at its best", "difference", "by seed"], rows)


def interval(of: list[float]) -> str:
    """A mean with its interval."""
    return "{:+.3f} [{:.3f}, {:.3f}]".format(*of)


def add(own: dict[str, Any], runs: Iterable[Path]) -> None:
    """Put the runs' figures in place of those of their seeds, and those over the seeds anew."""
    for run in runs:
        own["cpu"][f"seed {yaml.safe_load((run / 'config.yaml').read_text())['seed_everything']}"] = figures(run)
    own["seeds"] = over_seeds(own["cpu"])


def figures(run: Path) -> dict[str, Any]:
    """What the page says of a run on a CPU: a folder with lifecycles/ and evaluation.json."""
    suites = json.loads((run / "evaluation.json").read_text())["suites"]
    return of_rollouts(run) | {name: of_suite(run / "lifecycles", name, suite) for name, suite in suites.items()}


def of_suite(lifecycles: Path, name: str, suite: dict[str, Any]) -> dict[str, Any]:
    """Success by position, by how much trained is above every other policy, and what `note_worth` counts, as shares."""
    shown, notes = {"trained": suite["positions"], **suite["controls"]}, {}
    for policy in (one for one in ("trained", "warm_start_t0.0", "warm_start_t0.3", "warm_start") if one in shown):
        (one,) = counted(lifecycles / f"test_{name}_{policy}.jsonl").values()
        notes[policy] = one.shares
    return {
        "packs": suite["packs"],
        "success": {policy: [one["success"] for one in shown[policy]] for policy in ALL if policy in shown},
        "less": {
            policy: [apart["success"]["mean"], *apart["success"]["ci95"]]
            for policy, apart in suite["figures"]["differences"].items()
        },
        "notes": notes,
        "training_adds": suite["figures"].get("training_adds"),
    }


def over_seeds(found: dict[str, Any]) -> dict[str, Any]:
    """What the page says of the seeds together."""

    def over(values: Iterable[float]) -> list[float]:
        one = seed_estimate(np.array([*values]))
        return [one.mean, *(one.ci95 or ())]

    found_of = {}
    for suite in (one for one in SUITES if all(one in of for of in found.values())):
        seeds = [of[suite] | {BEST: best(of[suite]["success"])} for of in found.values()]
        policies = {one: [one] * len(seeds) for one in seeds[0]["success"] if not one.startswith("warm_start")}
        policies[BEST] = [of[BEST] for of in seeds]
        each = {policy: [*zip(seeds, of_seed, strict=True)] for policy, of_seed in policies.items()}
        found_of[suite] = {
            "success": {
                policy: np.mean([of["success"][one] for of, one in pairs], axis=0).tolist()
                for policy, pairs in each.items()
            },
            "less": {
                policy: over(of["less"][one][0] for of, one in pairs)
                for policy, pairs in each.items()
                if policy != "trained"
            },
            "noted": {policy: [of["notes"][one]["noted"] for of, one in each[policy]] for policy in ("trained", BEST)},
            "training_adds": {name: over(of["training_adds"][name]["mean"] for of in seeds) for name in ADDS},
        }
    return found_of


def of_rollouts(run: Path) -> dict[str, Any]:
    """By rollout how many facts were noted of those seen, and what a right note was worth."""
    by_version = counted(run / "lifecycles" / "train.jsonl").values()
    noted = [[one.noted, one.seen] for one in by_version]
    return {"noted": noted, "worth": worth([pair for one in by_version for pair in one.products])}


def of_twin(runs: Iterable[Path]) -> dict[str, Any]:
    """What the same architecture from random weights answered: by file of lifecycles its answers, and how many had the form."""
    answers = {
        file.stem: [
            episode.status for group in transcript.read(file) for life in group.lifecycles for episode in life.solves
        ]
        for run in runs
        for file in sorted((run / "lifecycles").glob("*.jsonl"))
        if not file.stem.endswith("logprobs")
    }
    return {name: [len(of), len(of) - of.count(EpisodeStatus.MALFORMED)] for name, of in answers.items()}


def draw(own: dict[str, Any], file: Path) -> None:
    """Success by position, a panel for each seed that was evaluated on a CPU."""
    plt.rcParams.update(
        dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY)
    )
    panels = {run: of[SEEN]["success"] for run, of in own["cpu"].items() if SEEN in of}
    styles = [*STYLES[:2], {"color": "#8250df", "linestyle": "--"}, *STYLES[2:]]
    figure, (drawn,) = plt.subplots(
        1, len(panels), figsize=(9.2, 2.9), sharey=True, layout="constrained", squeeze=False
    )
    for axes, (title, success) in zip(drawn, panels.items(), strict=True):
        lines = {ALL[policy].strip("*"): success[policy] for policy in POLICIES}
        lines["warm start at its best temperature"] = success[best(success)]
        lines[ALL["scripted"]] = success["scripted"]
        for (label, line), style in zip(lines.items(), styles, strict=True):
            axes.plot(line, marker="o", markersize=4, label=label, **style)
        axes.set_title(title, fontsize="medium")
        axes.set(xlabel="position in the pack", xticks=range(4), ylim=(0, 0.9))
        axes.spines[["top", "right"]].set_visible(False)
    drawn[0].set(ylabel="success")
    figure.legend(*drawn[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)
    figure.savefig(file, transparent=True)


PAGE = """# A pretrained language model, measured

**Does reward teach a language model to write down what it will need?** In three seeds of three on two CPU cores, in two on a GPU.

![Success by position in packs never seen, a panel for each seed: it rises for the trained policy alone](pretrained.svg)

SmolLM2-135M-Instruct lives through packs of four lever tasks. Noun, names (`alpha` to `delta`, or words such as `otter`) and
colours of the levers are drawn for each pack; contexts are in English. Demonstrations teach the form, a player that looks its
context up, and a writer that notes half of the facts that it saw and calls the others unknown.

    python -m cod_lightning fit --config pretrained    # after make pretrained, which installs the checkpoint

One pull a task: a guess wins .25, scripted play .23 .49 .72 .84. 48 updates, 64 lifecycles a rollout of four, bfloat16 over
float32 weights, two hours, 12.7 GiB. `--seed_everything` 1, 2 and 3, 128 packs of the test split, trained policies at T=1; means
with 95 % intervals over seeds (Student's t). Warm starts at their best of T=0, .3 and 1 (new words: 0 and 1). Seeds, other
temperatures and further runs are in [pretrained.json](pretrained.json), which `examples/studies/pretrained.py --cpu RUN ...` fills.

{cpu}

*Transfer* is success after the first task less that with the context blanked:

{adds}

- **Training adds transfer** in each seed; with **new words**, never drawn in training, in two of three (intervals over packs), not
  shown over seeds. Long words are spelt wrongly: .24, .37 and .38 of the answers are malformed.
- **Players that quote explore**: demonstrated answers say `so red unknown Lever 2` where the context does not know. Levers of other
  colours are then pulled again in .11 to .28; without (`--data.env.teacher.quotes false`, seed 2) in .52.

| wanted, in an unseen pack | its answer | came | its context then |
| --- | --- | --- | --- |
| silver | `so silver unknown Cord feather` | purple | `Cord feather gives purple, so purple Cord feather`, others `unknown` |
| silver | `so silver unknown Cord walnut` | black | also `Cord walnut gives black, …` |
| black | `so black Cord walnut` | black | |

By rollouts, facts noted of those seen rise from {began} to {ended}; one right note more adds
{worth} to later reward.

**On one GPU** (`make gpu PARTS=cod`: {machine}, two pulls a task, no warmup, 41 updates of 256 lifecycles) scripted play solves
.46 .93 .99 1.00, three seeds {gpu}. Transfer: .16 [.09, .22],
.04 [-.01, .09], .20 [.14, .25]; in seed 2 reward taught the opposite. **From random weights** (`random_twin.py`, levers) the same
warm start ends at 2.9 nats a token, and none of {twin_answers} answers has the form, at T=0 or 1: nothing is learnt, as on the GPU.
**Limits**: intervals are read one by one. A second world, and reward in one world for another: [doors](pretrained_doors.md).
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", type=Path, nargs="*", default=(), metavar="RUN", help="folders of finished runs")
    parser.add_argument(
        "--twin",
        type=Path,
        nargs="*",
        default=(),
        metavar="RUN",
        help="of random_twin.py's weights: a `fit`, and a `test` at T=0",
    )
    options, file = parser.parse_args(), RESULTS / "pretrained.json"
    found = json.loads(file.read_text())
    add(found, options.cpu)
    if options.twin:
        found["twin"] = of_twin(options.twin)
    file.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "pretrained.md").write_text(page(found))
    draw(found, RESULTS / "pretrained.svg")
