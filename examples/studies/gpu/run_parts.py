"""The parts of `make gpu` that need a vLLM, bitsandbytes, several or several processes."""

import csv
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.models.memory_plan import GIB
from examples.studies.gpu.parts import (
    Rows,
    attempt,
    loss_of,
    needs,
    needs_cuda,
    prompts,
    random_model,
    sampled,
    synced,
)
from examples.studies.gpu.sizes import Sizes

ROOT = Path(__file__).parents[3]


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


def fsdp2(sizes: Sizes) -> Rows:
    """Two updates of the smoke run in bfloat16 with `adamw_stochastic`, on one process and shared out: the same metrics?"""

    def fit(folder: Path, *more: str) -> dict[str, float]:
        small = ["--warm_start", "null", "--data.suites", "null", "--trainer.max_steps", "2", *sizes.smoke]
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
    with TemporaryDirectory() as folder:
        yield attempt({"strategy": "one process"}, lambda: fit(Path(folder) / "one"))
        for number in sorted({1, count}):
            shared = ["strategy=fsdp2", "--trainer.devices", str(number)]
            row = {"strategy": f"fsdp2, {number} processes"}
            yield attempt(row, lambda s=shared, n=number: fit(Path(folder) / str(n), *s))


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
