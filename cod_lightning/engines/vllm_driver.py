"""Steps vLLM while any coroutine waits for it, so that every lifecycle goes on by itself."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from cod_lightning.engines.base import Request
from cod_lightning.engines.vllm_start import sampling_fields
from cod_lightning.errors import EngineFailure

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]
    from vllm.v1.engine.llm_engine import LLMEngine  # pyright: ignore[reportMissingImports]


@dataclass(slots=True)
class _VLLMRequest:
    """A request in flight, and the future of its output."""

    request: Request
    sampling: dict[str, Any]
    future: "asyncio.Future[Any]"


class Driver:
    """Hands requests in and outputs back.

    Args:
        llm: A vLLM that runs in this process and has no other user.
        stop_ids: Ids that end a turn; no others do, not even those of the checkpoint's own settings.
    """

    def __init__(self, llm: "LLMEngine", stop_ids: list[int]) -> None:
        self.llm, self.stop_ids = llm, stop_ids
        self.adapter: "LoRARequest | None" = None
        """What requests are sampled with, beside the base."""
        self._num_requests = 0
        self._waiting: list[_VLLMRequest] = []
        self._in_flight: dict[str, _VLLMRequest] = {}
        self._driving: asyncio.Task[None] | None = None

    @property
    def num_live(self) -> int:
        return sum(not turn.future.done() for turn in (*self._waiting, *self._in_flight.values()))

    async def sample(self, request: Request) -> Any:
        """vLLM's output for one turn; joins the batch at the next token. A caller who is cancelled takes the request along."""
        loop, sampling = asyncio.get_running_loop(), sampling_fields(request, self.stop_ids)
        if self._driving is None or self._driving.get_loop() is not loop:
            self.forget()
        turn = _VLLMRequest(request, sampling, loop.create_future())
        self._waiting.append(turn)
        if self._driving is None or self._driving.done():
            self._driving = loop.create_task(self._drive())
        return await turn.future

    def forget(self) -> None:
        """Drop every request, for example those of an event loop that is gone."""
        self._waiting, self._driving = [], None
        self._abort(list(self._in_flight))

    async def _drive(self) -> None:
        """One token for all requests in flight, again and again; an exception reaches all callers."""
        try:
            while True:
                await asyncio.sleep(0)  # every lifecycle that can go on now hands in its next request
                self._hand_in()
                self._abort([name for name, turn in self._in_flight.items() if turn.future.done()])  # cancelled
                if not self._in_flight:
                    return
                with torch.random.fork_rng(devices=[]):  # on a CPU, sampling draws from torch's global generator too
                    outputs = self.llm.step()
                for output in outputs:
                    turn = self._in_flight[output.request_id]
                    ends = turn.request.ends
                    if output.finished:
                        del self._in_flight[output.request_id]
                    elif ends is not None and ends(output.outputs[0].token_ids):
                        self._abort([output.request_id])
                    else:
                        continue
                    turn.future.set_result(output)
        except Exception as error:
            self._fail(EngineFailure(f"vLLM raised {type(error).__name__}: {error}"))

    def _hand_in(self) -> None:
        turns, self._waiting = self._waiting, []
        for turn in turns:
            if turn.future.done():
                continue
            from vllm.sampling_params import RequestOutputKind, SamplingParams  # pyright: ignore[reportMissingImports]

            self._num_requests += 1
            name = str(self._num_requests)
            prompt: Any = {"type": "token", "prompt_token_ids": list(turn.request.prompt_ids)}
            kind = RequestOutputKind.FINAL_ONLY if turn.request.ends is None else RequestOutputKind.CUMULATIVE
            try:
                sampling = SamplingParams(**turn.sampling, output_kind=kind, skip_clone=True)
                self.llm.add_request(name, prompt, sampling, lora_request=self.adapter)
            except Exception as error:  # its own fault, such as a prompt beyond the window
                turn.future.set_exception(EngineFailure(f"vLLM refused the request: {error}"))
            else:
                self._in_flight[name] = turn

    def _abort(self, names: list[str]) -> None:
        if names:
            self.llm.abort_request(names)
            for name in names:
                del self._in_flight[name]

    def _fail(self, failure: EngineFailure) -> None:
        turns = (*self._waiting, *self._in_flight.values())
        for turn in turns:
            if not turn.future.done():
                turn.future.set_exception(failure)
        self._waiting = []
        self._abort(list(self._in_flight))
