"""The page of the pretrained language model in doors, from pretrained_doors.json.

    PYTHONPATH=. python examples/studies/pretrained_doors.py [--doors RUN ...]
        [--noisy_doors RUN ...] [--random_notes RUN] [--families RUN ...] [--families_back RUN ...]
        [--levers TEST ...]

Writes docs/results/pretrained_doors.md. The figures of finished runs of `pretrained_doors.yaml`, `pretrained_families.yaml` and
`pretrained_families_back.yaml`, one a seed, first replace those of their seeds in pretrained_doors.json; so do those of `test` runs
of the latter at any temperature, all of a seed together. Measures nothing.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cod_lightning.evaluation.crossed import seed_estimate
from cod_lightning.evaluation.intervals import SHARE, bootstrap
from cod_lightning.markdown import table
from cod_lightning.rollout import transcript
from examples.studies.note_worth import counted
from examples.studies.pretrained import BEST, RESULTS, SEEN, SHOWN, add, best, interval, line, of_rollouts, of_seeds

POLICIES = ("warm_start", "trained")


def page(own: dict[str, Any]) -> str:
    """The page."""
    doors, noisy, random = own["doors"], own["noisy_doors"]["seeds"][SEEN], own["random_notes"]["noted"]
    (mixed,), (back,) = (own[name]["cpu"].values() for name in ("families", "families_back"))
    by_seed = [of[SEEN]["training_adds"]["difference"] for of in doors["cpu"].values()]
    rollouts = [of["noted_in_doors"] for _, of in sorted(own["levers"].items())]
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
        families=of_families({"Levers": mixed, "Doors": back}),
        back_seeds=len(rollouts),
        back_blanked="; ".join(
            line(cold["blanked"])
            for _, of in sorted(own["levers"].items())
            if "blanked" in (cold := of["by_temperature"]["0"])
        ),
        back_began=line(noted / seen for ((noted, seen), *_) in rollouts),
        back_ended=line(noted / seen for (*_, (noted, seen)) in rollouts),
        levers=by_temperature(own["levers"]),
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


def of_families(runs: dict[str, dict[str, Any]]) -> str:
    """By the world whose reward a run had: success by position in both worlds, and how many facts were noted."""
    rows = []
    for rewarded, found in runs.items():
        for suite in ("levers", "doors"):
            of = found[suite]
            for policy in ("trained", "blanked_context", BEST):
                key = best(of["success"]) if policy == BEST else policy
                if key in of["success"]:
                    less = interval(of["less"][key]) if key in of["less"] else ""
                    noted = f"{of['notes'][key]['noted']:.2f}" if key in of["notes"] else ""
                    success = (f"{one:.2f}" for one in of["success"][key])
                    rows.append([rewarded, f"{suite}: {SHOWN[policy]}", *success, less, noted])
    return table(["reward", "policy", "0", "1", "2", "3", "trained less it, in the mean", "seen facts noted"], rows)


def of_levers(tests: Iterable[Path]) -> dict[str, Any]:
    """By seed and temperature, what warm start and trained policy solve and note in levers, on the packs that both played."""
    files: dict[str, dict[str, dict[str, Path]]] = {}
    noted: dict[str, list[list[int]]] = {}
    for test in tests:
        suite = json.loads((test / "evaluation.json").read_text())["suites"]["levers"]
        seed, run = trained_in(suite)
        noted[seed] = of_rollouts(run)["noted"]
        of_seed = files.setdefault(seed, {})
        for name in ("trained", "warm_start", "warm_start_t0.0", "blanked_context"):
            file = test / "lifecycles" / f"test_levers_{name}.jsonl"
            if file.exists():
                temperature = 0.0 if name.endswith("t0.0") else suite["temperature"]
                of_seed.setdefault(f"{temperature:g}", {})[name.removesuffix("_t0.0")] = file
    return {
        seed: {
            "noted_in_doors": noted[seed],
            "by_temperature": {at: apart(**of) for at, of in sorted(by.items())},
        }
        for seed, by in files.items()
    }


def trained_in(suite: dict[str, Any]) -> tuple[str, Path]:
    """The seed and the folder of the run whose checkpoint was tested."""
    run = Path(suite["checkpoint"]).parents[1]
    return f"seed {yaml.safe_load((run / 'config.yaml').read_text())['seed_everything']}", run


def apart(warm_start: Path, trained: Path, blanked_context: Path | None = None) -> dict[str, Any]:
    """Success by position of both, and how many facts they note; what training adds after the first task, over packs; success
    of the trained policy with its context blanked, where that was played."""
    before, after = solved(warm_start), solved(trained)
    packs = sorted(before.keys() & after.keys())
    success = np.array([[*before[pack], *after[pack]] for pack in packs], dtype=float)
    n = success.shape[1] // 2
    later = np.r_[0.0, np.full(n - 1, 1 / (n - 1))]
    (adds,) = bootstrap(success, np.r_[-later, later][None], limits=SHARE)
    means = success.mean(axis=0).reshape(2, n).tolist()
    noted = [one.shares["noted"] for file in (warm_start, trained) for one in counted(file).values()]
    found = {"packs": len(packs), **dict(zip(("warm_start", "trained"), means, strict=True)), "noted": noted}
    found["adds"] = [adds.mean, *adds.ci95]
    if blanked_context:
        found["blanked"] = np.mean([*solved(blanked_context).values()], axis=0).tolist()
    return found


def solved(file: Path) -> dict[str, list[bool]]:
    """By pack, which of its tasks were solved."""
    return {group.pack.id: [bool(one.success) for one in group.lifecycles[0].solves] for group in transcript.read(file)}


def by_temperature(seeds: dict[str, Any]) -> str:
    """What warm start and trained policy solve and note in levers at each temperature: means over seeds, differences with Student's
    intervals over them, and each seed's."""
    rows = []
    for at in ("0", "1"):
        every = [of["by_temperature"][at] for _, of in sorted(seeds.items())]
        solved_by, noted = (
            [np.mean([of[name] for of in every], axis=0) for name in names] for names in (POLICIES, ["noted"])
        )
        more = [of["noted"][1] - of["noted"][0] for of in every]
        adds = [of["adds"][0] for of in every]
        less = (over_seeds(values) + f" ({', '.join(f'{one:+.2f}' for one in values)})" for values in (adds, more))
        rows.append([at, *map(line, solved_by), *map(line, noted), *less])
    return table(
        [
            "T",
            "warm start",
            "trained",
            "noted by each",
            "trained solves more after the first task (by seed)",
            "notes more",
        ],
        rows,
    )


def over_seeds(values: Sequence[float]) -> str:
    """Their mean, with its interval."""
    one = seed_estimate(np.array(values))
    return interval([one.mean, *(one.ci95 or ())])


PAGE = """# A language model in a second world

**Does reward teach notes in doors, and reward of one world notes in the other?** [Model and method](pretrained.md) are of levers.

    python -m cod_lightning fit --config examples/studies/pretrained_doors.yaml
    python -m cod_lightning fit --config examples/studies/pretrained_families.yaml    # and pretrained_families_back.yaml

Six doors, four keys; an open door shows two more. Demonstrated notes have a fifth of the facts, never wrong. 96 updates (seed 3:
80, its warm start at T=0 and 1), 128 packs; scripted play {scripted}.

{doors}

**Training adds {adds} to transfer**; by seed, over packs, {transfer}. Facts
noted, by every fourth rollout: {noted}. A right note adds {worth}
to later reward. Where notes are wrong in place of missing, with half of the keys random, T=0 already notes .95 (warm start
{noisy_best}, trained {noisy_trained}); with all random 48 updates teach nothing ({random_notes} noted first and last, a guess).

## Reward of one world, tested in the other

Demonstrations of both worlds, one seed, T=1, intervals over packs. *Levers*: 48 updates whose reward is of levers alone, 128 packs.
*Doors*: 32 whose reward is of doors, which show three facts a task and levers one; notes lack .6 of the facts, with the same words
for none in both; 128 packs of levers, 64 of doors, warm start at T=1.

{families}

- **What reward taught in levers is not shown to help in doors**: to transfer training adds {in_levers} in levers,
  {in_doors} in doors. At T=1 more facts are noted there, {began} before and {ended} after.
- **Reward of doors alone teaches notes in levers**, in each of {back_seeds} seeds, at T=0, where a warm start is at its surest, as
  at T=1 (64 packs; over seeds Student's t; seed 4: 24 updates; rewarded doors: facts noted {back_began} first,
  {back_ended} last). With its context blanked the trained policy solves {back_blanked} at T=0,
  from seed 2 on. That they solve more at T=0 is not shown over seeds.

{levers}

**Limits**: intervals are read one by one; no harder world than doors; seed 3 of doors cannot play levers (.95
malformed).
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ("doors", "noisy_doors", "families", "families_back")
    for option in names:
        parser.add_argument(
            f"--{option}", type=Path, nargs="*", default=(), metavar="RUN", help="folders of finished runs"
        )
    more = "one of doors with note_accuracy 0 and class_path Doors"
    parser.add_argument("--random_notes", type=Path, metavar="RUN", help=more)
    parser.add_argument(
        "--levers", type=Path, nargs="*", metavar="TEST", help="of families_back, the larger of two tests last"
    )
    options, file = parser.parse_args(), RESULTS / "pretrained_doors.json"
    found = json.loads(file.read_text())
    for name in names:
        add(found.setdefault(name, {"cpu": {}}), getattr(options, name))
    if options.random_notes:
        found["random_notes"] = of_rollouts(options.random_notes)
    if options.levers:
        found.setdefault("levers", {}).update(of_levers(options.levers))
    file.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "pretrained_doors.md").write_text(page(found))
