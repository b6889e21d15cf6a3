"""The engine that samples with vLLM in this process: token ids in, token ids and their log-probabilities out.

A dialogue's earlier turns are found again in vLLM's prefix cache. It is emptied with every sync of the weights, since its
keys and values belong to the weights before.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from cod_lightning.adapters import plain_weights, trained_weights
from cod_lightning.engines.base import NO_MODEL, Completion, Engine, Request, Served, digest
from cod_lightning.engines.vllm_folder import CheckpointForm, WeightFolder
from cod_lightning.engines.vllm_start import (
    STOPS,
    check_installed,
    check_served,
    room_for,
    sampling_fields,
    served_of,
    start,
    whole_sync,
)
from cod_lightning.errors import EngineFailure
from cod_lightning.ranges import Count, Positive, PositiveShare

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
    """Steps vLLM while any coroutine waits for it, so that every lifecycle goes on by itself: hands requests in and outputs back.

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
                if self._driving is not asyncio.current_task():  # forgotten
                    return
                self._hand_in()
                self._abort([name for name, turn in self._in_flight.items() if turn.future.done()])  # cancelled
                if not self._in_flight:
                    return
                with torch.random.fork_rng(devices=[]):  # on a CPU, sampling draws from torch's global generator too
                    outputs = self.llm.step()
                for output in outputs:
                    self._in_flight.pop(output.request_id).future.set_result(output)
        except Exception as error:
            for turn in (*self._waiting, *self._in_flight.values()):
                if not turn.future.done():
                    turn.future.set_exception(EngineFailure(f"vLLM raised {type(error).__name__}: {error}"))
            self.forget()

    def _hand_in(self) -> None:
        turns, self._waiting = self._waiting, []
        for turn in turns:
            if turn.future.done():
                continue
            from vllm.sampling_params import RequestOutputKind, SamplingParams  # pyright: ignore[reportMissingImports]

            self._num_requests += 1
            name = str(self._num_requests)
            prompt: Any = {"type": "token", "prompt_token_ids": list(turn.request.prompt_ids)}
            try:
                sampling = SamplingParams(**turn.sampling, output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True)
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


class VLLMEngine(Engine):
    """Serves the policy with vLLM beside training, in one process and on one device.

    Log-probabilities are those after temperature and top-p (vLLM's `processed_logprobs`), so they belong to the distribution
    that was sampled from; at temperature 1 they are the model's own. Every request carries its own seed.

    A base of 4 bits is served as it is, by the package vllm-bnb-plugin, which computes in bfloat16.

    Args:
        dtype: What vLLM computes in; null takes the model's own.
        max_num_seqs: Requests that are decoded at a time; further ones wait.
        gpu_memory_utilization: Share of the GPU's memory for vLLM's weights and cache; training has the rest.
        kv_cache_gb: Size of the cache in GiB; null is what the share above leaves, on a CPU 1.
        sleep: Release the memory of weights and cache while training goes on; without effect on a CPU.
    """

    takes_adapters = True

    def __init__(
        self,
        dtype: Literal["float32", "bfloat16", "float16"] | None = None,
        max_num_seqs: Count = 256,
        gpu_memory_utilization: PositiveShare = 0.4,
        kv_cache_gb: Positive | None = None,
        sleep: bool = False,
    ) -> None:
        self.dtype, self.max_num_seqs = dtype, max_num_seqs
        self.gpu_memory_utilization, self.kv_cache_gb = gpu_memory_utilization, kv_cache_gb
        self.sleeps, self.asleep = sleep, False
        self._driver: Driver | None = None
        self._model: Any = None
        self._folder: WeightFolder | None = None
        """Where a sync puts the adapter, where the model has one."""
        self._names: frozenset[str] = frozenset()
        self._form: Callable[[Iterable[tuple[str, Tensor]]], list[tuple[str, Tensor]]] = list
        """Of the weights, what vLLM reads."""

    def check(self, served: Served) -> None:
        """A vLLM that goes with what is installed, a model that it can serve, room for the adapter, and what a base in 4 bits
        needs."""
        check_installed(type(self).__name__)
        check_served(served, type(self).__name__, self.dtype)

    def bind(self, model: nn.Module, stop_ids: Iterable[int], window: int | None = None) -> None:
        """Start vLLM for this model's architecture, with a window of `window` tokens."""
        served = served_of(model)
        self.check(served)
        self._model = model
        self.precision = self.dtype or served.dtype
        self._driver, self.asleep = None, False  # an earlier vLLM gives its memory back first
        llm = start(
            self._model,
            self,
            window=window or self._model.config.get_text_config().max_position_embeddings,
            adapter_rank=room_for(served.adapter_rank),
            four_bit=served.four_bit,
        )
        self._driver = Driver(llm, sorted(stop_ids))
        self._names, self._form = frozenset(trained_weights(model)), CheckpointForm(self._model)
        if self._folder is not None:
            self._folder.close()
        self._folder = WeightFolder() if served.adapter_rank else None
        if self._folder is not None and not served.four_bit:
            self._reload(plain_weights(model, merge=False))  # the base, once and for all

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], policy_version: int) -> None:
        """Take all weights by name, or all of the adapter, and forget all cached prefixes. Refused while turns are in flight.

        Tied weights come under both names: on a CPU vLLM repacks an output layer of its own, which otherwise would stay as it was.
        """
        driver = self._bound()
        if driver.num_live:
            raise EngineFailure(f"{driver.num_live} turns are in flight; weights change only between rollouts")
        driver.forget()
        # What ranks share out is whole on the CPU alone: there the model is that came in place of theirs
        named = whole_sync(weights, self._names, self._model.device)
        if self._folder is None:
            self._reload(named)
        else:
            self._load_adapter(driver, self._folder.write_adapter(self._model, named, "adapter"))
        self._forget_prefixes()
        self.policy_version = policy_version

    def sleep(self) -> None:
        """All of it: the next sync brings every weight again, except a base under an adapter, which waits in the CPU's memory."""
        if self.sleeps and not self.asleep:
            driver = self._bound()
            if driver.num_live:
                raise EngineFailure(f"{driver.num_live} turns are in flight; the engine sleeps only between rollouts")
            driver.forget()
            driver.llm.sleep(level=2 if self._folder is None else 1)
            self.asleep = True

    def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """One part after the other; with the second it serves again."""
        if self.asleep:
            self.asleep = not self._bound().llm.wake_up([part])

    async def generate(self, request: Request) -> Completion:
        driver = self._bound()
        if self.asleep:
            raise EngineFailure("the engine sleeps; a sync of the weights wakes it")
        output = await driver.sample(request)
        completion = output.outputs[0]
        reason = completion.finish_reason
        if reason not in STOPS:
            raise EngineFailure(f"vLLM ended the request with {reason!r}")
        ids = tuple(completion.token_ids)
        logprobs = (at[token_id].logprob for token_id, at in zip(ids, completion.logprobs, strict=True))
        return Completion(
            action_ids=ids,
            behaviour_logprobs=tuple(logprobs),
            stop=STOPS[reason],
            policy_version=self.policy_version,
            prompt_digest=digest(output.prompt_token_ids),
        )

    def _reload(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """vLLM's own way: it undoes and redoes what it made of weights (merged, repacked), where plain copies would not."""
        self._bound().llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self._form(named)})

    def _load_adapter(self, driver: Driver, folder: Path) -> None:
        """Under a new id: with one that comes a second time vLLM goes on with the old adapter."""
        before = driver.adapter
        request = self._request(1 if before is None else before.lora_int_id + 1, folder)
        if before is not None:
            driver.llm.remove_lora(before.lora_int_id)
        if not driver.llm.add_lora(request):
            raise EngineFailure(f"vLLM did not take the adapter {request.lora_name}")
        driver.adapter = request

    def _request(self, number: int, folder: Path) -> Any:
        """What vLLM's requests name to be sampled with the adapter of that folder."""
        from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

        return LoRARequest(f"sync-{number}", number, str(folder))

    def _forget_prefixes(self) -> None:
        if not self._bound().llm.reset_prefix_cache():
            raise EngineFailure("vLLM did not give up its prefix cache, which belongs to the weights before")

    def _bound(self) -> Driver:
        if self._driver is None:
            raise EngineFailure(NO_MODEL)
        return self._driver
