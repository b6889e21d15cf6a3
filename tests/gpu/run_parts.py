"""The parts of `make gpu` that need a vLLM, bitsandbytes, several processes or a whole training."""

import csv
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning as L
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from callbacks import Throughput, WeightSync
from cod_lightning.contexts import HintContext
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.models import PretrainedPolicy
from cod_lightning.models.memory_plan import GIB
from datamodules import DemonstrationDataModule, RolloutDataModule
from modules import GRPOModule, WarmStartModule
from tests.gpu.parts import (
    Rows,
    attempt,
    bound,
    engines,
    loss_of,
    needs,
    needs_cuda,
    prompts,
    random_model,
    sampled,
    synced,
)
from tests.gpu.sizes import Sizes
from tests.real_templates import QWEN3, bpe_tokenizer

ROOT = Path(__file__).parents[2]


def sleep(sizes: Sizes) -> Rows:
    """GPU memory that vLLM gives back, and whether it samples the same after it wakes up."""

    def measure() -> dict[str, Any]:
        needs_cuda(sizes)
        needs("vllm")
        model = random_model(sizes.half_b, sizes)
        engine = VLLMEngine(gpu_memory_utilization=0.35, sleep=True)
        engine.bind(model, [0], 2048)
        asked = prompts(4, 64, sizes.half_b["vocab_size"])
        engine.update_weights(model.state_dict().items(), 1)
        before, held = sampled(engine, asked, 32), torch.cuda.mem_get_info()[0]
        begun = synced()
        engine.sleep()
        asleep, slept_s = torch.cuda.mem_get_info()[0], synced() - begun
        torch.cuda.empty_cache()
        begun = synced()
        engine.wake("weights")
        engine.update_weights(model.state_dict().items(), 2)
        engine.wake("kv_cache")
        woken_s, after = synced() - begun, sampled(engine, asked, 32)
        return {
            "given back GiB": (asleep - held) / GIB,
            "sleep s": slept_s,
            "wake and sync s": woken_s,
            "same samples": [one.action_ids for one in before] == [one.action_ids for one in after],
        }

    return [attempt({"shape": "0.6B"}, measure)]


def paged(sizes: Sizes) -> Rows:
    """Seconds of an optimizer's step over all weights, and GPU memory of its state."""

    def measure(name: str) -> dict[str, Any]:
        if name == "adamw":
            kind: Any = torch.optim.AdamW
        else:
            needs("bitsandbytes")
            from bitsandbytes.optim import adamw

            kind = {"adamw_8bit": adamw.AdamW8bit, "paged_adamw_8bit": adamw.PagedAdamW8bit}[name]
        model = random_model(sizes.half_b, sizes)
        optimizer = kind(model.parameters(), lr=1e-5)
        ids = torch.randint(1, sizes.half_b["vocab_size"], (1, sizes.tokens // 4), device=sizes.device)
        loss_of(model, ids).backward()
        held = torch.cuda.memory_allocated() if sizes.device == "cuda" else 0
        optimizer.step()
        begun = synced()
        for _ in range(sizes.repeats):
            optimizer.step()
        seconds = (synced() - begun) / sizes.repeats
        if sizes.device != "cuda":
            return {"step s": seconds}
        return {"step s": seconds, "state GiB": (torch.cuda.memory_allocated() - held) / GIB}

    return [
        attempt({"optimizer": name}, partial(measure, name)) for name in ("adamw", "adamw_8bit", "paged_adamw_8bit")
    ]


def seeds(sizes: Sizes) -> Rows:
    """Tokens per second of vLLM with a seed in each request, and without."""

    def measure(seeded: bool) -> dict[str, Any]:
        engine: Any = bound("vllm", random_model(sizes.half_b, sizes))
        engine._driver._seeded = seeded
        asked = prompts(sizes.dialogues[-1], 64, sizes.half_b["vocab_size"])
        sampled(engine, asked, 4)
        begun = synced()
        tokens = sum(len(one.action_ids) for one in sampled(engine, asked, sizes.new_tokens))
        return {"tokens/s": tokens / (synced() - begun)}

    return [attempt({"seeds": "each its own" if s else "none"}, partial(measure, s)) for s in (True, False)]


def fsdp2(sizes: Sizes) -> Rows:
    """Two updates of the smoke run in bfloat16 with `adamw_stochastic`, on one process and shared out: the same metrics?"""

    def fit(folder: Path, *more: str) -> dict[str, float]:
        small = ["--warm_start", "null", "--data.suites", "null", "--trainer.max_steps", "2", "--data.val_packs", "8"]
        kind = "gpu" if sizes.device == "cuda" else "cpu"
        half = [
            "--trainer.precision",
            "bf16-true",
            "--model.optimizer",
            "adamw_stochastic",
            "--trainer.accelerator",
            kind,
        ]
        command = [sys.executable, "-m", "cod_lightning", "fit", "--config", "smoke", *more, *small, *half]
        done = subprocess.run(
            [*command, "--trainer.default_root_dir", str(folder)], cwd=ROOT, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-300:])
        with (folder / "metrics.csv").open(newline="") as file:
            found = [row for row in csv.DictReader(file) if row.get("train/gradient_norm")]
        return {
            key: float(found[-1][key])
            for key in ("train/gradient_norm", "train/logprob_gap", "throughput/trained_tokens_s")
        }

    count = torch.cuda.device_count() if sizes.device == "cuda" else 2
    found = []
    with TemporaryDirectory() as folder:
        found.append(attempt({"strategy": "one process"}, lambda: fit(Path(folder) / "one")))
        for number in sorted({1, count}):
            shared = ["strategy=fsdp2", "--trainer.devices", str(number)]
            row = {"strategy": f"fsdp2, {number} processes"}
            found.append(attempt(row, lambda s=shared, n=number: fit(Path(folder) / str(n), *s)))
    return found


def cod(sizes: Sizes) -> Rows:
    """CoD-Train of a policy from random numbers in sentences: its warm start, then success by position as training goes on."""
    with TemporaryDirectory() as folder:
        return [attempt({"world": "levers in sentences"}, lambda: _cod(sizes, Path(folder)))]


def _cod(sizes: Sizes, folder: Path) -> dict[str, Any]:
    L.seed_everything(1, verbose=False)
    tokenizer, world = bpe_tokenizer(QWEN3), Levers(protocol="natural")
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    heads = sizes.scratch["num_attention_heads"]
    shape = sizes.scratch | {"num_key_value_heads": heads, "head_dim": sizes.scratch["hidden_size"] // heads}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), max_position_embeddings=4096, **shape, **ends))
    for name in ("base", "warm"):
        tokenizer.save_pretrained(folder / name)
    model.save_pretrained(folder / "base")
    kind = "gpu" if sizes.device == "cuda" else "cpu"
    trainer = partial(
        L.Trainer,
        accelerator=kind,
        devices=1,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        inference_mode=False,  # weights of a validation are trained afterwards
        default_root_dir=folder,
    )
    context = HintContext(protocol="natural")
    policy: Any = partial(PretrainedPolicy, dtype="float32", window=3072)
    begun = synced()
    warm = WarmStartModule(policy(path=str(folder / "base")), lr=3e-4)
    packs = {"num_updates": sizes.warm_updates, "num_packs": max(3, sizes.warm_updates), "max_new_tokens": 256}
    trainer(max_epochs=1).fit(warm, DemonstrationDataModule(world, context, **packs))
    assert warm.model is not None
    warm.model.to("cpu").save_pretrained(folder / "warm")
    warm_s = synced() - begun
    engine = engines()["transformers"]()
    batch = {"packs_per_rollout": 16, "group_size": 8} if kind == "gpu" else {"packs_per_rollout": 2, "group_size": 2}
    more = {"updates_per_rollout": 2, "rollouts_per_epoch": max(1, sizes.cod_updates // 4), "max_new_tokens": 256}
    data = RolloutDataModule(world, context, engine, val_packs=128 if kind == "gpu" else 2, **batch, **more)
    module = GRPOModule(policy(path=str(folder / "warm")), lr=3e-5, token_budget=sizes.tokens * 4)
    run = trainer(max_steps=sizes.cod_updates, max_epochs=-1, callbacks=[WeightSync(), Throughput()])
    before = run.validate(module, data, verbose=False)[0]
    begun = synced()
    run.fit(module, data)
    trained_s, gap = synced() - begun, module.latest.get("logprob_gap", "no update had a signal")
    after = run.validate(module, data, verbose=False)[0]

    def curve(values: Any) -> str:
        return " ".join(f"{values[f'val/success/position_{n}']:.2f}" for n in range(data.pack_size))

    return {
        "parameters": f"{sum(w.numel() for w in model.parameters()) / 1e6:.1f} M",
        "warm start s": warm_s,
        "success by position, warm start": curve(before),
        "updates": run.global_step,
        "training s": trained_s,
        "success by position, trained": curve(after),
        "log-prob gap": gap,
    }


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
