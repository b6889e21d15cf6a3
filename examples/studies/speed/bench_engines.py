"""Engines beside each other in one rollout of fixed work: ours, `model.generate` afresh every turn, and vLLM where it is installed.

    PYTHONPATH=. python examples/studies/speed/bench_engines.py [--lifecycles 32 256] [--repeats 5] [--threads 2]

Packs of two tasks of 6 turns, 4 tokens a turn, a tiny Qwen3 whose heads vLLM can serve, random weights. vLLM is in an environment
of its own (`tests/vllm/make_venv.sh`): run this file with the Python of that one. A repeat plays the same packs with each engine.
"""

import argparse
import importlib.util
import time
from typing import Any

import lightning as L
import torch

from cod_lightning.commands.lightning_cli import quieten
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.engines.base import Engine
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from examples.studies.speed.fixed_work import Endless, FixedWork
from examples.studies.speed.generate_engine import GenerateEngine
from examples.studies.speed.packs import training_packs
from examples.studies.speed.quick_start import num_sampled
from examples.studies.speed.results import Table, report, spread

SIBLINGS, TASKS, TURNS, TOKENS = 8, 2, 6, 4


def engines(model: Any, chat: Chat, window: int, most: int) -> dict[str, Engine]:
    """All that can be had here, with the model's weights; none of them ends a turn before its last token."""
    found: dict[str, Engine] = {"ours": Endless(max_dialogues=most)}
    if importlib.util.find_spec("vllm") is not None:
        found["vLLM"] = VLLMEngine(max_num_seqs=min(most, 256))
    for engine in found.values():
        engine.bind(model, (), window)
        engine.update_weights(model.state_dict().items(), 0)
    return {**found, "generate, every turn": GenerateEngine(model, None, chat.pad_id)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lifecycles", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    quieten()
    torch.set_num_threads(args.threads)
    L.seed_everything(1, verbose=False)
    world, mechanism = FixedWork(TURNS), HintContext(protocol="compact")
    policy = TinyPolicy(hidden_size=128, num_layers=2, window=512)
    tokenizer = policy.tokenizer(beside(world, Vocabulary).words() + beside(mechanism, Words).words())
    chat = Chat(tokenizer)
    known = engines(policy.model(tokenizer).eval(), chat, policy.window, max(args.lifecycles))
    rows = []
    for count in args.lifecycles:
        speed: dict[str, list[float]] = {name: [] for name in known}
        for repeat in range(args.repeats + 1):
            packs = training_packs(world, count // SIBLINGS, TASKS, repeat * 1000)
            for name, engine in known.items():
                sampler = Sampler(engine=engine, chat=chat, window=policy.window, max_new_tokens=TOKENS, seed=repeat)
                begun = time.perf_counter()
                groups = run_groups(packs, SIBLINGS, Setting(env=world, mechanism=mechanism, sampler=sampler))
                seconds = time.perf_counter() - begun
                if repeat:  # the first pass warms up
                    speed[name].append(num_sampled(groups) / seconds)
        for name, found in speed.items():
            ratios = [own / one for own, one in zip(speed["ours"], found, strict=True)]
            rows.append(
                {"lifecycles": count, "engine": name, "tokens_s": spread(found), "ours_is_faster_by": spread(ratios)}
            )
    note = "" if "vLLM" in known else "vLLM is not installed here: no figure of it."
    report(Table(name="engines", about=__doc__.splitlines()[0], note=note, rows=rows))


if __name__ == "__main__":
    main()
