"""Speed of evaluation against that of a training rollout: same policy, same world, same number of lifecycles, one process.

    PYTHONPATH=. python tests/benchmarks/bench_evaluation.py [--lifecycles 256] [--repeats 9] [--threads 1] [--config smoke]

A training rollout plays packs with 8 siblings each; an evaluation plays a suite under its first two conditions (trained,
context blanked), each with as many lifecycles, each lifecycle through a pack of its own that shares its first prompt with no other.
Both go through the DataModule, with packs drawn and drift counted, as in a run. The two
alternate; the ratio is that of tokens by second of processor time, which other processes on the machine disturb less than the
clock. Within 5 % of 1 it should stay.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from cod_lightning.commands.config_files import expand
from cod_lightning.commands.train import TrainCLI, made
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.evaluation.play import play
from cod_lightning.evaluation.suite import Suite
from cod_lightning.types import Group, Split
from tests.benchmarks.results import Table, report, spread

SIBLINGS = 8


def served(config: str) -> RolloutDataModule:
    """The config's DataModule with its warm start in the engine."""
    cli = made(TrainCLI, expand(["--config", config]))
    data: RolloutDataModule = cli.datamodule
    policy = cli.model.policy
    data.check_with(policy)
    model = policy.model(data.chat.tokenizer).eval()
    data.engine.bind(model, data.chat.stop_ids)
    data.engine.update_weights(model.state_dict().items(), 0)
    data.trainer = SimpleNamespace(lightning_module=cli.model, global_step=0, global_rank=0, default_root_dir=".")  # pyright: ignore
    return data


def tokens_per_second(roll: Callable[[], list[Group]]) -> tuple[float, float]:
    """Sampled tokens by the second: of the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    groups = roll()
    seconds = time.perf_counter() - clock, time.process_time() - processor
    tokens = sum(e.num_action_tokens for g in groups for x in g.lifecycles for e in x.episodes)
    return tokens / seconds[0], tokens / seconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("lifecycles", 256), ("repeats", 9), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--config", choices=("smoke", "quickstart"), default="smoke")
    args = parser.parse_args()
    data: Any = served(args.config)
    torch.set_num_threads(args.threads)
    num_packs, size = args.lifecycles // SIBLINGS, data.pack_size
    speed: dict[str, list[tuple[float, float]]] = {"training": [], "evaluation": []}
    for repeat in range(args.repeats + 1):

        def train(repeat: int = repeat) -> list[Group]:
            drawn = range(repeat * num_packs, (repeat + 1) * num_packs)
            packs = [data.env.sample_pack(split=Split.TRAIN, index=i, num_tasks=size, seed=data.seed) for i in drawn]
            return data.runner.run("train", lambda: data.groups("train", packs, SIBLINGS))

        def evaluate(repeat: int = repeat) -> list[Group]:
            suite = Suite(name=f"bench-{repeat}", num_packs=num_packs * SIBLINGS, pack_size=size, seed=repeat)
            packs, setting = suite.packs(data.env), data._setting(1.0)
            return [
                g
                for c in suite.conditions()[:2]
                for g in data.runner.run(c.label, partial(play, suite, c, packs, setting))
            ]

        for name, roll in (("training", train), ("evaluation", evaluate)):
            found = tokens_per_second(roll)
            if repeat:  # the first pass warms up
                speed[name].append(found)
    ratios = [a[1] / b[1] for a, b in zip(speed["evaluation"], speed["training"], strict=True)]
    rows = [
        {
            "what": name,
            "tokens_s": spread([one[0] for one in found]),
            "tokens_processor_s": spread([one[1] for one in found]),
        }
        for name, found in speed.items()
    ]
    rows[1]["times_training"] = spread(ratios)
    about = "Sampled tokens a second, by the clock and by the processor's."
    report(Table(name="evaluation against training rollouts", about=f"{__doc__.splitlines()[0]} {about}", rows=rows))


if __name__ == "__main__":
    main()
