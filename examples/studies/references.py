"""Random, memoryless, scripted and oracle play of the shipped worlds, measured by position.

    PYTHONPATH=. python examples/studies/references.py [--num_packs 200] [--pack_size 4]

Writes docs/results/references.json and .md.
"""

import argparse
import json
import math
from pathlib import Path
from statistics import mean
from typing import Any

from cod_lightning.commands.shipped import files_of
from cod_lightning.commands.worlds import parse_world
from cod_lightning.contexts import default_mechanism
from cod_lightning.envs.base import HiddenRules, TextEnv, Vocabulary, beside
from cod_lightning.evaluation.controls import REFERENCES
from cod_lightning.evaluation.intervals import Estimate
from cod_lightning.evaluation.references import ReferenceRow, play_reference, summarise
from cod_lightning.markdown import table
from cod_lightning.types import Split
from tests.own_worlds import own_worlds

STEM = Path("docs/results/references")
SHOWN = ("random", "memoryless", "scripted")
ABOUT = """
**What do players without a model reach?** *Random* answers legally at random; *memoryless* is the scripted policy with its context
hidden; *scripted* has perfect memory and plays every task as well as we know how, which is no ceiling; *oracle* knows what is
hidden and solves all.

    {command}

Success at the first and the last position, and mean reward, in {packs} packs of the {split} split; every position, with 95 %
intervals over packs, is in [references.json](references.json).
"""


def page(record: dict[str, Any]) -> str:
    """The page: success at the first and the last position and mean reward by policy, and which lifecycles failed."""
    rows, left_out = [], []
    for name, world in record["worlds"].items():
        if name not in files_of("env"):  # it no longer ships
            continue
        of = {row["policy"]: row for row in world["rows"]}
        success = (f"{of[kind]['success'][0]['mean']:.2f} to {of[kind]['success'][-1]['mean']:.2f}" for kind in SHOWN)
        reward = (f"{mean(one['mean'] for one in of[kind]['reward']):.2f}" for kind in SHOWN[1:])
        rows.append([name, *success, *reward])
        if failed := sum(row["failed_lifecycles"] for row in world["rows"]):
            left_out.append(f"{failed} lifecycles of {name} failed and are left out.")
    head = ["environment", *SHOWN, *(f"reward, {kind}" for kind in SHOWN[1:])]
    sizes = f"--num_packs {record['num_packs']} --pack_size {record['pack_size']}"
    command = f"PYTHONPATH=. python examples/studies/references.py {sizes}"
    about = ABOUT.strip().format(command=command, packs=record["num_packs"], split=record["split"])
    text = [f"# References by position, packs of {record['pack_size']}", about, table(head, rows), *left_out]
    return "\n\n".join(text) + "\n"


def measured(world: TextEnv, num_packs: int, pack_size: int) -> list[dict[str, Any]]:
    """A row for each reference, over the same packs."""
    packs = [world.sample_pack(split=Split.TEST, index=index, num_tasks=pack_size) for index in range(num_packs)]
    mechanism = default_mechanism(compact=bool(beside(world, Vocabulary).words()))
    rules = [beside(world, HiddenRules).hidden_rule(pack) for pack in packs]
    lives = [list(play_reference(world, packs, one.reference, mechanism, blanked=one.blanked)) for one in REFERENCES]
    return [_record(one.name, summarise(of, rules)) for one, of in zip(REFERENCES, lives, strict=True)]


def _record(name: str, row: ReferenceRow) -> dict[str, Any]:
    return {
        "policy": name,
        "packs": row.num_packs,
        "failed_lifecycles": row.num_failed,
        "malformed_episodes": row.num_malformed,
        "success": [_numbers(one) for one in row.success],
        "reward": [_numbers(one) for one in row.reward],
    }


def _numbers(estimate: Estimate) -> dict[str, float | None]:
    values = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
    return {key: None if math.isnan(value) else round(value, 4) for key, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_packs", type=int, default=200)
    parser.add_argument("--pack_size", type=int, default=4)
    sizes = vars(parser.parse_args())
    worlds = {}
    for name in own_worlds():
        world = parse_world("check", "", ["--env", name]).env
        worlds[name] = {"identity": world.name, "rows": measured(world, **sizes)}
    record = {**sizes, "split": "test", "worlds": worlds}
    STEM.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    STEM.with_suffix(".md").write_text(page(record))


if __name__ == "__main__":
    main()
