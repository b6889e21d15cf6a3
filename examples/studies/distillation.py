"""On-policy distillation: specialists into one student, a teacher that sees more, and one teacher on the levers, over seeds.

    PYTHONPATH=. python examples/studies/distillation.py --runs runs/distillation [--arms ...] [--seeds 1 2 3] [--page_only]

Every arm of `STUDIES` is `python -m cod_lightning fit` with its arguments, from one warm start a seed; it ends with the rollout in
which it has sampled `BUDGET` tokens. Finished runs are kept. It writes `docs/results/distillation.json` and `distillation.md` from
whatever is finished; runs that the folder lacks stay in the JSON as they were.
"""

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from cod_lightning.markdown import table
from examples.studies.signals import BUDGET, RESULTS, command, finished, folder_of, interval, train

COLD = "warm_start_t0.3"
CONDITIONS = ("trained", "blanked_context", COLD, "warm_start")
SPECIALISTS = {"lake": "specialist on lakes", "alchemy": "specialist on alchemy"}
STUDENT = "student of both"
WORLDS = ("pde", "control", "grid")
STUDENTS = ("student of three, no lag", "student of three, 5 versions behind")
STEPPED = STUDENTS[1]
"""The arm whose checkpoints are kept and tested."""
TEACHER, TEACHER_SEED = "teacher on levers", 100
WORLD = "cod_lightning.rewards.WorldReward"
MEAN = ("--model.credit.mean", "true", "--model.credit.discount", "1.0")
PRIVILEGED = (
    *("--config", "smoke", "--model.terms", "[{class_path: KL, init_args: {coefficient: 0.1, to: teacher}}]"),
    *("--model.scorers.teacher", "PrivilegedScorer"),
)
FORWARD = "[{class_path: KL, init_args: {coefficient: 1.0, to: teacher, estimator: k3}}]"


@dataclass(frozen=True)
class Study:
    """Arms that are compared with the first of them."""

    about: str
    suites: tuple[str, ...]
    arms: dict[str, tuple[str, ...]]


def specialist(world: str, other: str) -> tuple[str, ...]:
    """The mixture's policy and vocabulary, whose packs come from one of its worlds but for one in a billion."""
    return (
        "--config",
        "examples/studies/specialists.yaml",
        "--data.env.init_args.weights",
        json.dumps({world: 1.0, other: 1e-9}),
    )


def jsd(beta: float, coefficient: float) -> str:
    """The divergence from the teacher as the loss's only term."""
    term = "cod_lightning.methods.jsd.JSD"
    return json.dumps([{"class_path": term, "init_args": {"beta": beta, "coefficient": coefficient}}])


def only(world: str) -> tuple[str, ...]:
    """The policy and vocabulary of the three worlds, whose packs come from this one but for one in a billion."""
    weights = {one: 1.0 if one == world else 1e-9 for one in WORLDS}
    return ("--config", "experiment/three_worlds", "--data.env.init_args.weights", json.dumps(weights))


STUDIES: dict[str, Study] = {
    "Three specialists into one student": Study(
        "PDE, Control and Grid, as in the paper's second version: one lifecycle a pack, reverse KL to each specialist, no reward "
        "or clip.",
        WORLDS,
        {
            "all three, by reward": ("--config", "experiment/three_worlds"),
            **{f"specialist on {world}": only(world) for world in WORLDS},
            STUDENTS[0]: ("--config", "experiment/distill_three_worlds", "--data.max_staleness", "0"),
            STUDENTS[1]: ("--config", "experiment/distill_three_worlds"),
        },
    ),
    "Specialists into one student": Study(
        "FrozenLake 3x3 and compact alchemy, without reward; the three policies together sampled three times an arm's tokens.",
        ("lake", "alchemy"),
        {
            "mixture, by reward": ("--config", "examples/studies/specialists.yaml"),
            SPECIALISTS["lake"]: specialist("lake", "alchemy"),
            SPECIALISTS["alchemy"]: specialist("alchemy", "lake"),
            STUDENT: ("--config", "examples/studies/distill_mixture.yaml"),
        },
    ),
    "A teacher that sees more": Study(
        "the teacher is the policy itself, with the oracle's context in every prompt. Why it does not help is open.",
        ("held_out",),
        {
            "reward alone": ("--config", "smoke", *MEAN),
            "privileged teacher and reward": (*PRIVILEGED, *MEAN),
            "privileged teacher alone": (
                *(*PRIVILEGED, *MEAN),
                *("--data.rewards", json.dumps({"world": {"class_path": WORLD, "init_args": {"weight": 0.0}}})),
            ),
        },
    ),
    "Which divergence": Study(
        "no reward; the teacher is the policy of seed 100, trained by reward with three times the tokens.",
        ("held_out",),
        {
            "reverse KL": ("--config", "experiment/distill_levers"),
            "JSD, beta 0.5": ("--config", "experiment/distill_levers", "--model.terms", jsd(0.5, 1.0)),
            "forward KL": ("--config", "experiment/distill_levers", "--model.terms", FORWARD),
            "JSD near forward KL": ("--config", "experiment/distill_levers", "--model.terms", jsd(0.05, 20.0)),
        },
    ),
}


def measured(folder: Path, suites: tuple[str, ...]) -> dict[str, dict[str, list[float]]]:
    """Success by suite, condition and position; of the three worlds, whose tasks are solved in part, reward."""
    found = json.loads((folder / "evaluation.json").read_text())["suites"]
    return {
        name: {
            condition: [
                one["reward" if name in WORLDS else "success"]
                for one in (found[name]["positions"] if condition == "trained" else found[name]["controls"][condition])
            ]
            for condition in CONDITIONS
        }
        for name in suites
    }


def stepped(folder: Path) -> dict[str, dict[str, float]]:
    """Reward, mean over positions, by the updates of a run's kept checkpoints and by suite."""
    found = json.loads((folder / "steps" / "evaluation.json").read_text())["checkpoints"]
    return {
        str(int(re.findall(r"update-(\d+)", at)[-1])): {
            name: mean(one["reward"] for one in record["positions"]) for name, record in suites.items()
        }
        for at, suites in found.items()
    }


def exported(root: Path, arm: str, seed: int) -> str:
    """The folder of a finished run's policy."""
    run = folder_of(root, arm, seed)
    if not (run / "teacher").exists():
        last = str(run / "checkpoints" / "last.ckpt")
        command(root, "export", "--ckpt_path", last, "--out", str(run / "teacher"))
    return str(run / "teacher")


def trained(root: Path, arm: str, arguments: tuple[str, ...], seed: int) -> None:
    """Train an arm, and the teacher where it needs that of the levers; specialists have to be there."""
    of = {"frozen_lake": SPECIALISTS["lake"], "alchemy": SPECIALISTS["alchemy"]} if arm == STUDENT else {}
    if arm in STUDENTS:
        of = {world: f"specialist on {world}" for world in WORLDS}
    if of:
        scorer = "cod_lightning.training.scorers.CheckpointScorer"
        teachers = {
            key: {"class_path": scorer, "init_args": {"path": exported(root, teacher, seed)}}
            for key, teacher in of.items()
        }
        arguments += ("--model.scorers.teacher.init_args.teachers", json.dumps(teachers))
    if arm in STUDIES["Which divergence"].arms:
        train(root, TEACHER, TEACHER_SEED, "--config", "smoke", budget=3 * BUDGET)
        arguments += ("--model.scorers.teacher.init_args.path", exported(root, TEACHER, TEACHER_SEED))
    if arm != STEPPED:
        train(root, arm, seed, *arguments)
        return
    train(root, arm, seed, *arguments, "--checkpoint_every", "8", "--keep_checkpoints", "null")
    folder = folder_of(root, arm, seed)
    if not (folder / "steps").exists():
        suites = yaml.safe_load((folder / "config.yaml").read_text())["data"]["suites"]
        short = [one | {"controls": [], "warm_start_temperatures": []} for one in suites]
        kept = sorted(str(one) for one in (folder / "checkpoints").glob("update-*.ckpt"))
        command(
            *(root, "test", *arguments, "--seed_everything", str(seed), "--ckpt_path", json.dumps(kept)),
            *("--trainer.default_root_dir", str(folder / "steps"), "--data.suites", json.dumps(short)),
        )


def rows_of(study: Study, runs: dict[str, dict[str, Any]]) -> list[list[str]]:
    """An arm a row: the mean over positions in each suite, its difference from the first arm; the warm start's last."""
    base = runs.get(next(iter(study.arms)), {})
    rows = [[name, str(len(runs[name]))] for name in study.arms if len(runs.get(name, ())) > 1 and name not in HIDDEN]
    begun = {seed: one for of in runs.values() for seed, one in of.items()}  # arms of a seed begin with one warm start
    rows += [[COLD, str(len(begun))]]
    for row in rows:
        of, condition = (runs[row[0]], "trained") if row[0] in runs else (begun, row[0])
        for suite in study.suites:
            values = {seed: mean(one[suite][condition]) for seed, one in of.items()}
            less = [value - mean(base[seed][suite]["trained"]) for seed, value in values.items() if seed in base]
            compared = of is not base and less
            row += [
                interval(list(values.values())),
                *[interval(less, signed=True) if compared else ""] * compares(study),
            ]
    return rows


def compares(study: Study) -> bool:
    """Whether differences from the first arm have columns; else a sentence has those of students."""
    return len(study.suites) < 3


def section(title: str, study: Study, runs: dict[str, dict[str, Any]]) -> list[str]:
    """A study of several environments as Markdown."""
    columns = (LESS,) * compares(study)
    head = ["arm", "seeds", *(cell for suite in study.suites for cell in (suite, *columns))]
    lines = [f"## {title}", "", study.about, "", table(head, rows_of(study, runs)), ""]
    first = next(iter(study.arms))
    for arm in (one for one in study.arms if one.startswith("student") and len(runs.get(one, ())) > 1):
        start, specialists = "its warm start at T=0.3", "the specialists"
        for what in (start, specialists) if compares(study) else (start, specialists, f"*{first}*"):
            said = []
            for suite in study.suites:
                specialist = runs.get(SPECIALISTS.get(suite, f"specialist on {suite}"), {})
                of = {start: runs[arm], specialists: specialist}.get(what, runs.get(first, {}))
                less = [
                    mean(one[suite]["trained"]) - mean(of[seed][suite][COLD if what == start else "trained"])
                    for seed, one in runs[arm].items()
                    if seed in of
                ]
                said.append(f"{suite} {interval(less, signed=True)}")
            lines += [f"- Student less {what}: {', '.join(said)}."]
    return lines


def steps(of_seeds: dict[str, dict[str, dict[str, float]]]) -> str:
    """The student of three step by step: its mean reward in each world by updates."""
    common = sorted(set.intersection(*map(set, of_seeds.values())), key=int)
    shown = list(dict.fromkeys([*common[::6], common[-1]]))
    by_world = (
        f"{world} {', '.join(f'{mean(one[updates][world] for one in of_seeds.values()):.3f}' for updates in shown)}"
        for world in WORLDS
    )
    return f"- After {', '.join(shown)} updates *{STEPPED}* has {'; '.join(by_world)}."


def page(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["# On-policy distillation, measured", "", *ABOUT.strip().format(budget=BUDGET).splitlines(), ""]
    on_levers, abouts = list[list[str]](), list[str]()
    for title, study in STUDIES.items():
        runs = found["studies"].get(title, {})
        if len(study.suites) == 1:
            abouts.append(f"- *{title}*: {study.about}")
            on_levers += [[title, *row] for row in rows_of(study, runs)]
            continue
        lines += section(title, study, runs)
        if STEPPED in study.arms and "steps" in found:
            lines += [steps(found["steps"])]
        lines += [""]
    levers = table(["study", "arm", "seeds", "held out", LESS], on_levers)
    return "\n".join([*lines, "## On levers", "", *abouts, "", levers, ""])


LESS = "less the first arm"
HIDDEN = {*SPECIALISTS.values(), *(f"specialist on {world}" for world in WORLDS), "JSD near forward KL"}
"""Arms whose rows are in the JSON alone; sentences have what a student differs by from its specialists."""
ABOUT = """
**Does a teacher help?** Each arm begins with its seed's warm start and ends when it has sampled {budget:,} tokens. Success at
temperature 1 (of pde, control and grid, reward), mean over positions, with 95 % intervals over seeds (Student's t), read
one by one; differences are paired by seed. Specialists, positions, seeds, blanked contexts: [distillation.json](distillation.json).

    PYTHONPATH=. python examples/studies/distillation.py --runs runs/distillation

**Specialists help their student** on lakes and alchemy: it gains over reward on the same mixture, with the specialists' tokens
behind it. **A student of three specialists** comes within .03 of each in its environment, with a third of the packs. Only
students of a teacher with three times the tokens are shown to end above the warm start at T=0.3. **Limits**: tiny policies.
"""


def main() -> None:
    """Train what is missing, measure, write."""
    arms = {name: arguments for study in STUDIES.values() for name, arguments in study.arms.items()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--arms", nargs="+", default=list(arms), choices=list(arms))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true", help="train nothing")
    options = parser.parse_args()
    root = options.runs.resolve()
    if not options.page_only:
        for seed in options.seeds:
            for arm in options.arms:
                trained(root, arm, arms[arm], seed)
    found = json.loads((RESULTS / "distillation.json").read_text())
    for seed, folder in finished(root, STEPPED):
        found.setdefault("steps", {})[seed] = stepped(folder)
    for title, study in STUDIES.items():
        for arm in study.arms:
            for seed, folder in finished(root, arm):
                found["studies"].setdefault(title, {}).setdefault(arm, {})[seed] = measured(folder, study.suites)
    (RESULTS / "distillation.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "distillation.md").write_text(page(found))


if __name__ == "__main__":
    main()
