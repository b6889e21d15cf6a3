"""Reference policies of a world, deployed by the very code that deploys a model: what is there to gain, and by whom."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.base import Reference, TextEnv, TextPolicy
from cod_lightning.evaluation.intervals import Estimate, position_estimates
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.plans import LifecyclePlan, UpdateEvery
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.player import Player
from cod_lightning.rollout.setting import OWN_CONTEXTS, ContextSource, Setting, Shown
from cod_lightning.types import EpisodeKind, EpisodeStatus, Lifecycle, Pack

_MAX_NEW_TOKENS = 100_000
_WINDOW = 10_000_000


class Comparison(StrEnum):
    """Who is measured. None of them is a ceiling but the oracle, and it only for the tasks taken one by one."""

    RANDOM = "random"
    MEMORYLESS = "memoryless"
    """The scripted policy with its context hidden; memory that the world itself gives stays."""
    SCRIPTED = "scripted"
    ORACLE = "oracle"

    @property
    def reference(self) -> Reference:
        """Whose turns are played."""
        return Reference.SCRIPTED if self is Comparison.MEMORYLESS else Reference(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow:
    """One comparison in one world."""

    comparison: Comparison
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
    comparison: Comparison,
    mechanism: ContextMechanism,
    seed: int = 0,
    plan: LifecyclePlan = UpdateEvery(),  # noqa: B008  (frozen)
) -> Iterator[Lifecycle]:
    """One lifecycle through each pack, one after the other."""
    contexts = ContextSource(shown=Shown.EMPTY) if comparison is Comparison.MEMORYLESS else OWN_CONTEXTS
    for pack in packs:
        sampler = scripted_sampler(world.reference(comparison.reference, pack), mechanism, seed)
        setting = Setting(env=world, mechanism=mechanism, sampler=sampler, plan=plan)
        (group,) = run_groups([pack], 1, setting, contexts=[contexts])
        yield from group.lifecycles


def scripted_sampler(policy: TextPolicy, mechanism: ContextMechanism, seed: int = 0) -> Sampler:
    """A scripted policy as the rollout meets it, in bytes."""
    chat = byte_chat()
    engine = ScriptedEngine(Player(policy, mechanism).reply, chat.encode, chat.stop_id)
    return Sampler(engine=engine, chat=chat, window=_WINDOW, max_new_tokens=_MAX_NEW_TOKENS, seed=seed)


def summarise(comparison: Comparison, lifecycles: Sequence[Lifecycle]) -> ReferenceRow:
    """Means by position with intervals over packs."""
    outcomes = Outcomes.of(lifecycles)
    solves = [e for life in lifecycles for e in life.episodes if e.kind is EpisodeKind.SOLVE]
    return ReferenceRow(
        comparison=comparison,
        reward=position_estimates(outcomes.rewards),
        success=position_estimates(outcomes.success),
        num_packs=outcomes.num_packs,
        num_failed=sum(life.failed for life in lifecycles),
        num_malformed=sum(e.status is EpisodeStatus.MALFORMED for e in solves),
    )
