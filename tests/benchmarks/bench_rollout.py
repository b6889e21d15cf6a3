"""Rollout with the transformers engine against `model.generate` called afresh every turn, side by side.

    PYTHONPATH=. python tests/benchmarks/bench_rollout.py [--packs 32] [--siblings 8] [--repeats 5] [--threads 2]

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

from cod_lightning.engines.base import Completion, Engine, Request, digest
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.types import StopReason
from tests.benchmarks.quick_start import QuickStart, num_sampled


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
    start = QuickStart(args.threads)
    ours = TransformersEngine(max_dialogues=1024)
    ours.bind(start.model, start.chat.stop_ids)
    ours.update_weights(start.model.state_dict().items(), 0)
    theirs = GenerateEngine(start.model, start.chat.end_of_turn, start.chat.pad_id)
    speed: dict[str, list[float]] = {"ours": [], "theirs": []}
    for repeat in range(args.repeats + 1):
        packs = start.packs(args.packs)
        for name, engine in (("ours", ours), ("theirs", theirs)):
            begun = time.perf_counter()
            groups = start.play(engine, packs, args.siblings, seed=repeat)
            seconds = time.perf_counter() - begun
            tokens = num_sampled(groups)
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
