"""The page of the pretrained language model in doors, from pretrained_doors.json.

    PYTHONPATH=. python examples/studies/pretrained_doors.py [--doors RUN ...]
        [--noisy_doors RUN ...] [--random_notes RUN] [--families RUN ...]

Writes docs/results/pretrained_doors.md. The figures of finished runs of `pretrained_doors.yaml` and `pretrained_families.yaml`, one
a seed, first replace those of their seeds in pretrained_doors.json. Measures nothing.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from cod_lightning.markdown import table
from examples.studies.pretrained import BEST, RESULTS, SEEN, SHOWN, add, best, interval, line, of_rollouts, of_seeds


def page(own: dict[str, Any]) -> str:
    """The page."""
    doors, noisy, random = own["doors"], own["noisy_doors"]["seeds"][SEEN], own["random_notes"]["noted"]
    (mixed,) = own["families"]["cpu"].values()
    by_seed = [of[SEEN]["training_adds"]["difference"] for of in doors["cpu"].values()]
    return PAGE.format(
        doors=of_seeds(doors["seeds"]),
        scripted=line(doors["seeds"][SEEN]["success"]["scripted"]),
        adds=interval(doors["seeds"][SEEN]["training_adds"]["difference"]),
        transfer=", ".join(map(estimate, by_seed)),
        noted="; ".join(line(noted / seen for noted, seen in of["noted"][::4]) for of in doors["cpu"].values()),
        worth=", ".join(of["worth"] for of in doors["cpu"].values()),
        noisy_best=line(noisy["success"][BEST]),
        noisy_trained=line(noisy["success"]["trained"]),
        random_notes=line(noted / seen for noted, seen in (random[0], random[-1])),
        families=of_families(mixed),
        in_levers=added(mixed["levers"]),
        in_doors=added(mixed["doors"]),
        began=line([mixed["doors"]["notes"]["warm_start"]["noted"]]),
        ended=line([mixed["doors"]["notes"]["trained"]["noted"]]),
    )


def estimate(of: dict[str, Any]) -> str:
    """A mean with its interval over packs."""
    return interval([of["mean"], *of["ci95"]])


def added(suite: dict[str, Any]) -> str:
    """What training adds to transfer in it."""
    return estimate(suite["training_adds"]["difference"])


def of_families(found: dict[str, Any]) -> str:
    """Success by position of one seed, what training adds to transfer in each world, and how many facts were noted."""
    rows = []
    for suite in ("levers", "doors"):
        of = found[suite]
        for policy in ("trained", "blanked_context", BEST):
            key = best(of["success"]) if policy == BEST else policy
            less = interval(of["less"][key]) if key in of["less"] else ""
            noted = f"{of['notes'][key]['noted']:.2f}" if key in of["notes"] else ""
            rows.append([f"{suite}: {SHOWN[policy]}", *(f"{one:.2f}" for one in of["success"][key]), less, noted])
    return table(["policy", "0", "1", "2", "3", "trained less it, in the mean", "seen facts noted"], rows)


PAGE = """# A language model in a second world

**Does reward teach notes in doors, and does reward of levers alone?** The [model and method of levers](pretrained.md).

    python -m cod_lightning fit --config examples/studies/pretrained_doors.yaml
    python -m cod_lightning fit --config examples/studies/pretrained_families.yaml

Six doors, four keys; an open door shows two more. Demonstrated notes have a fifth of the facts, never wrong. 96 updates (seed 3:
80, its warm start at T=0 and 1), 128 packs; scripted play {scripted}.

{doors}

**Training adds {adds} to transfer**; by seed, over packs, {transfer}. Facts
noted, by every fourth rollout: {noted}. A right note adds {worth}
to later reward. Where notes are wrong in place of missing, with half of the keys random, T=0 already notes .95 (warm start
{noisy_best}, trained {noisy_trained}); with all random 48 updates teach nothing ({random_notes} noted first and last, a guess).

## Reward of levers, tested in doors

Demonstrations of both worlds, 160 updates; then 48 whose reward is of levers alone. 128 packs, T=1,
one seed, intervals over packs.

{families}

**What reward taught in levers is not shown to help in doors**: to transfer training adds {in_levers} in levers,
{in_doors} in doors. At T=1 more facts are noted there, {began} before and {ended} after.

**Limits**: intervals are read one by one; no harder world than doors, and seed 3 of it cannot play levers (.95 malformed).
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option in ("--doors", "--noisy_doors", "--families"):
        parser.add_argument(option, type=Path, nargs="*", default=(), metavar="RUN", help="folders of finished runs")
    more = "one of doors with note_accuracy 0 and class_path Doors"
    parser.add_argument("--random_notes", type=Path, metavar="RUN", help=more)
    options, file = parser.parse_args(), RESULTS / "pretrained_doors.json"
    found = json.loads(file.read_text())
    for name in ("doors", "noisy_doors", "families"):
        add(found[name], getattr(options, name))
    if options.random_notes:
        found["random_notes"] = of_rollouts(options.random_notes)
    file.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "pretrained_doors.md").write_text(page(found))
