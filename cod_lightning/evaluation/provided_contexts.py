"""Contexts that an agent did not write itself: another pack's, or what the environment's oracle writes."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import Players, Reference, TextEnv, Tools, beside
from cod_lightning.envs.own_loop import own_loop
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.changes import parts_of
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.rollout.asked import first_ids
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Group, Lifecycle, Pack

Contexts = Sequence[Any]
"""[N] the context's state at each position; None where none is known, and the task is left out."""


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


class OraclePrompts:
    """The prompts of a rollout's episodes as they would be if each showed what the environment's oracle writes of the pack.

    Args:
        groups: By their g in the credit table.
        setting: In which they were played.
    """

    def __init__(self, groups: Mapping[int, Group], setting: Setting) -> None:
        self.groups, self.setting = groups, setting
        self._packs: dict[int, tuple[str, Sequence[Any], Contexts]] = {}
        """The rules, the tools and the oracle's contexts of packs that were asked for."""
        self._found: dict[tuple[int, int, int], tuple[int, ...] | None] = {}

    def __call__(self, g: int, k: int, e: int, ids: Sequence[int]) -> Sequence[int] | None:
        """For a row of these ids; None where it does not begin with the episode's first prompt, or would not fit the window."""
        life = self.groups[g].lifecycles[k]
        first = life.episodes[e].turns[0].new_ids
        if tuple(ids[: len(first)]) != first:
            return None
        if (g, k, e) not in self._found:
            self._found[g, k, e] = self._prompt(g, life, life.episodes[e])
        found, window = self._found[g, k, e], self.setting.sampler.window
        return None if found is None or len(found) + len(ids) - len(first) > window else found

    def _prompt(self, g: int, life: Lifecycle, episode: Episode) -> tuple[int, ...] | None:
        mechanism, chat = self.setting.mechanism, self.setting.sampler.chat
        rules, tools, contexts = self._packs.get(g) or self._packs.setdefault(g, self._of_pack(self.groups[g].pack))
        if (state := contexts[episode.position]) is None:
            return None
        if episode.kind is not EpisodeKind.UPDATE:
            observation = episode.turns[0].observation
            return first_ids(chat, mechanism.prepare(state, rules, observation).system, observation, tools)
        solved = next(one for one in life.solves if one.position == episode.position)
        text = mechanism.text(state)
        seen = structs.replace(solved, context_before=text, context_after=text, state_before=state, state_after=state)
        asking = mechanism.update(state, rules, seen, chat)
        opening = next(asking)
        assert not isinstance(opening, str), "an update begins with its opening messages"
        asking.close()
        return chat.opening(chat.prefixed(opening))

    def _of_pack(self, pack: Pack) -> tuple[str, Sequence[Any], Contexts]:
        world = copy.deepcopy(self.setting.env)
        world.reset(options={"task": pack.tasks[0]})
        rules, tools = world.rules, beside(world, Tools).schemas
        world.close()
        return rules, tools, oracle_contexts(self.setting.env, [pack], self.setting.mechanism)[0]


def _oracle_state(world: TextEnv, part: Pack, mechanism: ContextMechanism) -> Any:
    """The context after one task of the oracle that knows all tasks of this part; empty if its update did not parse."""
    sampler = scripted_sampler(beside(world, Players).reference(Reference.ORACLE, part), mechanism)
    twice = replace(part, tasks=(part.tasks[0], part.tasks[0]))
    (group,) = run_groups([twice], 1, Setting(env=world, mechanism=mechanism, sampler=sampler))
    last = [episode for episode in group.lifecycles[0].episodes if episode.position == 0][-1]
    parsed = last.success or last.kind is EpisodeKind.SOLVE
    return None if last.reward is None else last.state_after if parsed else mechanism.empty()
