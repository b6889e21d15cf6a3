"""The page and the figure of the pretrained language model, from the figures that `make gpu PARTS=cod` kept in gpu.json.

    PYTHONPATH=. python examples/studies/pretrained.py

Writes docs/results/pretrained.md and pretrained.svg. Measures nothing.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from cod_lightning.markdown import table
from examples.studies.quickstart import GREY, STYLES

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
POLICIES = {
    "trained": "**trained**",
    "blanked_context": "context blanked",
    "shuffled_context": "another pack's context",
}
"""What gpu.json calls a policy -> its name here."""
SEEN, UNSEEN = "held_out", "unseen_words"
GREEDY = {
    "seed 1": [0.68, 0.38, 0.51, 0.48],
    "seed 2": [0.54, 0.45, 0.53, 0.46],
    "seed 3": [0.57, 0.42, 0.44, 0.58],
}
"""Warm starts at T=0, in the 64 packs that the run recorded before it was cut off; gpu.json lacks them."""
Curves = dict[str, dict[str, dict[str, Any]]]
"""Run -> policy -> success by position, and the share of the facts seen that notes have."""


def curves(found: dict[str, Any], suite: str) -> Curves:
    """The rows of a suite; the random twin, which solves nothing, is left out."""
    made: Curves = {}
    for row in found["parts"]["cod"]["rows"]:
        if row.get("suite") == suite and row["policy"] in POLICIES and row["run"].startswith("seed"):
            success = [float(one) for one in row["success by position"].split()]
            made.setdefault(row["run"], {})[row["policy"]] = {"success": success, "noted": row["seen facts noted"]}
    return made


def page(found: dict[str, Any]) -> str:
    """The page."""
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
    return PAGE.format(machine=found["parts"]["cod"]["machine"].partition(",")[0], seen=tables[0], unseen=tables[1])


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

*SmolLM2-135M-Instruct after 41 updates, 128 packs of the test split a seed, T=1. Seed 2 did not learn to note. The run was cut off
before it evaluated the warm start at T=0.3 and 1.*

SmolLM2 lives through packs of four lever tasks. Noun, names (`alpha` to `delta`, or words such as `otter`) and colours of the
levers are drawn for each pack; contexts are in English. Demonstrations teach the form, a player that looks its context up at .8
of its turns, and a writer that notes .3 of the facts that it saw and calls the others unknown.

```bash
make pretrained      # installs the checkpoint, then: python -m cod_lightning fit --config pretrained
make gpu PARTS=cod   # the same with the sizes for one GPU
```

{machine}: a warm start of 150 updates, then 320 s of training at a rate of 2e-5, 256 lifecycles a rollout in four updates, in
bfloat16 over float32 weights; three seeds and a twin shared the card. 95 % intervals over packs are about .09 wide to either
side. The scripted player solves .46 .93 .99 1.00.

{seen}

Nouns, names and colours that training never draws (`unseen_words`):

{unseen}

## Reading

- **Two writers of three learn.** In seeds 1 and 3 notes have three quarters of the facts seen; demonstrations had .30, and the
  greedy warm start writes `unknown` for all. **In seed 2 reward taught the opposite.** Why is not known.
- **Contexts are used where they are written.** Success after the first task less that with the context blanked: .16 [.09, .22], .04
  [-.01, .09], .20 [.14, .25]. A lever that the context truly names is pulled first at .85, .73 and .92 (a guess has .25).
- **Above the greedy warm start** in tasks 1 to 3 by .17 [.09, .25], .01 [-.08, .08], .13 [.05, .20] (64 packs that both recorded).
- **Words never seen are copied**: transfer .10 [.04, .16], -.05 [-.10, -.00], .11 [.05, .16], but a quarter of the answers is
  malformed, since long words are spelt wrongly (`Crunaco`).
- **The random twin** learns nothing: after the same demonstrations none of its answers is well-formed.

What seed 3 wrote in a pack of words never seen, where glacier gives maroon and puzzle lime:

| after | context |
| --- | --- |
| task 1: glacier gave maroon, puzzle lime | `Pedal falcon: unknown, glacier gives maroon, teapot: unknown, puzzle: unknown` |
| task 2: the same two | `Pedal falcon: unknown, glacier gives maroon, teapot: unknown, puzzle gives lime` |

## On two CPU cores: one seed, not at its end

`fit --config pretrained` on one core (seed 1, `bf16-mixed`, 64 lifecycles a rollout), 36 of 48 updates. Beside it an earlier run
of 40 whose demonstrated players looked up at .8 of their turns (`follow` .8, `context_true` .7, `context_gaps` .5), now at .95 (.9,
.3). Both demonstrate notes of half the facts. Of what is kept of the rollouts:

    PYTHONPATH=. python examples/studies/note_worth.py RUN/lifecycles/train.jsonl

| rollouts | reward | seen facts noted | named lever pulled first (a guess: .25) | earlier run: noted | pulled |
| --- | --- | --- | --- | --- | --- |
| 1 to 2 | 0.38 | 0.23 | 0.68 | 0.32 | 0.42 |
| 3 to 4 | 0.45 | 0.24 | 0.50 | 0.36 | 0.28 |
| 5 to 6 | 0.49 | 0.28 | 0.90 | 0.25 | 0.66 |
| 7 to 8 | 0.53 | 0.31 | 0.79 | 0.25 | 0.77 |
| 9 (to 10) | 0.43 | 0.25 | 0.73 | 0.12 | 0.56 |

- **A writer is paid only where its notes are read.** In the earlier run contexts were hardly read when training began: a right
  note more was worth +.027 [-.002, .057] of the later reward among siblings, and reward unlearned writing. Where demonstrated
  players read, it is worth +.088 [.042, .139]; notes do not vanish, nor do they grow beyond noise.
- **Not shown yet**: an end, an evaluation, further seeds.
- 100 updates of the warm start take 38 minutes of one core, a rollout 180 to 300 s, an update of 16 lifecycles 60 to 90 s; 10 GB.

## Limits

The H200's run was cut off in its evaluation: no warm start at T=0.3 and T=1, and none on words never seen. 41 updates are no end. A
second, harder world and three seeds on the CPU are **not measured**.
"""


if __name__ == "__main__":
    gpu = json.loads((RESULTS / "gpu.json").read_text())
    (RESULTS / "pretrained.md").write_text(page(gpu))
    draw(gpu, RESULTS / "pretrained.svg")
