"""Rollouts whose dialogues go on from what others begin with, against rollouts that compute every prompt whole.

    PYTHONPATH=. python tests/benchmarks/bench_beginnings.py [--lifecycles 8 32] [--repeats 3] [--threads 2]

Lakes in sentences, a token a byte, so that rules are some hundred tokens long, as a language model's are; a random policy of two
layers. The same packs in turn, with the engine as it is and with one that copies nothing.
"""

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

import cod_lightning.engines.transformers as engine
from cod_lightning.byte_tokenizer import byte_tokenizer
from cod_lightning.contexts import HintContext
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.forward.freed_memory import keep_freed_memory
from cod_lightning.forward.packed import Rows
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group, Pack
from tests.benchmarks.packs import training_packs
from tests.benchmarks.results import Table, report, spread

SIBLINGS, PACK_SIZE, WINDOW = 8, 4, 8192
COPIES, NEVER = engine._WORTH_COPYING, WINDOW


class Counting(engine.TransformersEngine):
    """Counts the ids that it feeds."""

    num_fed = 0

    def _logits(self, rows: Rows) -> torch.Tensor:
        self.num_fed += len(rows.ids)
        return super()._logits(rows)


class Played(NamedTuple):
    """A rollout."""

    seconds: float
    num_fed: int
    said: list[tuple[int, ...]]


class Player:
    """A random policy that reads and writes bytes."""

    def __init__(self) -> None:
        tokenizer = byte_tokenizer()
        torch.manual_seed(0)
        sizes = {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2, "head_dim": 24}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        config = Qwen3Config(vocab_size=len(tokenizer), max_position_embeddings=WINDOW, **sizes, **heads)
        self.chat, self.engine = Chat(tokenizer), Counting()
        self.engine.bind(Qwen3ForCausalLM(config).eval(), self.chat.stop_ids)
        self.world = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, max_shortest_path=6)
        self.mechanism = HintContext()

    def play(self, packs: Sequence[Pack], seed: int, *, worth_copying: int) -> Played:
        """A rollout that takes over beginnings of at least so many tokens."""
        engine._WORTH_COPYING, self.engine.num_fed = worth_copying, 0
        sampler = Sampler(engine=self.engine, chat=self.chat, window=WINDOW, max_new_tokens=8, seed=seed)
        begun = time.perf_counter()
        groups = run_groups(packs, SIBLINGS, Setting(env=self.world, mechanism=self.mechanism, sampler=sampler))
        return Played(time.perf_counter() - begun, self.engine.num_fed, _said(groups))


def _said(groups: Sequence[Group]) -> list[tuple[int, ...]]:
    episodes = (episode for group in groups for life in group.lifecycles for episode in life.episodes)
    return [turn.action_ids for episode in episodes for turn in episode.turns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lifecycles", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()  # as `fit` does
    player, rows = Player(), []
    for count in args.lifecycles:
        found: list[tuple[Played, Played]] = []
        for repeat in range(args.repeats + 1):
            packs = training_packs(player.world, count // SIBLINGS, PACK_SIZE, repeat * 1000)
            found.append(
                (
                    player.play(packs, repeat, worth_copying=COPIES),
                    player.play(packs, repeat, worth_copying=NEVER),
                )
            )
        del found[0]  # one warms up
        rows.append(
            {
                "lifecycles": count,
                "seconds": spread([own.seconds for own, _ in found]),
                "whole_seconds": spread([whole.seconds for _, whole in found]),
                "whole_times_ours": spread([whole.seconds / own.seconds for own, whole in found]),
                "tokens_fed": spread([own.num_fed for own, _ in found]),
                "whole_tokens_fed": spread([whole.num_fed for _, whole in found]),
                "same_tokens_sampled": all(own.said == whole.said for own, whole in found),
            }
        )
    report(Table(name="dialogues that begin alike", about=(__doc__ or "").splitlines()[0], rows=rows))


if __name__ == "__main__":
    main()
