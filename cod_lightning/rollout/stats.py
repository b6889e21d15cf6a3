"""What a rollout cost, in seconds and tokens; what failed in it, by name, and when that is too much to go on."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from cod_lightning.errors import TooManyFailures
from cod_lightning.ranks import gathered
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Group, Lifecycle

_INTERRUPTED = "rollout/num_interrupted_turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStats:
    """One rollout, as far as this rank played it."""

    seconds: float
    num_generated_tokens: int
    """Tokens that the policy sampled, attempts included."""
    counts: Counter[str]
    """By the names that `figures` logs."""
    parts: dict[str, tuple[float, int]]
    """Sum and number of the parts of rewards, by `reward/PART/position_N` (solve), `update_reward/PART/position_N` or
    `write_reward/PART/position_N`, of texts that are as asked for, by `write_valid/position_N`, of tasks solved, by `pass_at/K`."""

    def figures(self, in_flight: bool) -> dict[str, float]:
        """What a training logs with each update of the rollout: all ranks' counts, the slowest one's seconds.

        `rollout/token_drift` are action tokens before which the recorded ids are not those that the engine conditioned on: 0 unless
        something is wrong. `rollout/num_failed` are lifecycles and attempts that failed, `faults/NAME` lifecycles lost to a fault,
        `rollout/num_lost_groups` groups in which fewer than two siblings are complete, so that no whole lifecycles can be compared.
        `rollout/num_rewritten` are turns before which the chat template or the context mechanism rewrote history, and
        `rollout/num_interrupted_turns` those in which weights changed (`in_flight`). `rollout/num_attempts` are extra solve
        episodes, `rollout/attempt_tokens` their tokens, sampled or new in prompts. `train/resampled_packs` are packs played in
        place of others without signal. `train/reward/PART/position_N` and `train/update_reward/PART/position_N` are means of
        `data.rewards`, `train/pass_at/1` the success of tasks and `train/pass_at/K` the share of tasks that at least one of a
        pack's K lifecycles solved. Every rank has to call it.
        """
        of_ranks = gathered(self)
        whole, seconds = reduce(RolloutStats.__add__, of_ranks), max(one.seconds for one in of_ranks)
        return {
            "time/rollout_s": seconds,
            "throughput/generated_tokens_s": whole.num_generated_tokens / max(seconds, 1e-9),
            **{name: float(num) for name, num in whole.counts.items() if in_flight or name != _INTERRUPTED},
            **{f"train/{name}": total / count for name, (total, count) in whole.parts.items()},
        }

    def __add__(self, other: "RolloutStats") -> "RolloutStats":
        """Of a rollout in several rounds."""
        counts, parts = self.counts.copy(), dict(self.parts)
        counts.update(other.counts)
        for name, (total, count) in other.parts.items():
            before, num_before = parts.get(name, (0.0, 0))
            parts[name] = (before + total, num_before + count)
        return RolloutStats(
            seconds=self.seconds + other.seconds,
            num_generated_tokens=self.num_generated_tokens + other.num_generated_tokens,
            counts=counts,
            parts=parts,
        )

    @classmethod
    def of(
        cls,
        groups: Sequence[Group],
        seconds: float,
        token_drift: int,
        *,
        replacing: bool = False,
        num_interrupted_turns: int = 0,
    ) -> "RolloutStats":
        """The stats of these groups, rolled out together in that time."""
        lives = [lifecycle for group in groups for lifecycle in group.lifecycles]
        attempts = [episode for one in lives for episode in one.attempts]
        extra = [turn for episode in attempts for turn in episode.turns]
        counts = {
            "rollout/token_drift": token_drift,
            "rollout/num_failed": sum(one.failed for one in lives)
            + sum(episode.status is EpisodeStatus.FAILED for episode in attempts),
            "rollout/num_rewritten": sum(
                not turn.extends for one in lives for episode in one.own for turn in episode.turns[1:]
            ),
            "train/resampled_packs": len(groups) if replacing else 0,
            "rollout/num_attempts": len(attempts),
            "rollout/attempt_tokens": sum(len(turn.action_ids) + len(turn.new_ids) for turn in extra),
            "rollout/num_lost_groups": sum(
                len(g.lifecycles) > 1 and sum(not life.failed for life in g.lifecycles) < 2 for g in groups
            ),
            _INTERRUPTED: num_interrupted_turns,
        }
        return cls(
            seconds=seconds,
            num_generated_tokens=sum(episode.num_action_tokens for one in lives for episode in one.episodes),
            counts=Counter(counts | {f"faults/{name}": count for name, count in count_faults(groups).items()}),
            parts=_parts(lives) | _solved(groups),
        )


def _parts(lifecycles: Sequence[Lifecycle]) -> dict[str, tuple[float, int]]:
    """Of the lifecycles' own episodes that have a reward, attempts left out: a part that failed leaves the others behind."""
    values: dict[str, list[float]] = {}
    for lifecycle in lifecycles:
        for episode in (one for one in lifecycle.own if one.reward is not None):
            kind = "reward" if episode.kind is EpisodeKind.SOLVE else f"{episode.kind}_reward"
            for name, value in episode.parts.items():
                values.setdefault(f"{kind}/{name}/position_{episode.position}", []).append(value)
            if episode.kind is EpisodeKind.WRITE and episode.success is not None:
                values.setdefault(f"write_valid/position_{episode.position}", []).append(float(episode.success))
    return {name: (sum(found), len(found)) for name, found in sorted(values.items())}


def _solved(groups: Sequence[Group]) -> dict[str, tuple[float, int]]:
    """Tasks solved by one lifecycle, `pass_at/1`, and by at least one of K siblings, `pass_at/K`, where no outcome is missing."""
    values: dict[str, list[bool]] = {}
    for group in groups:
        tasks: dict[int, list[bool]] = {}
        for lifecycle in group.lifecycles:
            for solve in lifecycle.solves:
                if solve.success is not None:
                    tasks.setdefault(solve.position, []).append(solve.success)
        for found in tasks.values():
            values.setdefault("pass_at/1", []).extend(found)
            if len(found) == len(group.lifecycles) > 1:
                values.setdefault(f"pass_at/{len(found)}", []).append(any(found))
    return {name: (float(sum(found)), len(found)) for name, found in values.items()}


def count_faults(groups: Sequence[Group]) -> dict[str, int]:
    """Lifecycles lost to each fault, by its name; a lifecycle fails once, since nothing follows."""
    return dict(sorted(Counter(episode.fault for _, episode in _failed(groups)).items()))


def stop_if_too_many(label: str, groups: Sequence[Group], max_failed_fraction: float) -> None:
    """Raise `TooManyFailures`, with the faults by number and an example of each, if more than that share of lifecycles failed.

    Of all ranks' lifecycles: every rank has to ask, and all raise together.
    """
    own = {
        one.fault: f"for example {life.pack_id}#{life.sibling}, {one.kind} {one.position}:{one.error.partition(':')[2]}"
        for life, one in reversed(list(_failed(groups)))
    }
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
        "Remove the cause and go on with --ckpt_path auto, or raise data.max_failed_fraction. Tracebacks: lifecycles/faults.log in "
        "the run's folder."
    )


def _failed(groups: Sequence[Group]) -> Iterator[tuple[Lifecycle, Episode]]:
    for group in groups:
        for lifecycle in group.lifecycles:
            failed = next((e for e in lifecycle.own if e.status is EpisodeStatus.FAILED), None)
            if failed is not None:
                yield lifecycle, failed
