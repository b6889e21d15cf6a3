"""The quick start's world and its warm-started policy, as benchmarks play them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from cod_lightning.commands.config_files import expand
from cod_lightning.commands.train import made
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.engines.base import Engine
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.forward.rms_norm import use_rms_norm
from cod_lightning.models import TinyPolicy
from cod_lightning.process_memory import keep_freed_memory
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group, Pack
from examples.studies.speed.packs import training_packs

PACK_SIZE, MAX_NEW_TOKENS = 4, 8


@dataclass
class QuickStart:
    """Lakes of 3x3 and a model that plays them; torch has that many threads from here on."""

    threads: int
    policy: TinyPolicy = field(init=False)
    model: PreTrainedModel = field(init=False)
    chat: Chat = field(init=False)

    def __post_init__(self) -> None:
        cli = made(expand(["--config", "quickstart"]), "warm_start")
        cli.make_warm_start([])
        torch.set_num_threads(self.threads)
        keep_freed_memory()  # as `fit` does
        self.world = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, max_shortest_path=6, protocol="compact")
        self.mechanism = HintContext(protocol="compact")
        self.policy = TinyPolicy(weights=str(cli.warm_start_folder))
        tokenizer = self.policy.tokenizer(
            beside(self.world, Vocabulary).words() + beside(self.mechanism, Words).words()
        )
        self.model, self.chat = self.policy.model(tokenizer).eval(), Chat(tokenizer)
        use_rms_norm(self.model)  # likewise

    def packs(self, count: int, first: int = 0) -> list[Pack]:
        """Training packs from `first` on."""
        return training_packs(self.world, count, PACK_SIZE, first)

    def play(self, engine: Engine, packs: Sequence[Pack], siblings: int, seed: int) -> list[Group]:
        """A rollout by that engine."""
        sampler = Sampler(
            engine=engine, chat=self.chat, window=self.policy.window, max_new_tokens=MAX_NEW_TOKENS, seed=seed
        )
        return run_groups(packs, siblings, Setting(env=self.world, mechanism=self.mechanism, sampler=sampler))


def num_sampled(groups: Sequence[Group]) -> int:
    """Tokens that the policy said."""
    return sum(e.num_action_tokens for group in groups for life in group.lifecycles for e in life.episodes)
