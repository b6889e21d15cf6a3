"""Rollout of the tiny policy with the transformers engine against `model.generate` called afresh every turn.

    python tests/benchmarks/bench_rollout.py [--packs 32] [--siblings 8] [--repeats 5] [--threads 2]

The very same turns are compared: the lifecycles of one rollout are recorded, then each of their turns' whole prompts goes
through `generate` again, as early stacks did: all siblings wait for one another at every turn, prompts are left-padded,
nothing is kept. Both sides sample at temperature 1 and are made to produce exactly the recorded number of tokens.
"""

import argparse
import json
import statistics
import time

import torch

from cod_lightning.contexts import HintContext
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs import FrozenLakeObscure
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.rollout.group import run_groups
from cod_lightning.types import Group, Split


def recorded_turns(groups: list[Group]) -> list[list[tuple[list[int], int]]]:
    """Steps of the whole rollout; each holds (prompt ids, number of action tokens) of every lifecycle still going."""
    lives = [[*_prompts(x)] for group in groups for x in group.lifecycles]
    return [[life[i] for life in lives if i < len(life)] for i in range(max(map(len, lives)))]


def _prompts(lifecycle):
    for episode in lifecycle.episodes:
        ids: list[int] = []
        for turn in episode.turns:
            ids += turn.new_ids
            yield list(ids), len(turn.action_ids)
            ids += turn.action_ids


@torch.inference_mode()
def replay_with_generate(model, steps, pad_id: int) -> int:
    """Call `generate` once for each step, prefilling every whole prompt again."""
    tokens = 0
    for step in steps:
        longest = max(len(ids) for ids, _ in step)
        num_new = max(n for _, n in step)
        ids = torch.tensor([[pad_id] * (longest - len(prompt)) + prompt for prompt, _ in step])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in step])
        model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=True,
            top_k=0,
            pad_token_id=pad_id,
        )
        tokens += sum(n for _, n in step)
    return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("packs", 32), ("siblings", 8), ("repeats", 5), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    world = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, max_shortest_path=6, protocol="compact")
    mechanism = HintContext(protocol="compact")
    policy = TinyPolicy()
    tokenizer = policy.tokenizer(world.words() + mechanism.words())
    model = policy.model(tokenizer).eval()
    engine = TransformersEngine(max_dialogues=1024)
    chat = Chat(tokenizer)
    engine.bind(model, chat.stop_ids)
    engine.update_weights(model.state_dict().items(), 0)
    ours, theirs = [], []
    for repeat in range(args.repeats + 1):
        packs = [world.sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(args.packs)]
        speaker = Speaker(engine=engine, chat=chat, window=96, max_new_tokens=7, seed=repeat)
        start = time.perf_counter()
        groups = run_groups(packs, args.siblings, world=world, mechanism=mechanism, speaker=speaker)
        seconds = time.perf_counter() - start
        steps = recorded_turns(groups)
        start = time.perf_counter()
        tokens = replay_with_generate(model, steps, tokenizer.pad_token_id)
        replay_seconds = time.perf_counter() - start
        if repeat:  # the first pass warms up
            ours.append(tokens / seconds)
            theirs.append(tokens / replay_seconds)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    result = {
        "lifecycles": args.packs * args.siblings,
        "engine_tokens_s": round(statistics.median(ours)),
        "generate_every_turn_tokens_s": round(statistics.median(theirs)),
        "ratio_median": round(ratio, 2),
        "ratios": [round(a / b, 2) for a, b in zip(ours, theirs, strict=True)],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
