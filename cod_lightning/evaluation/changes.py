"""Packs whose rule changes on the way: where they change, and an oracle that knows both rules."""

from dataclasses import replace

from msgspec import structs

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.evaluation.conditions import ConditionKind
from cod_lightning.evaluation.references import play_reference
from cod_lightning.lifecycles import ConnectTheDots, Program, outline
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Lifecycle, Pack


def change_position(world: TextEnv, pack: Pack) -> int | None:
    """Position of the pack's first task under another rule; None where the rule stays."""
    return world.change_position(pack) if isinstance(world, NonStationary) and len(pack) > 1 else None


def parts_of(world: TextEnv, pack: Pack) -> list[Pack]:
    """The pack, cut where its rule changes; each part is a pack of one rule."""
    at = change_position(world, pack)
    shares = (pack.tasks,) if at is None else (pack.tasks[:at], pack.tasks[at:])
    return [replace(pack, tasks=tasks) for tasks in shares]


def play_oracle(
    world: TextEnv,
    pack: Pack,
    mechanism: ContextMechanism,
    seed: int = 0,
    program: Program = ConnectTheDots(),  # noqa: B008  (frozen)
) -> Lifecycle:
    """One lifecycle of the oracle of each part's own rule, in a fresh world for each part.

    The oracle of a whole pack may know its first rule only. No context passes from part to part: an episode of the whole
    lifecycle that no part has is skipped.
    """
    played: dict[tuple[EpisodeKind, int], Episode] = {}
    first = 0
    for life in play_reference(world, parts_of(world, pack), ConditionKind.ORACLE, mechanism, seed, program):
        for episode in life.episodes:
            position = first + episode.position
            played[episode.kind, position] = structs.replace(episode, position=position)
        first += len(life.solves)
    episodes = [
        played.get((kind, position)) or Episode(kind=kind, position=position, status=EpisodeStatus.SKIPPED)
        for kind, position, _ in outline(program, len(pack), mechanism.updates)
    ]
    return Lifecycle(pack_id=pack.id, sibling=0, episodes=tuple(episodes))
