"""The engine that remembers nothing: `model.generate` over whole prompts, afresh every turn.

Without a stop id every turn has all its tokens. It waits until every lifecycle waits, left-pads their prompts and prefills
everything again. It is spared what ours also does: behaviour log-probs, keyed noise, a digest of what was conditioned on.
"""

import asyncio

import torch
from transformers import PreTrainedModel

from cod_lightning.engines.base import Completion, Engine, Request, digest
from cod_lightning.types import StopReason


class GenerateEngine(Engine):
    """`model.generate` over all whole prompts that wait."""

    def __init__(self, model: PreTrainedModel, stop_id: int | None, pad_id: int) -> None:
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
            max_new_tokens=(most := batch[0][0].max_new_tokens),
            min_new_tokens=most if self.stop_id is None else None,
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
