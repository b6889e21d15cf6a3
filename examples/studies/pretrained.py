"""The page and the figure of the pretrained language model, from the figures that `make gpu PARTS=cod` kept in gpu.json.

    PYTHONPATH=. python examples/studies/pretrained.py [--cpu RUN] [--one_pull FAST BOTH WRITER]

Writes docs/results/pretrained.md and pretrained.svg. With a run of `fit --config pretrained` takes its figures into pretrained.json
first; those of one without an evaluation stand apart; so do three runs with one pull a task, the last
with `--model.trained_kinds [update]`. Measures nothing.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from cod_lightning.evaluation.intervals import bootstrap
from cod_lightning.evaluation.outcomes import Outcomes, position_means
from cod_lightning.markdown import table
from cod_lightning.rollout import transcript
from examples.studies.note_worth import counted, worth
from examples.studies.quickstart import GREY, STYLES

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
POLICIES = {
    "trained": "**trained**",
    "blanked_context": "context blanked",
    "shuffled_context": "another pack's context",
}
"""What gpu.json calls a policy -> its name here."""
STARTS = {"warm_start_t0.0": "warm start, T=0", "warm_start_t0.3": "warm start, T=0.3", "warm_start": "warm start, T=1"}
"""The same of warm starts, in runs on a CPU."""
SEEN, UNSEEN = "held_out", "unseen_words"
GREEDY = {
    "seed 1": [0.68, 0.38, 0.51, 0.48],
    "seed 2": [0.54, 0.45, 0.53, 0.46],
    "seed 3": [0.57, 0.42, 0.44, 0.58],
}
"""Warm starts at T=0, in the 64 packs that the run recorded before it was cut off; gpu.json lacks them."""
Curves = dict[str, dict[str, dict[str, Any]]]
"""Run -> policy -> success by position, and the share of the facts seen that notes have."""


def of_the_gpu() -> dict[str, Any]:
    """What `make gpu` measured."""
    return json.loads((RESULTS / "gpu.json").read_text())


def curves(found: dict[str, Any], suite: str) -> Curves:
    """The rows of a suite; the random twin, which solves nothing, is left out."""
    made: Curves = {}
    for row in found["parts"]["cod"]["rows"]:
        if row.get("suite") == suite and row["policy"] in POLICIES and row["run"].startswith("seed"):
            success = [float(one) for one in row["success by position"].split()]
            made.setdefault(row["run"], {})[row["policy"]] = {"success": success, "noted": row.get("seen facts noted")}
    return made


def page(cpu: dict[str, Any]) -> str:
    """The page, of the run on a CPU beside those of gpu.json."""
    found = of_the_gpu()
    tables = []
    for suite, shown in ((SEEN, POLICIES), (UNSEEN, ("trained", "blanked_context"))):
        rows = [
            [
                run,
                POLICIES[name],
                *(f"{one:.2f}" for one in of["success"]),
                f"{of['noted']:.2f}" if name == "trained" else "",
            ]
            for run, policies in curves(found, suite).items()
            for name, of in policies.items()
            if name in shown
        ]
        if suite == SEEN:
            greedy = [[run, "warm start, T=0", *(f"{one:.2f}" for one in of), "0.00"] for run, of in GREEDY.items()]
            rows = sorted([*rows, *greedy], key=lambda row: row[0])  # stable: behind the policies of its seed
        tables.append(table(["seed", "policy", "0", "1", "2", "3", "seen facts noted"], rows))
    held, unseen = (cpu["suites"][name] for name in (SEEN, UNSEEN))
    rows = [
        [
            label,
            *(f"{one:.2f}" for one in of["success"][policy]),
            f"{of['noted'][policy]:.2f}" if policy in of["noted"] else "",
        ]
        for of, policies in ((held, POLICIES | STARTS), (unseen, {"trained": "trained, words never seen"}))
        for policy, label in policies.items()
        if policy in of["success"]
    ]
    shares = [share(part) for part in quarters(cpu["noted"])]
    cut, one_pull = cpu["cut"], cpu["one_pull"]
    return PAGE.format(
        machine=found["parts"]["cod"]["machine"].partition(",")[0],
        seen=tables[0],
        unseen_words=tables[1],
        packs=held["packs"],
        cpu=table(["policy", "0", "1", "2", "3", "seen facts noted"], rows),
        noted=", ".join(f"{one:.2f}" for one in shares),
        worth=cpu["worth"],
        cut_worth=cut["worth"],
        cut_begin=share(cut["noted"][:2]),
        cut_end=share(cut["noted"][-2:]),
        cut_updates=4 * len(cut["noted"]),
        blanked=interval(held["less"]["blanked_context"]),
        shuffled=interval(held["less"]["shuffled_context"]),
        unseen=interval(unseen["less"]["blanked_context"]),
        greedy=interval(held["less"]["warm_start_t0.0"]),
        one_pull=table(
            ["trained", "noted, by rollouts", "worth of a right note"],
            [
                [name, " ".join(f"{share([one]):.2f}" for one in of["noted"]), of["worth"]]
                for name, of in one_pull.items()
            ],
        ),
    )


def share(of: list[list[int]]) -> float:
    """Facts noted of those seen, of several rollouts."""
    return sum(noted for noted, _ in of) / sum(seen for _, seen in of)


def quarters(of: list[Any]) -> list[list[Any]]:
    """Its quarters, in order."""
    return [of[len(of) * n // 4 : len(of) * (n + 1) // 4] for n in range(4)]


def interval(of: list[float]) -> str:
    """A mean with its interval."""
    return "{:+.3f} [{:.3f}, {:.3f}]".format(*of)


def figures(run: Path) -> dict[str, Any]:
    """What the page says of a run on a CPU: a folder with its evaluation.json and lifecycles/."""
    found: dict[str, Any] = {"suites": {}}
    for name, suite in json.loads((run / "evaluation.json").read_text())["suites"].items():
        shown = {"trained": suite["positions"], **suite["controls"]}
        recorded = {path.stem.removeprefix(f"test_{name}_"): path for path in (run / "lifecycles").glob("test_*.jsonl")}
        found["suites"][name] = of = {
            "packs": suite["packs"],
            "success": {policy: [one["success"] for one in shown[policy]] for policy in POLICIES if policy in shown},
            "less": {
                policy: [apart["success"]["mean"], *apart["success"]["ci95"]]
                for policy, apart in suite["figures"]["differences"].items()
            },
            "noted": {},
        }
        trained = by_pack(recorded["trained"])
        for policy in STARTS.keys() & recorded.keys():
            other = by_pack(recorded[policy])
            both = sorted(trained.keys() & other.keys())
            of["success"][policy] = position_means(np.array([other[pack] for pack in both])).tolist()
            apart = np.array([np.subtract(trained[pack], other[pack]) for pack in both])
            (less,) = bootstrap(apart, np.full((1, apart.shape[1]), 1 / apart.shape[1]))
            of["less"][policy] = [less.mean, less.low, less.high, len(both)]
        for policy in ("trained", *(STARTS.keys() & recorded.keys())):
            (counts,) = counted(recorded[policy]).values()
            of["noted"][policy] = counts.noted / counts.seen
    return found | of_rollouts(run)


def of_rollouts(run: Path) -> dict[str, Any]:
    """By rollout how many facts were noted of those seen, and what a right note was worth."""
    by_version = counted(run / "lifecycles" / "train.jsonl").values()
    noted = [[one.noted, one.seen] for one in by_version]
    return {"noted": noted, "worth": worth([pair for one in by_version for pair in one.products])}


def by_pack(file: Path) -> dict[str, list[float]]:
    """Success by position of each recorded pack."""
    groups = transcript.read(file)
    return {group.pack.id: Outcomes.of(group.lifecycles[:1]).success[0].tolist() for group in groups}


def draw(found: dict[str, Any], file: Path) -> None:
    """Success by position, a panel for each seed."""
    plt.rcParams.update(
        dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY)
    )
    by_seed = curves(found, SEEN)
    styles = [*STYLES[:2], {"color": "#8250df", "linestyle": "--"}, STYLES[2]]
    figure, panels = plt.subplots(1, len(by_seed), figsize=(9.2, 2.9), sharey=True, layout="constrained")
    for axes, (run, policies) in zip(panels, by_seed.items(), strict=True):
        drawn = {POLICIES[name].strip("*"): policies[name]["success"] for name in POLICIES}
        for (label, success), style in zip((drawn | {"warm start, T=0": GREEDY[run]}).items(), styles, strict=True):
            axes.plot(success, marker="o", markersize=4, label=label, **style)
        axes.set_title(f"{run} notes {policies['trained']['noted']:.2f} of what it saw", fontsize="medium")
        axes.set(xlabel="position in the pack", xticks=range(4), ylim=(0.2, 0.8))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="success")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=4)
    figure.savefig(file, transparent=True)


PAGE = """# A pretrained language model, measured

**Does reward teach a language model to write down what it will need?** In two seeds of three.

![Success by position in packs never seen, a panel for each seed: in seeds 1 and 3 the trained policy's own context is worth
most](pretrained.svg)

*SmolLM2-135M-Instruct after 41 updates, 128 packs of the test split a seed, T=1. Seed 2 did not learn to note.*

SmolLM2 lives through packs of four lever tasks. Noun, names (`alpha` to `delta`, or words such as `otter`) and colours of the
levers are drawn for each pack; contexts are in English. Demonstrations teach the form, a player that looks its context up at .8
of its turns, and a writer that notes .3 of the facts that it saw and calls the others unknown.

```bash
make pretrained      # installs the checkpoint, then: python -m cod_lightning fit --config pretrained
make gpu PARTS=cod   # the same with the sizes for one GPU
```

{machine}: a warm start of 150 updates, then 320 s of training at a rate of 2e-5, 256 lifecycles a rollout in four updates, in
bfloat16 over float32 weights. 95 % intervals over packs: about ±.09.
The scripted player solves .46 .93 .99 1.00.

{seen}

Nouns, names and colours that training never draws (`unseen_words`):

{unseen_words}

## Reading

- **Two writers of three learn.** In seeds 1 and 3 notes have three quarters of the facts seen; demonstrations had .30, and the
  greedy warm start writes `unknown` for all. **In seed 2 reward taught the opposite.**
- **Contexts are used where they are written.** Success after the first task less that with the context blanked: .16 [.09, .22], .04
  [-.01, .09], .20 [.14, .25]. A lever that the context truly names is pulled first at .85, .73 and .92 (a guess has .25).
- **Above the greedy warm start** in tasks 1 to 3 by .17 [.09, .25], .01 [-.08, .08], .13 [.05, .20] (64 recorded packs).
- **Words never seen are copied**: transfer .10 [.04, .16], -.05 [-.10, -.00], .11 [.05, .16], but a quarter of the answers is
  malformed, since long words are spelt wrongly (`Crunaco`).
- **The random twin** learns nothing: after the same demonstrations no answer is well-formed.

What seed 3 wrote in a pack of words never seen, where glacier gives maroon and puzzle lime:

| after | context |
| --- | --- |
| task 1: glacier gave maroon, puzzle lime | `Pedal falcon: unknown, glacier gives maroon, teapot: unknown, puzzle: unknown` |
| task 2: the same two | `Pedal falcon: unknown, glacier gives maroon, teapot: unknown, puzzle gives lime` |

## On one CPU core: one seed

`fit --config pretrained` (one thread, seed 1, 64 lifecycles a rollout, 48 updates): demonstrated players look up at .95 of their
turns, and notes have half of the facts. {packs} packs, T=1; the warm start in the 64 of them that were recorded.

    PYTHONPATH=. python examples/studies/pretrained.py --cpu RUN

{cpu}

- **Reward taught it to note**: by quarters of the training, rollouts noted {noted} of the facts seen. Where players read, a right
  note more is worth {worth} of the later reward among siblings.
- **Contexts pay**, mean over positions: less blanked {blanked}, less another pack's {shuffled}; on words never seen less
  blanked {unseen}.
- **No difference from the greedy warm start is shown** ({greedy}).
- **Notes that are not paid go.** In seed 2, cut at {cut_updates} updates and not evaluated, a right note was worth
  {cut_worth}, and noting fell from {cut_begin:.2f} to {cut_end:.2f}.
- Warm start 38 minutes, rollouts 3 to 5, updates 1 to 1.5; 10 to 14 GB.

## What swamps the writer

The first steps, perhaps: AdamW makes them as large as its rate, however uncertain the gradient. One pull a task (a guess wins
.25), seed 1, the same packs:

    fit --config pretrained --data.env.max_turns 1 --warm_start.num_updates 120 --model.warmup_updates 8

{one_pull}

Warmed up, the writer learns beside the player, and sooner alone. Success: not compared.

## Limits

The H200's run was cut off in its evaluation: no warm start at T=0.3 and T=1, and none on words never seen. A second, harder world
and three seeds on the CPU are **not measured**.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--one_pull", type=Path, nargs=3, metavar=("FAST", "BOTH", "WRITER"), help="folders")
    options = parser.parse_args()
    own, run = RESULTS / "pretrained.json", options.cpu
    found = json.loads(own.read_text())
    if run is not None:
        evaluated = (run / "evaluation.json").exists()
        apart = {name: found[name] for name in ("cut", "one_pull")}
        found = figures(run) | apart if evaluated else found | {"cut": of_rollouts(run)}
    if options.one_pull is not None:
        names = "all episodes, 3e-5 without warmup", "all episodes", "updates alone: `--model.trained_kinds [update]`"
        found |= {"one_pull": {name: of_rollouts(run) for name, run in zip(names, options.one_pull, strict=True)}}
    own.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "pretrained.md").write_text(page(found))
    draw(of_the_gpu(), RESULTS / "pretrained.svg")
