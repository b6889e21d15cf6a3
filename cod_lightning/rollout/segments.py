"""From episodes to trainable rows: turns whose prompts extend one another become one row, so each token is trained once."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from cod_lightning.engines.base import digest
from cod_lightning.types import Group, Image, Segment, Turn


def segments_of(groups: Iterable[Group]) -> list[Segment]:
    """The rows of every episode that is trained on, in order of pack, sibling, episode; those of its attempts at the end."""
    return [
        _merge(run, pack_id=group.pack.id, sibling=lifecycle.sibling, episode=e)
        for group in groups
        for lifecycle in group.lifecycles
        for e, episode in enumerate(lifecycle.episodes)
        if episode.trained
        for run in _runs(episode.turns)
    ]


def count_drift(groups: Iterable[Group]) -> int:
    """Action tokens whose preceding ids in the training row are not those the engine really conditioned on.

    Zero, or the run has a bug: the engine reports a digest of the ids in its cache, and the row's own is compared.
    """
    drift = 0
    for group in groups:
        for episode in chain.from_iterable(lifecycle.episodes for lifecycle in group.lifecycles):
            for run in _runs(episode.turns):
                running = 0
                for turn in run:
                    running = digest(turn.new_ids, running)
                    drift += len(turn.action_ids) if running != turn.prompt_digest else 0
                    running = digest(turn.action_ids, running)
    return drift


def _runs(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    """Maximal runs of answered turns that extend one another."""
    run: list[Turn] = []
    for turn in turns:
        if run and not turn.extends:
            yield run
            run = []
        if turn.action_ids:  # a prompt without a response (window full) is in no row
            run.append(turn)
    if run:
        yield run


def _merge(run: Sequence[Turn], *, pack_id: str, sibling: int, episode: int) -> Segment:
    token_ids: list[int] = []
    action_mask: list[bool] = []
    logprobs: list[float] = []
    for turn in run:
        token_ids += turn.new_ids + turn.action_ids
        action_mask += [False] * len(turn.new_ids) + [True] * len(turn.action_ids)
        logprobs += (0.0,) * len(turn.new_ids) + turn.behaviour_logprobs
    return Segment(
        pack_id=pack_id,
        sibling=sibling,
        episode=episode,
        token_ids=tuple(token_ids),
        action_mask=tuple(action_mask),
        behaviour_logprobs=tuple(logprobs),
        policy_version=min(turn.policy_version for turn in run),
        images=tuple(part for turn in run for part in turn.parts if isinstance(part, Image)),
    )
