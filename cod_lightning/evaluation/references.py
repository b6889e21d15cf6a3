"""The reference policies of a world, played by the code that plays a model: how much a policy can gain there."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.base import Players, TextEnv, TextPolicy, beside
from cod_lightning.evaluation.conditions import ConditionKind
from cod_lightning.evaluation.intervals import SHARE, Estimate, position_estimates
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.lifecycles import ConnectTheDots, Controlled, Program, Shown
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.player import Player
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeKind, EpisodeStatus, Lifecycle, Message, Pack

_MAX_NEW_TOKENS = 100_000
_WINDOW = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow:
    """One reference in one world."""

    kind: ConditionKind
    reward: tuple[Estimate, ...]
    """[N] by position."""
    success: tuple[Estimate, ...]
    """[N] by position."""
    num_packs: int
    num_failed: int
    """Lifecycles in which the world or the policy raised; their missing rewards are left out of the means."""
    num_malformed: int
    """Solve episodes that ended by text that did not parse."""


def play_reference(
    world: TextEnv,
    packs: Sequence[Pack],
    kind: ConditionKind,
    mechanism: ContextMechanism,
    seed: int = 0,
    program: Program = ConnectTheDots(),  # noqa: B008  (frozen)
) -> Iterator[Lifecycle]:
    """One lifecycle of one of the references through each pack, one after the other."""
    reference = kind.reference
    assert reference is not None, f"{kind} is not played by a reference"
    shown = Shown.EMPTY if kind is ConditionKind.MEMORYLESS else Shown.OWN
    program = Controlled(program=program, shown=shown, writes=False)
    for pack in packs:
        sampler = scripted_sampler(beside(world, Players).reference(reference, pack), mechanism, seed)
        setting = Setting(env=world, mechanism=mechanism, sampler=sampler, program=program)
        (group,) = run_groups([pack], 1, setting)
        yield from group.lifecycles


def scripted_sampler(policy: TextPolicy, mechanism: ContextMechanism, seed: int = 0) -> Sampler:
    """A scripted policy as the rollout meets it, in bytes."""
    return replying_sampler(Player(policy, mechanism).reply, seed)


def replying_sampler(reply: Callable[[Sequence[Message], random.Random], str], seed: int = 0) -> Sampler:
    """Whatever answers a dialogue, as the rollout meets it, in bytes."""
    chat = byte_chat()
    engine = ScriptedEngine(reply, chat.encode, chat.stop_id)
    return Sampler(engine=engine, chat=chat, window=_WINDOW, max_new_tokens=_MAX_NEW_TOKENS, seed=seed)


def summarise(kind: ConditionKind, lifecycles: Sequence[Lifecycle], rules: Sequence[str] = ()) -> ReferenceRow:
    """Means by position with intervals over what the lifecycles' packs hide."""
    outcomes = Outcomes.of(lifecycles, rules)
    solves = [e for life in lifecycles for e in life.episodes if e.kind is EpisodeKind.SOLVE]
    return ReferenceRow(
        kind=kind,
        reward=position_estimates(outcomes.rewards, rules=rules),
        success=position_estimates(outcomes.success, rules=rules, limits=SHARE),
        num_packs=outcomes.num_packs,
        num_failed=sum(life.failed for life in lifecycles),
        num_malformed=sum(e.status is EpisodeStatus.MALFORMED for e in solves),
    )
