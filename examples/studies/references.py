"""Writes the page of docs/results/references.json, which `references --out` has measured."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

from cod_lightning.commands.shipped import files_of
from cod_lightning.markdown import table

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
    command = f"python -m cod_lightning references {sizes} --out {STEM}.json"
    about = ABOUT.strip().format(command=command, packs=record["num_packs"], split=record["split"])
    text = [f"# References by position, packs of {record['pack_size']}", about, table(head, rows), *left_out]
    return "\n\n".join(text) + "\n"


if __name__ == "__main__":
    STEM.with_suffix(".md").write_text(page(json.loads(STEM.with_suffix(".json").read_text())))
