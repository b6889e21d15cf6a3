"""Feeds every world cut, soiled, adversarial and unicode responses, and checks what a world promises; part of `make soak`.

    PYTHONPATH=. python examples/studies/robustness/fuzz_worlds.py [--outputs 20000] [--out docs/results/fuzz_worlds.json]

Exits with 1 at the first world that breaks a promise: an exception, a reward outside its range, a task that outlives its turns,
an observation outside its space, or a response that takes longer than 2 seconds.
"""

import argparse
import copy
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from cod_lightning.envs.base import Players, Reference, TextEnv, TextPolicy, beside
from cod_lightning.types import EpisodeStatus, Message, Role, Split
from tests.envs.cases import WORLDS

ODD = "<>&|`'\"\\/{}()[]%$;*?=+-~\n\t\r\x00\x7f\u00a0\u2003\u200b\u202e\ufeff\ud800\U0001f600é½٣五"
TAGS = (
    "<answer>",
    "</answer>",
    "<|im_end|>",
    "--- End of updated hints ---",
    "__import__('os')",
    "9" * 400,
    "((" * 300,
)


def soiled(text: str, rng: random.Random) -> str:
    """One of many ways to spoil a response, or none."""
    at = rng.randrange(len(text) + 1)
    match rng.randrange(20):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + rng.choice(ODD) + text[at:]
        case 2:
            return text[:at] + rng.choice(TAGS) + text[at:]
        case 3:
            return text + text
        case 4:
            return "".join(
                chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))) for _ in range(rng.randrange(200))
            )
        case 5:
            return text.replace(text[at : at + 2], rng.choice(ODD) * rng.randrange(4)) if text[at : at + 2] else ""
        case 6:
            return text[:at] + text[at:][::-1]
        case 7:
            return text[:at] + rng.choice(ODD) * rng.choice((1, 10, 100_000)) + text[at:]
        case _:
            return text


def tasks(env: TextEnv, rng: random.Random) -> Iterator[tuple[TextEnv, Any, TextPolicy]]:
    """Tasks of fresh packs for ever, each life in a world of its own, with somebody who gives sensible responses."""
    index = 0
    while True:
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3, seed=99)
        policy, world = (
            beside(env, Players).reference(rng.choice((Reference.RANDOM, Reference.SCRIPTED)), pack),
            copy.deepcopy(env),
        )
        for task in pack.tasks:
            yield world, task, policy
        index += 1


def fuzz(name: str, num_outputs: int) -> dict[str, Any]:
    """Counts of one world; AssertionError where a promise is broken."""
    case, rng = WORLDS[name], random.Random(name)
    statuses: Counter[str] = Counter()
    left, slowest = num_outputs, 0.0
    for world, task, policy in tasks(case.make(), rng):
        observation, _ = world.reset(options={"task": task})
        messages, turns, ended = [Message(Role.SYSTEM, world.rules), Message(Role.USER, observation)], 0, False
        while not ended:
            response = soiled(policy.act(messages, rng), rng)
            begun = time.perf_counter()
            observation, reward, terminated, truncated, info = world.step(response)
            slowest = max(slowest, time.perf_counter() - begun)
            left, turns, ended = left - 1, turns + 1, terminated or truncated
            low, high = world.traits.reward_range
            assert low <= reward <= high, f"{name}: reward {reward} for {response[:200]!r}"
            assert info == {}, f"{name}: info {info}"
            assert world.observation_space.contains(observation), (
                f"{name}: {observation[:300]!r} for {response[:200]!r}"
            )
            assert len(observation) < 20_000, f"{name}: {len(observation)} letters shown"
            messages += [Message(Role.ASSISTANT, response), Message(Role.USER, observation)]
        assert turns <= world.max_turns, f"{name}: {turns} turns"
        assert slowest < 2, f"{name}: a step took {slowest:.1f} s"
        statuses[EpisodeStatus(world.status)] += 1
        if left <= 0:
            return {"outputs": num_outputs - left, "slowest_step_ms": round(1e3 * slowest, 1), **statuses}
    raise AssertionError("unreachable")


def main() -> int:
    """All worlds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=int, default=20_000, help="for each world, shared by its cases")
    parser.add_argument("--worlds", default="", help="cases, comma between; all if empty")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = options.worlds.split(",") if options.worlds else list(WORLDS)
    shares = Counter(name.partition("-")[0] for name in names)
    counts = {name: -(-options.outputs // shares[name.partition("-")[0]]) for name in names}
    found = {
        name: fuzz(name, counts[name]) for name in track(names, description="fuzzing", console=Console(stderr=True))
    }
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
