"""Writes the page of docs/results/references.json, which `references --out` has measured."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

from cod_lightning.markdown import table

STEM = Path("docs/results/references")
ABOUT = """Success (share of tasks solved) at the first and the last position, and mean reward; every position, with 95 %
bootstrap intervals over packs, is in the JSON. *random* answers legally at random; *memoryless* is the scripted policy with its
context hidden from every solve prompt (memory that the world itself gives, where it does, stays); *scripted* has perfect memory
and plays every task as well as we know how (Bayes-optimally where that can be computed); *oracle* knows what is hidden. They
run through the same rollout and evaluation code as a model. The scripted policy is a reference, not a ceiling: a policy that
explores more than pays in early tasks can do better later."""


def page(record: dict[str, Any]) -> str:
    """The page: success at the first and the last position and mean reward by policy, and which lifecycles failed."""
    kinds = [row["policy"] for row in next(iter(record["worlds"].values()))["rows"]]
    rows, left_out = [], []
    for name, world in record["worlds"].items():
        success = (f"{row['success'][0]['mean']:.2f} to {row['success'][-1]['mean']:.2f}" for row in world["rows"])
        reward = (f"{mean(one['mean'] for one in row['reward']):.2f}" for row in world["rows"])
        rows.append([name, *success, *reward])
        if failed := sum(row["failed_lifecycles"] for row in world["rows"]):
            left_out.append(f"{failed} lifecycles of {name} failed and are left out.")
    head = ["environment", *kinds, *(f"reward, {kind}" for kind in kinds)]
    sizes = f"--num_packs {record['num_packs']} --pack_size {record['pack_size']}"
    text = [
        f"# References by position, packs of {record['pack_size']}",
        f"`python -m cod_lightning references {sizes} --out {STEM}.json`: {record['num_packs']} packs of the {record['split']} "
        "split for each world and policy.",
        ABOUT,
        table(head, rows),
        *left_out,
    ]
    return "\n\n".join(text) + "\n"


if __name__ == "__main__":
    STEM.with_suffix(".md").write_text(page(json.loads(STEM.with_suffix(".json").read_text())))
