"""Contexts that an agent did not write itself: another pack's, what the environment's oracle writes, or none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cod_lightning.contexts.base import ContextMechanism, Prepared, TokenView, UpdateDialogue
from cod_lightning.envs.base import Players, Reference, TextEnv, beside
from cod_lightning.envs.own_loop import own_loop
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.references import parts_of, scripted_sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Lifecycle, Pack

Contexts = Sequence[Any]
"""[N] the context's state at each position; None where none is known, and the task is left out."""


class NoContext(ContextMechanism):
    """Shows tasks the environment's rules alone.

    Args:
        updates: As those of the mechanism in whose place it is, for lifecycles of the same episodes.
    """

    def __init__(self, updates: bool) -> None:
        self.updates = updates

    def text(self, state: Any) -> str:
        return ""

    def prepare(self, state: Any, rules: str, observation: str) -> Prepared:
        return Prepared(rules, state)

    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        raise NotImplementedError("nothing is rewritten")


def shuffled_contexts(lifecycles: Sequence[Lifecycle]) -> list[Contexts]:
    """For each lifecycle, the contexts that the solve episodes of the next one began with at the same positions.

    After the last comes the first. None where that episode never began.

    >>> shuffled_contexts([])
    []
    """
    assert len(lifecycles) != 1, "a single lifecycle has no other one's contexts"
    others = [*lifecycles[1:], *lifecycles[:1]]
    return [[None if e.status is EpisodeStatus.SKIPPED else e.state_before for e in other.solves] for other in others]


def oracle_contexts(world: TextEnv, packs: Sequence[Pack], mechanism: ContextMechanism) -> list[Contexts]:
    """For each pack and position, the context that the oracle of that rule writes once it has played the first task under it.

    The oracle plays and writes through the ordinary rollout, so that any mechanism and any environment will do. None where the
    environment failed it.
    """
    found: list[Contexts] = []
    for pack in packs:
        parts = parts_of(world, pack)
        states = [_oracle_state(world, part, mechanism) for part in parts]
        found.append([state for state, part in zip(states, parts, strict=True) for _ in part.tasks])
    return found


def check_oracle(world: TextEnv, pack: Pack, mechanism: ContextMechanism, key: str, value: str, remedy: str) -> None:
    """Raise `ConfigError` for this key where the oracle of this pack writes nothing that the mechanism can read."""
    try:
        written = any(
            state is not None and mechanism.text(state) for state in oracle_contexts(world, [pack], mechanism)[0]
        )
    except NotImplementedError:
        written = False
    if not written or own_loop(world):
        expected = f"a world whose oracle writes a context that can be read, not {world.name}"
        raise ConfigError(key, value, expected, remedy)


def _oracle_state(world: TextEnv, part: Pack, mechanism: ContextMechanism) -> Any:
    """The context after one task of the oracle that knows all tasks of this part; empty if its update did not parse."""
    sampler = scripted_sampler(beside(world, Players).reference(Reference.ORACLE, part), mechanism)
    twice = replace(part, tasks=(part.tasks[0], part.tasks[0]))
    (group,) = run_groups([twice], 1, Setting(env=world, mechanism=mechanism, sampler=sampler))
    last = [episode for episode in group.lifecycles[0].episodes if episode.position == 0][-1]
    parsed = last.success or last.kind is EpisodeKind.SOLVE
    return None if last.reward is None else last.state_after if parsed else mechanism.empty()
