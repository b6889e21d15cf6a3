"""The page and the figure of the pretrained language model, from pretrained.json and what `make gpu PARTS=cod` left in gpu.json.

    PYTHONPATH=. python examples/studies/pretrained.py [--cpu RUN ...]

Writes docs/results/pretrained.md and pretrained.svg. The figures of finished runs of `fit --config pretrained` first replace those
of their seeds in pretrained.json; of a run without an evaluation only its rollouts are shown. Measures nothing.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import yaml

from cod_lightning.markdown import table
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
SEEN = "held_out"
SUITES = {SEEN: "", "unseen_words": ", new words"}
"""What an evaluation calls its packs -> what a row adds for them."""


def of_the_gpu() -> dict[str, Any]:
    """What `make gpu` measured."""
    return json.loads((RESULTS / "gpu.json").read_text())


def page(own: dict[str, Any]) -> str:
    """The page, of the runs on a CPU beside those of gpu.json."""
    found = of_the_gpu()
    rows = [
        [row["run"], *row["success by position"].split(), f"{row['seen facts noted']:.2f}"]
        for row in found["parts"]["cod"]["rows"]
        if row.get("suite") == SEEN
        and row["policy"] == "trained"
        and row["run"].startswith("seed")  # a twin solves nothing
    ]
    return PAGE.format(
        machine=found["parts"]["cod"]["machine"].partition(",")[0],
        gpu=table(["seed", "0", "1", "2", "3", "seen facts noted"], rows),
        cpu=of_cpus(own["cpu"]),
        adds=what_training_adds(own["cpu"] | own["arms"]),
        rollouts=table(
            ["run", "noted, by rollouts of four updates", "worth of a right note"],
            [
                [name, " ".join(f"{noted / seen:.2f}" for noted, seen in of["noted"]), of["worth"]]
                for name, of in (own["cpu"] | own["arms"]).items()
            ],
        ),
    )


def of_cpus(runs: dict[str, Any]) -> str:
    """Success by position in packs never seen, of the runs that were evaluated; of words never seen below."""
    rows = [
        [
            run,
            ALL[policy] + more,
            *(f"{one:.2f}" for one in success),
            interval(of[suite]["less"][policy]) if policy in of[suite]["less"] else "",
            f"{of[suite]['notes'][policy]['noted']:.2f}" if policy in of[suite]["notes"] else "",
        ]
        for run, of in runs.items()
        for suite, more in SUITES.items()
        if suite in of
        for policy, success in of[suite]["success"].items()
        if not {policy, f"{suite} {policy}"} & UNSHOWN
        if not policy.startswith("warm_start") or policy == best(of[suite]["success"])
    ]
    return table(["seed", "policy", "0", "1", "2", "3", "trained less it, in the mean", "seen facts noted"], rows)


def best(success: dict[str, list[float]]) -> str:
    """The warm start at its best temperature."""
    return max(
        (policy for policy in success if policy.startswith("warm_start")), key=lambda policy: sum(success[policy])
    )


def what_training_adds(runs: dict[str, Any]) -> str:
    """Of the same runs the transfer of both policies, and how the trained one uses its context."""
    rows = []
    for run, of in runs.items():
        for suite, more in SUITES.items():
            if suite in of:
                adds, notes = of[suite]["training_adds"], of[suite]["notes"]["trained"]
                shown = (figure(adds[name]) for name in ("trained", "warm_start", "difference"))
                uses = "{read:.2f}".format(**notes), "{again:.2f} ({guessed:.2f})".format(**notes)
                rows.append([run + more, *shown, *uses])
    head = ["seed", "transfer of the trained policy", "of the warm start at its best", "difference"]
    return table([*head, "named levers pulled", "other colours' pulled again (a guess)"], rows)


def figure(of: dict[str, Any]) -> str:
    """The same, of an evaluation."""
    return interval([of["mean"], *of["ci95"]])


def interval(of: list[float]) -> str:
    """A mean with its interval."""
    return "{:+.3f} [{:.3f}, {:.3f}]".format(*of)


def figures(run: Path) -> dict[str, Any]:
    """What the page says of a run on a CPU: a folder with lifecycles/ and, where it was evaluated, evaluation.json."""
    evaluation, found = run / "evaluation.json", of_rollouts(run)
    if not evaluation.exists():
        return found
    suites = json.loads(evaluation.read_text())["suites"]
    return found | {name: of_suite(run / "lifecycles", name, suite) for name, suite in suites.items()}


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


def of_rollouts(run: Path) -> dict[str, Any]:
    """By rollout how many facts were noted of those seen, and what a right note was worth."""
    by_version = counted(run / "lifecycles" / "train.jsonl").values()
    noted = [[one.noted, one.seen] for one in by_version]
    return {"noted": noted, "worth": worth([pair for one in by_version for pair in one.products])}


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

**Does reward teach a language model to write down what it will need?** Yes: in both seeds on two CPU cores, in two of three on a
GPU.

![Success by position in packs never seen, a panel for each seed: it rises for the trained policy alone](pretrained.svg)

*SmolLM2-135M-Instruct, 128 packs of the test split a seed; trained policies at T=1.*

SmolLM2 lives through packs of four lever tasks. Noun, names (`alpha` to `delta`, or words such as `otter`) and colours of the
levers are drawn for each pack; contexts are in English. Demonstrations teach the form, a player that looks its context up, and a
writer that notes half of the facts that it saw and calls the others unknown.

## On two CPU cores

```bash
make pretrained      # installs the checkpoint, then: python -m cod_lightning fit --config pretrained
```

One pull a task: a guess wins .25, scripted play .23 .49 .72 .84. 48 updates, 64 lifecycles a rollout of four, bfloat16 over
float32 weights (`--seed_everything` 1 and 2; page: `examples/studies/pretrained.py --cpu RUN`): two hours beside tests, 12.7 GiB.
Warm starts at the best of T=0, .3 and 1 (new words: 0 and 1); the others are in [pretrained.json](pretrained.json).

{cpu}

*Transfer*: success after the first task less that with the context blanked.

{adds}

- **Training adds transfer.** The warm start has none. *New words*, never drawn in training: shown in seed 1 alone; .24 and .37 of
  the answers are malformed.
- **Players that quote explore.** Demonstrated answers end with `so red Lever 3`, or `so red unknown Lever 2` where the context does
  not know. Levers of other colours are then pulled again about half as often as by guesses (not with new words); without
  (`--data.env.teacher.quotes false`) more often, from the warm start on: .17 .35 .43 .42.

An unseen pack at T=1:

| wanted | its answer | came | its context then |
| --- | --- | --- | --- |
| silver | `so silver unknown Cord feather` | purple | `Cord feather gives purple, so purple Cord feather`, others `unknown` |
| silver | `so silver unknown Cord walnut` | black | also `Cord walnut gives black, …` |
| silver | `so silver unknown Cord paper` | silver | also `Cord paper gives silver, …` |
| black | `so black Cord walnut` | black | |

## What swamps the writer

Facts noted of those seen in training, and how much one right note more adds to later reward, among siblings:

{rollouts}

The last two are without quotes as well. Without warmup AdamW's first steps are as large as its rate, however uncertain. Updates
alone learn soonest.

## On one GPU, with two pulls a task

`make gpu PARTS=cod` on {machine}, before warmup and one pull came: demonstrated notes have .3 of the facts; a warm start of 150
updates, then 320 s of training (41 updates) at a rate of 2e-5, 256 lifecycles a rollout of four. Intervals: about ±.09. Scripted
play solves .46 .93 .99 1.00; trained at T=1:

{gpu}

- **Two writers of three learn.** In seed 2 reward taught the opposite.
- **Contexts are used where they are written**: transfer .16 [.09, .22], .04 [-.01, .09], .20 [.14, .25].
- **Above the greedy warm start** in tasks 1 to 3 by .17 [.09, .25], .01 [-.08, .08], .13 [.05, .20] (64 recorded packs).
- **Words never seen are copied**: transfer .10 [.04, .16], -.05 [-.10, -.00], .11 [.05, .16], but a quarter of the answers is
  malformed, since long words are spelt wrongly (`Crunaco`).
- **The random twin** learns nothing: after the same demonstrations no answer is well-formed.

## Limits

Two seeds on the CPU. The H200's evaluation was cut off: its warm starts at T=0.3 and 1 are missing. A harder world is **not
measured**.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", type=Path, nargs="*", default=(), metavar="RUN", help="folders of finished runs")
    file = RESULTS / "pretrained.json"
    found = json.loads(file.read_text())
    for run in parser.parse_args().cpu:
        seed = yaml.safe_load((run / "config.yaml").read_text())["seed_everything"]
        found["cpu"][f"seed {seed}"] = figures(run)
    file.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "pretrained.md").write_text(page(found))
    draw(found, RESULTS / "pretrained.svg")
