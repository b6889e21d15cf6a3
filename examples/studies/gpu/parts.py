"""The parts of `make gpu`: each a function of the sizes that returns rows, run in a process of its own."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from cod_lightning.adapters import ADAPTER, adapter_weights, as_float32
from cod_lightning.engines.base import Engine, Request
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.models.memory_plan import GIB, plan_memory
from cod_lightning.models.sizes import RunSizes, sizes_of
from cod_lightning.objective.logprobs import action_logprobs, scores_bytes
from cod_lightning.training.stochastic_adamw import STEP_SLICE, StochasticAdamW, noise
from examples.studies.gpu.sizes import Sizes, random_model

Rows = Iterable[dict[str, Any]]


class NotHere(Exception):
    """Why a part, or a line of it, cannot run on this machine."""


def needs_cuda(sizes: Sizes) -> None:
    """Raise `NotHere` without a GPU."""
    if sizes.device != "cuda":
        raise NotHere("needs a CUDA device")


def needs(package: str) -> None:
    """Raise `NotHere` where it cannot be imported."""
    try:
        __import__(package)
    except Exception as error:  # a package may be there and not load
        raise NotHere(
            f"{package} cannot be imported ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
        ) from None


def attempt(row: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The row with what was measured, or with why it was not; the next line goes on."""
    try:
        return row | measure()
    except NotHere as error:
        return row | {"not run": str(error)}
    except Exception as error:
        return row | {"not run": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def synced() -> float:
    """Seconds, once the device has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def engines() -> dict[str, Callable[[], Engine]]:
    """By name; vLLM takes a third of the card."""
    return {
        "transformers": lambda: TransformersEngine(max_dialogues=256),
        "vllm": lambda: VLLMEngine(gpu_memory_utilization=0.35, kv_cache_gb=None if torch.cuda.is_available() else 0.5),
    }


def bound(name: str, model: Any, *, graphs: bool = True) -> Engine:
    """An engine with the model's weights. Raises `NotHere` without vLLM."""
    if name == "vllm":
        needs("vllm")
    engine: Any = engines()[name]()
    engine.bind(model, [0], model.config.max_position_embeddings if name == "transformers" else 2048)
    engine.update_weights(model.state_dict().items(), 1)
    if not graphs:
        engine.decoder.forward._decode = None
    return engine


def sampled(engine: Engine, prompts: list[list[int]], new_tokens: int) -> list[Any]:
    """One turn of each prompt."""
    requests = [
        Request(dialogue=str(i), prompt_ids=ids, messages=(), max_new_tokens=new_tokens, noise_seed=i)
        for i, ids in enumerate(prompts)
    ]

    async def every() -> list[Any]:
        try:
            return list(await asyncio.gather(*map(engine.generate, requests)))
        finally:
            for request in requests:
                engine.release(request.dialogue)

    return asyncio.run(every())


def prompts(number: int, length: int, vocabulary: int) -> list[list[int]]:
    """Of random tokens, the same ones each time; 0 is the stop token."""
    return torch.randint(1, vocabulary, (number, length), generator=torch.Generator().manual_seed(7)).tolist()


def loss_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Mean log-prob of all tokens but the first of each row, by the training's own output layer."""
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    return -action_logprobs(hidden, model.get_output_embeddings(), ids, mask)[0].sum() / mask.sum()


def with_adapter(model: Any, rank: int = 32) -> Any:
    """As `LoRAPolicy` makes it."""
    model.add_adapter(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", bias="none"), ADAPTER)
    as_float32(model)
    model.enable_input_require_grads()
    return model


def checkpointing(model: Any) -> Any:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


# ---------------------------------------------------------------------- parts


def gap(sizes: Sizes) -> Rows:
    """Log-probs (nats) of sampled tokens: the engine's against the training forward's, both in bfloat16."""

    def measure(name: str) -> dict[str, Any]:
        model = random_model(sizes.half_b, sizes)
        engine = bound(name, model)
        asked = prompts(sizes.gap_prompts, 64, sizes.half_b["vocab_size"])
        gaps = []
        for prompt, said in zip(asked, sampled(engine, asked, sizes.new_tokens), strict=True):
            ids = torch.tensor([[*prompt, *said.action_ids]], device=sizes.device)
            mask = torch.zeros_like(ids, dtype=torch.bool)
            mask[:, len(prompt) :] = True
            with torch.no_grad():
                hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
                ours = action_logprobs(hidden, model.get_output_embeddings(), ids, mask)[0][mask].cpu()
            gaps.append((ours - torch.tensor(said.behaviour_logprobs)).abs())
        found = torch.cat(gaps)
        return {
            "tokens": len(found),
            "mean": float(found.mean()),
            "p99": float(found.quantile(0.99)),
            "largest": float(found.max()),
        }

    return (attempt({"engine": name, "shape": "0.6B"}, lambda name=name: measure(name)) for name in engines())


def plan(sizes: Sizes) -> Rows:
    """Peak of two updates against the plan, without an engine."""

    def measure(shape: dict[str, Any], adapter: bool) -> dict[str, Any]:
        model: Any = random_model(shape, sizes)
        meta = {"rank": 32} if adapter else {}
        with torch.device("meta"):
            of = sizes_of(Qwen3ForCausalLM(Qwen3Config(**shape)), **meta)
        model = checkpointing(with_adapter(model) if adapter else model)
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        if adapter:
            optimizer: Any = torch.optim.AdamW(trained, lr=1e-5)
        else:
            optimizer = StochasticAdamW(trained, lr=1e-6)
            for weight in trained:
                weight.grad_dtype = torch.float32
        run = RunSizes(
            weight_bytes=2,
            activation_bytes=2,
            gradient_bytes=None if adapter else 4,
            float32_moments=not adapter,
            step_bytes=4 if adapter else 16,
            step_slice=None if adapter else STEP_SLICE,
            gradient_checkpointing=True,
            num_tokens=sizes.tokens,
            scores_bytes=scores_bytes(sizes.tokens, shape["vocab_size"]),
            engine_copies_base=False,
            engine_bytes=0,
            on_gpu=False,
        )
        planned = plan_memory(of, run, 2**40, "").total / GIB
        for _ in range(2):
            loss_of(
                model, torch.randint(1, shape["vocab_size"], (4, sizes.tokens // 4), device=sizes.device)
            ).backward()
            optimizer.step()
            optimizer.zero_grad()
        if sizes.device != "cuda":
            raise NotHere(f"torch counts memory on CUDA only; planned {planned:.3f} GiB, both updates done")
        peak = torch.cuda.max_memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
        return {"planned GiB": planned, "peak GiB": peak, "peak / planned": peak / planned}

    chosen = [
        ("0.6B, adapter", sizes.half_b, True),
        ("0.6B, all", sizes.half_b, False),
        ("8B, adapter", sizes.eight_b, True),
    ]
    return (attempt({"training": name}, lambda s=s, a=a: measure(s, a)) for name, s, a in chosen)


def graphs(sizes: Sizes) -> Rows:
    """The engine that decodes by CUDA graphs against itself without: the same tokens, and log-probs (nats), in float32."""

    def measure() -> dict[str, Any]:
        needs_cuda(sizes)
        model = random_model(sizes.shapes["SmolLM2-135M"], replace(sizes, dtype=torch.float32))
        asked = prompts(64, 40, model.config.vocab_size)
        found = [sampled(bound("transformers", model, graphs=graphs), asked, 64) for graphs in (True, False)]
        same = [one.action_ids == other.action_ids for one, other in zip(*found, strict=True)]
        gaps = [
            abs(a - b)
            for one, other, alike in zip(*found, same, strict=True)
            if alike
            for a, b in zip(one.behaviour_logprobs, other.behaviour_logprobs, strict=True)
        ]
        return {"same turns": f"{sum(same)} of {len(same)}", "largest gap": max(gaps, default=float("nan"))}

    return [attempt({"shape": "SmolLM2-135M"}, measure)]


def speed(sizes: Sizes) -> Rows:
    """Tokens per second, sampled and trained. A share of the card is 6 (an adapter's: 4) operations
    for each weight and token over 989 dense bf16 TFLOP/s of a Hopper; layers that are computed again do not count."""

    def sampling(shape: dict[str, Any], name: str, number: int, graphs: bool) -> dict[str, Any]:
        engine = bound(name, random_model(shape, sizes), graphs=graphs)
        asked = prompts(number, 256 if sizes.device == "cuda" else 8, shape["vocab_size"])
        sampled(engine, asked, sizes.new_tokens)  # graphs are recorded
        begun = synced()
        tokens = sum(len(one.action_ids) for one in sampled(engine, asked, sizes.new_tokens))
        return {"tokens/s": tokens / (synced() - begun)}

    def training(shape: dict[str, Any], adapter: bool, again: bool) -> dict[str, Any]:
        model: Any = random_model(shape, sizes)
        weights = sum(weight.numel() for weight in model.parameters())
        model = with_adapter(model) if adapter else model
        model = checkpointing(model) if again else model
        ids = torch.randint(1, shape["vocab_size"], (sizes.tokens // 512 or 1, 512), device=sizes.device)
        loss_of(model, ids).backward()
        begun = synced()
        for _ in range(sizes.repeats):
            loss_of(model, ids).backward()
        speed = sizes.repeats * ids.numel() / (synced() - begun)
        return {"tokens/s": speed, "share of the card": speed * weights * (4 if adapter else 6) / 989e12}

    for label, shape in sizes.shapes.items():
        large = label == "Qwen3-8B"
        what = {"trained, adapter, layers computed again": (True, True)} if large else {}
        what |= {} if large else {"trained, all weights": (False, False)}
        for name, (adapter, again) in what.items():
            yield attempt({"shape": label, "what": name}, partial(training, shape, adapter, again))
        for name in engines():
            for number in sizes.dialogues[1:] if large else sizes.dialogues:
                for graphs in (True, False) if name == "transformers" and label == "SmolLM2-135M" else (True,):
                    plain = "" if graphs else ", no graphs"
                    row = {"shape": label, "what": f"sampled, {name}{plain}, {number} dialogues"}
                    yield attempt(row, partial(sampling, shape, name, number, graphs))


def gradients(sizes: Sizes) -> Rows:
    """Cosine of an adapter's gradients with those of the same weights in float32 on the CPU."""
    from cod_lightning.models import LoRAPolicy, QLoRAPolicy
    from tests.adapted import adapted, write_base

    def flat(model: nn.Module, device: str, ids: torch.Tensor) -> torch.Tensor:
        loss_of(model.to(device), ids.to(device)).backward()
        return torch.cat([weight.grad.flatten().float().cpu() for weight in adapter_weights(model).values()])  # pyright: ignore

    def measure(kind: type[LoRAPolicy], dtype: str, package: str) -> dict[str, Any]:
        needs(package)
        with TemporaryDirectory() as folder:
            base, ids = write_base(Path(folder)), torch.randint(0, 40, (2, 24))
            reference = flat(adapted(kind, base), "cpu", ids)
            found = flat(adapted(kind, base, dtype=dtype), sizes.device, ids)
        return {"cosine": float(torch.cosine_similarity(reference, found, dim=0))}

    chosen = [
        (LoRAPolicy, "float32", "peft"),
        (LoRAPolicy, "bfloat16", "peft"),
        (QLoRAPolicy, "float32", "bitsandbytes"),
    ]
    chosen.append((QLoRAPolicy, "bfloat16", "bitsandbytes"))
    return (attempt({"policy": k.__name__, "base": d}, lambda k=k, d=d, p=p: measure(k, d, p)) for k, d, p in chosen)


def stochastic(sizes: Sizes) -> Rows:
    """`adamw_stochastic`: the same chances as on the CPU, what arrives of 100 updates of 1e-6, and the time of a step."""

    def same() -> dict[str, Any]:
        ours, theirs = (noise(5, 100_003, [17, -99], torch.device(d)).cpu() for d in (sizes.device, "cpu"))
        return {"result": "equal" if torch.equal(ours, theirs) else "DIFFERENT"}

    def arrived(kind: Any) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        weight = nn.Parameter((torch.randn(500, 200, generator=generator) * 0.02).to(sizes.device, torch.bfloat16))
        before, direction = weight.detach().float(), torch.randn(500, 200, generator=generator).to(weight)
        optimizer = kind([weight], lr=1e-6)
        for _ in range(100):
            weight.grad = direction.clone()
            optimizer.step()
        moved = ((before - weight.detach().float()) * direction.float().sign()).mean()
        return {"result": float(moved) / 1e-4}

    def step_s() -> dict[str, Any]:
        model = random_model(sizes.half_b, sizes)
        optimizer = StochasticAdamW(model.parameters(), lr=1e-6)
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step()
        begun = synced()
        for _ in range(sizes.repeats):
            optimizer.step()
        return {"result": (synced() - begun) / sizes.repeats}

    return [
        attempt({"what": "chances on this device and on the CPU"}, same),
        attempt({"what": "share of updates that arrives, adamw_stochastic"}, lambda: arrived(StochasticAdamW)),
        attempt({"what": "share of updates that arrives, adamw"}, lambda: arrived(torch.optim.AdamW)),
        attempt({"what": "seconds of a step, 0.6B"}, step_s),
    ]
