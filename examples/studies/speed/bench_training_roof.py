"""An update against its roof: forward and backward of the same rows without padding, and nothing else.

    PYTHONPATH=. python examples/studies/speed/bench_training_roof.py [--lifecycles 32 256] [--long] [--repeats 7] [--threads 2]

Rows are those of a recorded rollout of the quick start; with --long, of 8 dialogues of 2,000 tokens in 8 turns, a sixth of them
sampled, by a Qwen3 of 25 million parameters in bfloat16. *Ours* is `training_step`: credit, choice of rows, micro-batches, loss,
backward, clipping, optimizer and schedule, figures to log. *Roof*: rows of one length together, at most as many tokens at once as
ours, the sum of action tokens' log-probs, backward; no optimizer. A repeat measures both.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.models import TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group, Split
from examples.studies.speed.fixed_work import Endless, FixedWork, scale_of
from examples.studies.speed.quick_start import QuickStart
from examples.studies.speed.recorded import train_on
from examples.studies.speed.results import Table, report, spread

SIBLINGS, LONG_TURNS = 8, 8


Recording = tuple[int, list[Group], Chat, TinyPolicy, int]
"""Number of lifecycles, what was played, with what, and most tokens of a micro-batch."""


def alike(batch: Batch, rows: Tensor, budget: int) -> list[tuple[Tensor, Tensor]]:
    """Ids and action masks of rows of one length, at most `budget` tokens at once, without padding."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for row in rows.tolist():
        by_length[int(batch.lengths[row])].append(row)
    return [
        (batch.token_ids[part, :length], batch.action_mask[part, :length])
        for length, members in sorted(by_length.items())
        for part in torch.tensor(members).split(max(1, budget // length))
    ]


def roof(model: PreTrainedModel, parts: list[tuple[Tensor, Tensor]]) -> float:
    """Seconds of forward and backward."""
    begun = time.perf_counter()
    for ids, mask in parts:
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        predicting = mask[:, 1:]
        scores = model.get_output_embeddings()(hidden[:, :-1][predicting])
        torch.nn.functional.cross_entropy(scores, ids[:, 1:][predicting], reduction="sum").backward()
    model.zero_grad()
    return time.perf_counter() - begun


class Clock(L.Callback):
    """Seconds of ours and of the roof, update by update."""

    def __init__(self) -> None:
        self.ours: list[float] = []
        self.roofs: list[float] = []
        self.tokens = 0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Batch, batch_idx: int) -> None:
        self.begun = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.ours.append(time.perf_counter() - self.begun)
        advantages = batch.token_advantages
        rows = advantages.abs().amax(dim=1).gt(1e-6).nonzero().squeeze(1)
        self.tokens = int(batch.lengths[rows].sum())
        assert self.tokens == pl_module.last_update.num_tokens, "the roof is measured on other rows"
        self.roofs.append(roof(pl_module.model, alike(batch, rows, pl_module.token_budget)))


def rollouts(counts: Sequence[int], threads: int) -> Iterator[Recording]:
    """Of the quick start's policy, by number of lifecycles."""
    start, engine = QuickStart(threads), TransformersEngine(max_dialogues=1024)
    engine.bind(start.model, start.chat.stop_ids)
    for count in counts:
        groups = start.play(engine, start.packs(count // SIBLINGS), SIBLINGS, seed=1)
        yield count, groups, start.chat, start.policy, 8_192


def long_rollout() -> Recording:
    """Eight siblings in the work of `bench_end_to_end.py --long`."""
    scale = scale_of(LONG_TURNS, long=True)
    world, mechanism, policy = (
        FixedWork(LONG_TURNS, scale.observation_words),
        HintContext("compact"),
        TinyPolicy(**scale.sizes),
    )
    tokenizer = policy.tokenizer(beside(world, Vocabulary).words() + beside(mechanism, Words).words())
    chat, engine = Chat(tokenizer), Endless()
    engine.bind(policy.model(tokenizer).to(torch.bfloat16).eval(), ())
    sampler = Sampler(engine=engine, chat=chat, window=policy.window, max_new_tokens=scale.tokens, seed=1)
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    groups = run_groups([pack], scale.siblings, Setting(env=world, mechanism=mechanism, sampler=sampler))
    return scale.siblings, groups, chat, policy, scale.token_budget


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lifecycles", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--long", action="store_true", help="8 dialogues of 2,000 tokens, 25 million parameters, bfloat16"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    for count, groups, chat, policy, budget in (
        [long_rollout()] if args.long else rollouts(args.lifecycles, args.threads)
    ):
        clock = Clock()
        module = GRPOModule(policy=policy, credit=EpisodeCredit(), lr=1e-6, token_budget=budget)
        train_on(groups, chat, module, clock, args.repeats + 2, precision="bf16-true" if args.long else "32-true")
        ours, roofs = clock.ours[2:], clock.roofs[2:]  # two warm up
        rows.append(
            {
                "lifecycles": count,
                "tokens": clock.tokens,
                "ours_tokens_s": spread([clock.tokens / s for s in ours]),
                "roof_tokens_s": spread([clock.tokens / s for s in roofs]),
                "ours_of_roof": spread([b / a for a, b in zip(ours, roofs, strict=True)]),
            }
        )
    about = "The same with 8 dialogues of 2,000 tokens and a Qwen3 of 25 million parameters in bfloat16."
    about, what = (about, ", long dialogues") if args.long else (__doc__.splitlines()[0], "")
    report(Table(name=f"training against its roof{what}", about=about, rows=rows))


if __name__ == "__main__":
    main()
