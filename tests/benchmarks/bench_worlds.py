"""Speed of the worlds without a policy, one core: packs drawn, turns taken, copies made.

    PYTHONPATH=. python tests/benchmarks/bench_worlds.py [--worlds levers,alchemy_easy] [--packs 100] [--repeats 5]

A turn is one `step` (and its share of `reset`) with a response that a random or a scripted reference once gave in the same
task; the references' own time is not counted. Some worlds cache what a task's map implies, so it was seen before, as by the
siblings of a group. The best of the repeats counts.
"""

import argparse
import copy
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cod_lightning.commands.worlds import own_worlds, parse_world, world_parser
from cod_lightning.envs.base import Players, Reference, TextEnv, beside
from cod_lightning.types import Message, Pack, Role, Split, Task
from tests.benchmarks.results import Table, report


@dataclass(frozen=True)
class Played:
    """A task and what was answered in it."""

    task: Task
    responses: tuple[str, ...]


def record(env: TextEnv, pack: Pack) -> list[Played]:
    """The pack as the random and as the scripted reference answer it."""
    played: list[Played] = []
    for kind in (Reference.RANDOM, Reference.SCRIPTED):
        world, policy, rng = copy.deepcopy(env), beside(env, Players).reference(kind, pack), random.Random(0)
        for task in pack.tasks:
            observation, _ = world.reset(options={"task": task})
            messages, responses, ended = [Message(Role.SYSTEM, world.rules), Message(Role.USER, observation)], [], False
            while not ended:
                responses.append(policy.act(messages, rng))
                observation, _, terminated, truncated, _ = world.step(responses[-1])
                messages += [Message(Role.ASSISTANT, responses[-1]), Message(Role.USER, observation)]
                ended = terminated or truncated
            played.append(Played(task, tuple(responses)))
    return played


def replay(env: TextEnv, lives: Sequence[list[Played]]) -> int:
    """Turns taken, each life in a world of its own."""
    turns = 0
    for life in lives:
        world = copy.deepcopy(env)
        for played in life:
            world.reset(options={"task": played.task})
            for response in played.responses:
                world.step(response)
            turns += len(played.responses)
    return turns


def per_second(work: Callable[[int], int], repeats: int) -> float:
    """Units of work a second, the best of the repeats; each repeat gets its number, so that it can be work never done."""
    rates = []
    for repeat in range(repeats):
        begun = time.perf_counter()
        done = work(repeat)
        rates.append(done / (time.perf_counter() - begun))
    return max(rates)


def measure(name: str, num_packs: int, repeats: int) -> dict[str, float]:
    """Figures of one world."""

    def build() -> TextEnv:
        return parse_world(world_parser("bench", ""), ["--env", name]).env

    env = build()
    drawn: dict[int, list[Pack]] = {}

    def draw(repeat: int) -> int:
        drawn[repeat] = [
            env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4, seed=repeat) for i in range(num_packs)
        ]
        return num_packs

    packs = per_second(draw, repeats)
    recorded = [record(env, pack) for pack in drawn[0]]
    seen = per_second(lambda repeat: replay(env, recorded), repeats)
    copies = per_second(lambda repeat: len([copy.deepcopy(env) for _ in range(200)]), repeats)
    return {
        "ms_per_pack_of_4": round(1e3 / packs, 3),
        "turns_per_s": round(seen),
        "us_per_copy": round(1e6 / copies),
    }


def main() -> None:
    """Measure the chosen worlds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--worlds", default="", help="names from `python -m cod_lightning worlds`, comma between; all if empty"
    )
    parser.add_argument("--packs", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    names = options.worlds.split(",") if options.worlds else own_worlds()
    rows = [{"world": name, **measure(name, options.packs, options.repeats)} for name in names]
    report(Table(name="worlds", about=__doc__.splitlines()[0], rows=rows))


if __name__ == "__main__":
    main()
