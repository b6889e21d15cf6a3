"""A lifecycle of a scripted policy with the real hint context, but without engine, tokenizer or torch."""

import random
from dataclasses import dataclass, replace

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Demonstrator, Players, Reference, TextEnv, TextPolicy, beside
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Pack, Role, Split, StopReason, Task, Turn
from tests.asked import opened, shown


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


def solve(
    env: TextEnv, task: Task, policy: TextPolicy, mechanism: HintContext, context: str, rng: random.Random
) -> tuple[Episode, Lived]:
    """Play one task."""
    observation, _ = env.reset(options={"task": task})
    system = shown(mechanism, env.rules, context)
    messages, turns, ended, reward = [Message(Role.SYSTEM, system)], [], False, 0.0
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
    )
    return episode, Lived(reward, env.success, env.status, tuple(messages), observation, "")


def live(env: TextEnv, pack: Pack, policy: TextPolicy, protocol: str, seed: int = 0) -> list[Lived]:
    """All tasks of a pack. A demonstrator makes up each context; other policies read what they noted."""
    mechanism, rng = HintContext(protocol), random.Random(seed)  # type: ignore[arg-type]
    context, lived = "", []
    for task in pack.tasks:
        if isinstance(policy, Demonstrator):
            context = policy.context(rng)
        episode, record = solve(env, task, policy, mechanism, context, rng)
        solved = Episode(
            **{name: getattr(episode, name) for name in ("kind", "position", "status", "turns", "reward", "success")},
            feedback=episode.feedback,
            context_before=context,
        )
        note = policy.note(opened(mechanism, env.rules, solved), rng)
        lived.append(replace(record, note=note))
        context = note
    return lived


def success_by_position(env: TextEnv, kind: Reference, protocol: str, num_packs: int) -> list[float]:
    """Mean success of a reference in packs of 4."""
    packs = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(num_packs)]
    lives = [
        live(env, pack, beside(env, Players).reference(kind, pack), protocol, seed) for seed, pack in enumerate(packs)
    ]
    return [sum(life[n].success for life in lives) / num_packs for n in range(4)]


def reward_by_position(env: TextEnv, kind: Reference, protocol: str, num_packs: int) -> list[float]:
    """Mean reward of a reference in packs of 4."""
    packs = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(num_packs)]
    lives = [
        live(env, pack, beside(env, Players).reference(kind, pack), protocol, seed) for seed, pack in enumerate(packs)
    ]
    return [sum(life[n].reward for life in lives) / num_packs for n in range(4)]


def first_answer(env: TextEnv, pack: Pack, seed: int) -> str:
    """What a scripted policy says first in the task that the environment stands in."""
    observation = env.reset(options={"task": pack.tasks[0]})[0]
    messages = [Message(Role.SYSTEM, env.rules), Message(Role.USER, observation)]
    return beside(env, Players).reference(Reference.SCRIPTED, pack).act(messages, random.Random(seed))


def _turn(observation: str, response: str) -> Turn:
    return Turn(
        new_ids=(),
        extends=False,
        action_ids=(),
        behaviour_logprobs=(),
        stop=StopReason.STOP,
        policy_version=-1,
        prompt_digest=0,
        observation=observation,
        response=response,
    )
