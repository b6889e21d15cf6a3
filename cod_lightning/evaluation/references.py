"""The reference policies of a world, played by the code that plays a model: how much a policy can gain there.

Where a pack's rule changes on the way, its oracle is one that knows both rules.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.base import HiddenRules, Players, Reference, TextEnv, TextPolicy, beside
from cod_lightning.evaluation.intervals import SHARE, Estimate, position_estimates
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.lifecycles import ConnectTheDots, OutlineStep, Program, outline
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.player import Player
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Lifecycle, Message, Pack

_MAX_NEW_TOKENS = 100_000
_WINDOW = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow:
    """One reference in one world."""

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
    reference: Reference,
    mechanism: ContextMechanism,
    program: Program = ConnectTheDots(),  # noqa: B008  (frozen)
    *,
    blanked: bool = False,
) -> Iterator[Lifecycle]:
    """One lifecycle of the reference through each pack, one after the other; `blanked`: with its context hidden.

    The oracle of a pack whose rule changes may know its first rule only: each part is then played by an oracle of its own, in a
    fresh world. No context passes from part to part: an episode of the whole lifecycle that no part has is skipped.
    """
    shown = mechanism.empty() if blanked else None
    controlled = Controlled(program=program, shown=shown, writes=False)
    for pack in packs:
        lives: list[Lifecycle] = []
        for part in parts_of(world, pack) if reference is Reference.ORACLE else [pack]:
            sampler = scripted_sampler(beside(world, Players).reference(reference, part), mechanism)
            setting = Setting(env=world, mechanism=mechanism, sampler=sampler, program=controlled)
            (group,) = run_groups([part], 1, setting)
            lives += group.lifecycles
        yield lives[0] if len(lives) == 1 else _joined(lives, pack, outline(program, len(pack), mechanism.updates))


def _joined(parts: Sequence[Lifecycle], pack: Pack, steps: Sequence[OutlineStep]) -> Lifecycle:
    """The lifecycles of a pack's parts as one through the whole pack."""
    played, first = dict[tuple[EpisodeKind, int], Episode](), 0
    for life in parts:
        for episode in life.own:
            position = first + episode.position
            played[episode.kind, position] = structs.replace(episode, position=position)
        first += len(life.solves)
    episodes = [
        played.get((kind, position)) or Episode(kind=kind, position=position, status=EpisodeStatus.SKIPPED)
        for kind, position, _ in steps
    ]
    return Lifecycle(pack_id=pack.id, sibling=0, episodes=tuple(episodes))


def scripted_sampler(policy: TextPolicy, mechanism: ContextMechanism, seed: int = 0) -> Sampler:
    """A scripted policy as the rollout meets it, in bytes."""
    return replying_sampler(Player(policy, mechanism).reply, seed)


def replying_sampler(reply: Callable[[Sequence[Message], random.Random], str], seed: int = 0) -> Sampler:
    """Whatever answers a dialogue, as the rollout meets it, in bytes."""
    chat = byte_chat()
    engine = ScriptedEngine(reply, chat.encode, chat.stop_id)
    return Sampler(engine=engine, chat=chat, window=_WINDOW, max_new_tokens=_MAX_NEW_TOKENS, seed=seed)


def summarise(lifecycles: Sequence[Lifecycle], rules: Sequence[str] = ()) -> ReferenceRow:
    """Means by position with intervals over what the lifecycles' packs hide."""
    outcomes = Outcomes.of(lifecycles, rules)
    solves = [e for life in lifecycles for e in life.solves]
    return ReferenceRow(
        reward=position_estimates(outcomes.rewards, rules=rules),
        success=position_estimates(outcomes.success, rules=rules, limits=SHARE),
        num_packs=outcomes.num_packs,
        num_failed=sum(life.failed for life in lifecycles),
        num_malformed=sum(e.status is EpisodeStatus.MALFORMED for e in solves),
    )


def parts_of(world: TextEnv, pack: Pack) -> list[Pack]:
    """The pack, cut where its rule changes; each part is a pack of one rule."""
    at = beside(world, HiddenRules).changes_at(pack)
    shares = (pack.tasks,) if at is None else (pack.tasks[:at], pack.tasks[at:])
    return [replace(pack, tasks=tasks) for tasks in shares]
