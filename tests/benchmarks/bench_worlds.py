"""Speed of the worlds without a policy, as JSON: packs drawn, turns taken, copies made; best of a few repeats, one core.

PYTHONPATH=. python tests/benchmarks/bench_worlds.py [--packs 300] [--repeats 5]
"""

import argparse
import copy
import json
import random
import time
from collections.abc import Callable

from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.types import Pack, Split

WORLDS: dict[str, TextEnv] = {
    "lake 3x3 compact": FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact"),
    "lake 4-5 natural": FrozenLakeObscure(),
    "lake 6-7 natural": FrozenLakeObscure(size_min=6, size_max=7, max_turns=10, max_shortest_path=8),
    "levers compact": Levers(protocol="compact"),
}


def play_randomly(env: TextEnv, packs: list[Pack]) -> int:
    """Turns that uniform legal answers took."""
    noun, rng, turns = "Lever" if isinstance(env, Levers) else "Direction", random.Random(0), 0
    answers = [f"<answer>{noun} {code}</answer>" for code in (1, 2, 3, 4)]
    for pack in packs:
        for task in pack.tasks:
            env.reset(options={"task": task})
            ended = False
            while not ended:
                _, _, terminated, truncated, _ = env.step(rng.choice(answers))
                ended, turns = terminated or truncated, turns + 1
    return turns


def per_second(work: Callable[[int], int], repeats: int) -> float:
    """Units of work a second, the best of the repeats; each repeat gets its number, so that it can be work never done."""
    rates = []
    for repeat in range(repeats):
        begun = time.perf_counter()
        done = work(repeat)
        rates.append(done / (time.perf_counter() - begun))
    return max(rates)


def main() -> None:
    """Print one JSON object, an entry for every world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packs", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    speed: dict[str, dict[str, float]] = {}
    for name, env in WORLDS.items():
        drawn: dict[int, list[Pack]] = {}

        def draw(repeat: int, env: TextEnv = env, drawn: dict[int, list[Pack]] = drawn) -> int:
            drawn[repeat] = [
                env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4, seed=repeat) for i in range(options.packs)
            ]
            return options.packs

        packs = per_second(draw, options.repeats)
        new = per_second(lambda r, env=env, drawn=drawn: play_randomly(env, drawn[r]), options.repeats)
        seen = per_second(lambda r, env=env, drawn=drawn: play_randomly(env, drawn[0]), options.repeats)
        copies = per_second(lambda r, env=env: len([copy.deepcopy(env) for _ in range(500)]), options.repeats)
        speed[name] = {
            "ms_per_pack_of_4": round(1e3 / packs, 3),
            "turns_per_s_new_maps": round(new),
            "turns_per_s_seen_maps": round(seen),
            "us_per_copy": round(1e6 / copies),
        }
    print(json.dumps(speed, indent=2))


if __name__ == "__main__":
    main()
