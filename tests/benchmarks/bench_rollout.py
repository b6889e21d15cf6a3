"""Rollout with the transformers engine against `model.generate` called afresh every turn, side by side.

    python tests/benchmarks/bench_rollout.py [--packs 32] [--siblings 8] [--repeats 5] [--threads 2]

Same policy (the quick start's warm start), same packs, same world, same rollout code; only the engine differs. The other
engine waits until every lifecycle waits, left-pads their whole prompts and calls `generate`, which prefills everything again.
It is spared what ours also does: behaviour log-probs, keyed noise, a digest of the prompt.
"""

import argparse
import asyncio
import json
import statistics
import time

import torch
from transformers import PreTrainedModel

from cod_lightning.commands.train import quieten
from cod_lightning.commands.warm_start import ensure_warm_start
from cod_lightning.contexts import HintContext
from cod_lightning.engines.base import Completion, Engine, Request, digest
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.rollout.group import run_groups
from cod_lightning.types import Split, StopReason


class GenerateEngine(Engine):
    """`model.generate` over all whole prompts that wait."""

    def __init__(self, model: PreTrainedModel, stop_id: int, pad_id: int) -> None:
        self.model, self.stop_id, self.pad_id = model, stop_id, pad_id
        self.waiting: list[tuple[Request, asyncio.Future[Completion]]] = []

    async def generate(self, request: Request) -> Completion:
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.waiting.append((request, future))
        if len(self.waiting) == 1:
            self.task = asyncio.create_task(self.serve())
        return await future

    @torch.inference_mode()
    async def serve(self) -> None:
        await asyncio.sleep(0)
        batch, self.waiting = self.waiting, []
        prompts = [list(request.prompt_ids) for request, _ in batch]
        longest = max(map(len, prompts))
        ids = torch.tensor([[self.pad_id] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        out = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=batch[0][0].max_new_tokens,
            do_sample=True,
            top_k=0,
            eos_token_id=self.stop_id,
            pad_token_id=self.pad_id,
        )
        for (request, future), row in zip(batch, out[:, longest:].tolist(), strict=True):
            action = row[: row.index(self.stop_id) + 1] if self.stop_id in row else row
            future.set_result(
                Completion(
                    action_ids=tuple(action),
                    behaviour_logprobs=(0.0,) * len(action),
                    stop=StopReason.STOP if action[-1] == self.stop_id else StopReason.LENGTH,
                    policy_version=0,
                    prompt_digest=digest(request.prompt_ids),
                )
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("packs", 32), ("siblings", 8), ("repeats", 5), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    quieten()
    weights = ensure_warm_start("warm_start/frozen_lake_3x3", 1, None)
    torch.set_num_threads(args.threads)
    world = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, max_shortest_path=6, protocol="compact")
    mechanism = HintContext(protocol="compact")
    policy = TinyPolicy(weights=str(weights))
    tokenizer = policy.tokenizer(world.words() + mechanism.words())
    model, chat = policy.model(tokenizer).eval(), Chat(tokenizer)
    ours = TransformersEngine(max_dialogues=1024)
    ours.bind(model, chat.stop_ids)
    ours.update_weights(model.state_dict().items(), 0)
    theirs = GenerateEngine(model, chat.end_of_turn, tokenizer.pad_token_id)
    speed: dict[str, list[float]] = {"ours": [], "theirs": []}
    for repeat in range(args.repeats + 1):
        packs = [world.sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(args.packs)]
        for name, engine in (("ours", ours), ("theirs", theirs)):
            speaker = Speaker(engine=engine, chat=chat, window=96, max_new_tokens=8, seed=repeat)
            begun = time.perf_counter()
            groups = run_groups(packs, args.siblings, world=world, mechanism=mechanism, speaker=speaker)
            seconds = time.perf_counter() - begun
            tokens = sum(e.num_action_tokens for g in groups for x in g.lifecycles for e in x.episodes)
            if repeat:  # the first pass warms up
                speed[name].append(tokens / seconds)
    ratios = [a / b for a, b in zip(speed["ours"], speed["theirs"], strict=True)]
    result = {
        "lifecycles": args.packs * args.siblings,
        "engine_tokens_s": round(statistics.median(speed["ours"])),
        "generate_every_turn_tokens_s": round(statistics.median(speed["theirs"])),
        "ratio_median": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
