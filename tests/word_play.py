"""Lifecycles: packs played by any engine, in words unless otherwise said, or by a scripted policy; and exact log-probs."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.engines.base import Engine, Request
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.base import Players, Reference, TextEnv, TextPolicy, beside
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.lifecycles import ConnectTheDots
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.segments import count_drift, segments_of
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group, Pack, Split
from tests.stubs import WORDS, FunctionEngine, PlainContext, WordWorld

CHAT = Chat(TinyPolicy().tokenizer(WordWorld().words()))
SAY_W1 = (*CHAT.encode("w1"), CHAT.end_of_turn)


def first_packs(env: TextEnv, number: int, num_tasks: int, split: Split = Split.TRAIN) -> list[Pack]:
    return [env.sample_pack(split=split, index=i, num_tasks=num_tasks) for i in range(number)]


def play(
    engine: Engine | None = None,
    env: TextEnv | None = None,
    mechanism: ContextMechanism | None = None,
    *,
    num_packs: int = 1,
    num_siblings: int = 1,
    num_tasks: int = 3,
    split: Split = Split.TRAIN,
    setting: dict[str, Any] | None = None,
    **sampler: Any,
) -> list[Group]:
    """The first packs of the environment; an engine that is left out says w1."""
    env, engine = env or WordWorld(), engine or FunctionEngine(lambda _: SAY_W1)
    packs = first_packs(env, num_packs, num_tasks, split)
    asked = Sampler(engine=engine, **({"chat": CHAT, "window": 96, "max_new_tokens": 4} | sampler))
    mechanism = mechanism or PlainContext()
    return run_groups(packs, num_siblings, Setting(env=env, mechanism=mechanism, sampler=asked, **(setting or {})))


class Ledger(WordWorld):
    """Carries over how many turns were ever played in it, and shows it first."""

    played = 0

    def reset(self, *, seed=None, options=None):
        text, info = super().reset(options=options)
        return f"w{self.played} {text}", info

    def step(self, action):
        self.played += 1
        return super().step(action)


def speak(request):
    """Words that the request's noise decides."""
    return (*CHAT.encode(random.Random(request.noise_seed).choice(WORDS[:6])), CHAT.end_of_turn)


def live(program=ConnectTheDots(), world=None, engine=None, num_tasks=4, siblings=2, mechanism=None, **more):  # noqa: B008
    sizes = {"num_packs": 2, "num_siblings": siblings, "num_tasks": num_tasks}
    setting = {"program": program, **more}
    return play(engine or FunctionEngine(speak), world or Ledger(), mechanism, setting=setting, **sizes)


def scripted(
    env: TextEnv,
    mechanism: ContextMechanism,
    policy: Reference | TextPolicy = Reference.SCRIPTED,
    *,
    num_packs: int = 1,
    num_siblings: int = 1,
    num_tasks: int = 3,
    split: Split = Split.TRAIN,
    deadlines: Deadlines | None = None,
    **setting: Any,
) -> list[Group]:
    """The first packs as a policy plays them, or a reference of the environment, the one for the first pack."""
    packs = first_packs(env, num_packs, num_tasks, split)
    player = beside(env, Players).reference(policy, packs[0]) if isinstance(policy, Reference) else policy
    sampler = replace(scripted_sampler(player, mechanism), deadlines=deadlines or Deadlines())
    return run_groups(packs, num_siblings, Setting(env=env, mechanism=mechanism, sampler=sampler, **setting))


def request(ids: Sequence[int], dialogue: str = "a", **more: Any) -> Request:
    """One turn of five tokens."""
    return Request(dialogue=dialogue, prompt_ids=ids, messages=(), **({"max_new_tokens": 5, "noise_seed": 3} | more))


def ask(engine: Engine, *requests: Request, return_exceptions: bool = False) -> list[Any]:
    """What the engine answers, all asked at the same time."""

    async def all_of_them() -> list[Any]:
        asked = (engine.generate(one) for one in requests)
        return await asyncio.gather(*asked, return_exceptions=return_exceptions)

    return asyncio.run(all_of_them())


def sampling_from(model: PreTrainedModel, stop_ids: Sequence[int], version: int = 1, **how: Any) -> TransformersEngine:
    """An engine with the model's weights."""
    engine = TransformersEngine(**how)
    engine.bind(model, stop_ids)
    engine.update_weights(model.state_dict().items(), version)
    return engine


def reference_logprobs(model: PreTrainedModel, ids: Sequence[int], temperature: float = 1.0) -> Tensor:
    """By a plain forward pass, [len(ids), vocabulary]."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].float() / temperature, dim=-1)


def see_exact(groups: Sequence[Group], model: PreTrainedModel, tolerance: float = 1e-5) -> None:
    """Nothing failed, no token drifted, and the log-probs of every row are those of a plain forward pass over it."""
    assert not any(life.failed for group in groups for life in group.lifecycles)
    assert count_drift(groups) == 0
    for row in segments_of(groups):
        scores = reference_logprobs(model, row.token_ids)
        for t, sampled in enumerate(row.action_mask):
            if sampled:
                expected = scores[t - 1, row.token_ids[t]].item()
                assert row.behaviour_logprobs[t] == pytest.approx(expected, abs=tolerance)
