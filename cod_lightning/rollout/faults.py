"""What failed in a rollout, by name, and when it is too much to go on."""

from collections import Counter
from collections.abc import Iterator, Sequence

from cod_lightning.errors import TooManyFailures
from cod_lightning.ranks import gathered
from cod_lightning.types import Episode, EpisodeStatus, Group, Lifecycle


def count_faults(groups: Sequence[Group]) -> dict[str, int]:
    """Lifecycles lost to each fault, by its name; a lifecycle fails once, since nothing follows."""
    return dict(sorted(Counter(episode.fault for _, episode in _failed(groups)).items()))


def stop_if_too_many(label: str, groups: Sequence[Group], max_failed_fraction: float) -> None:
    """Raise `TooManyFailures`, with the faults by number and an example of each, if more than that share of lifecycles failed.

    Of all ranks' lifecycles: every rank has to ask, and all raise together.
    """
    own = {episode.fault: _example(life, episode) for life, episode in reversed(list(_failed(groups)))}
    parts = gathered((sum(len(group.lifecycles) for group in groups), Counter(count_faults(groups)), own))
    num_lifecycles = sum(num for num, _, _ in parts)
    faults = dict(sorted(sum((counts for _, counts, _ in parts), Counter()).items()))
    num_failed = sum(faults.values())
    if num_failed <= max_failed_fraction * num_lifecycles:
        return
    examples = {name: message for _, _, of in reversed(parts) for name, message in of.items()}
    lines = "\n".join(f"  {count:,} {name}, {examples[name]}" for name, count in Counter(faults).most_common())
    raise TooManyFailures(
        f"{num_failed:,} of {num_lifecycles:,} lifecycles of the rollout '{label}' failed, more than "
        f"data.max_failed_fraction={max_failed_fraction:g} allows:\n{lines}\n"
        "Remove the cause and go on with --ckpt_path last, or raise data.max_failed_fraction."
    )


def _failed(groups: Sequence[Group]) -> Iterator[tuple[Lifecycle, Episode]]:
    for group in groups:
        for lifecycle in group.lifecycles:
            failed = next((e for e in lifecycle.episodes if e.status is EpisodeStatus.FAILED), None)
            if failed is not None:
                yield lifecycle, failed


def _example(lifecycle: Lifecycle, episode: Episode) -> str:
    where = f"{lifecycle.pack_id}#{lifecycle.sibling}, {episode.kind} {episode.position}"
    return f"for example {where}:{episode.error.partition(':')[2]}"
