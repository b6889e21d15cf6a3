"""A lifecycle of a scripted policy with the real hint context, but without engine, tokenizer or torch."""

import random
from dataclasses import dataclass, replace
from typing import Literal

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Demonstrator, Players, Reference, TextEnv, TextPolicy, Vocabulary, beside
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Pack, Role, Split, StopReason, Task, Turn
from tests.asked import opened, shown

Player = TextPolicy | Reference | Literal["teacher"]


@dataclass(frozen=True)
class Lived:
    """One solve episode."""

    reward: float
    success: bool
    status: EpisodeStatus
    messages: tuple[Message, ...]
    feedback: str
    note: str

    @property
    def text(self) -> str:
        """Everything that was shown or said after the context."""
        return "\n".join([*(m.content for m in self.messages[1:]), self.feedback, self.note])


def player(env: TextEnv, pack: Pack, kind: Player) -> TextPolicy:
    """The world's own player of that kind; a policy is itself."""
    if isinstance(kind, TextPolicy):
        return kind
    players = beside(env, Players)
    return players.reference(kind, pack) if isinstance(kind, Reference) else players.demonstrator(pack)


def hints(env: TextEnv) -> HintContext:
    """The hint context in the protocol of the world."""
    return HintContext("compact" if beside(env, Vocabulary).words() else "natural")


def solve(
    env: TextEnv, task: Task, policy: TextPolicy, mechanism: HintContext, context: str, rng: random.Random
) -> tuple[Episode, Lived]:
    """Play one task."""
    observation, _ = env.reset(options={"task": task})
    messages = [Message(Role.SYSTEM, shown(mechanism, env.rules, context))]
    turns, ended, reward = [], False, 0.0
    while not ended:
        messages.append(Message(Role.USER, observation))
        response = policy.act(messages, rng)
        turns.append(_turn(observation, response))
        messages.append(Message(Role.ASSISTANT, response))
        observation, reward, terminated, truncated, _ = env.step(response)
        ended = terminated or truncated
    episode = Episode(
        kind=EpisodeKind.SOLVE,
        position=0,
        status=env.status,
        turns=tuple(turns),
        reward=reward,
        success=env.success,
        feedback=observation,
        context_before=context,
    )
    return episode, Lived(reward, env.success, env.status, tuple(messages), observation, "")


def live(env: TextEnv, pack: Pack, kind: Player, seed: int = 0, *, remembers: bool = True) -> list[Lived]:
    """All tasks of a pack. A demonstrator makes up each context; other policies read what they noted, if they remember."""
    mechanism, rng, policy = hints(env), random.Random(seed), player(env, pack, kind)
    context, lived = "", []
    for task in pack.tasks:
        if isinstance(policy, Demonstrator):
            context = policy.context(rng)
        solved, record = solve(env, task, policy, mechanism, context, rng)
        note = policy.note(opened(mechanism, env.rules, solved), rng)
        lived.append(replace(record, note=note))
        context = note if remembers else ""
    return lived


def by_position(
    env: TextEnv, kind: Player, num_packs: int, of: Literal["success", "reward"] = "success", *, remembers: bool = True
) -> list[float]:
    """Mean success, or reward, of a player in packs of 4."""
    packs = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(num_packs)]
    lives = [live(env, pack, kind, seed, remembers=remembers) for seed, pack in enumerate(packs)]
    return [sum(getattr(life[n], of) for life in lives) / num_packs for n in range(4)]


def _turn(observation: str, response: str) -> Turn:
    return Turn(
        new_ids=(), extends=False, action_ids=(), behaviour_logprobs=(), stop=StopReason.STOP, policy_version=-1,
        prompt_digest=0, observation=observation, response=response,
    )  # fmt: skip
