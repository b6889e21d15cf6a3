"""Why a run does not learn: one class a cause, with what it looks at, its threshold and a remedy.

To add one: a subclass of `Cause` in `CAUSES`. Thresholds are measured: planted causes and healthy runs are in
docs/results/doctor.md; the table of docs/guides/doctor.md has the first paragraphs of these docstrings.
"""

from collections.abc import Sequence
from itertools import groupby
from math import log, nan
from statistics import fmean
from typing import Any

from cod_lightning.diagnosis.cause import FEWEST, Cause, Finding, Seen, cut, share_of, success_of, unread
from cod_lightning.diagnosis.evidence import Evidence, PlacedEpisode, episodes, placed
from cod_lightning.evaluation.view import rows
from cod_lightning.reports.curves import first_value, late_mean
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Lifecycle


class WrongTokenizer(Cause):
    """The policy meets a vocabulary or a chat template that its weights were not trained with.

    Named where a policy that began with weights is surprised by its own words in the first rollout ({surprise} nats a token or
    more) and at least {unread:.0%} of its solve episodes there did not parse or were cut off; or where token drift is above 0.
    """

    surprise, unread = 1.0, 0.8
    remedy = (
        "Use the tokenizer, template and protocol of the weights: the warm start's own config, model.policy.path, data.env. "
        "A warm start that was too short looks alike: raise warm_start.num_updates."
    )
    explains = ("format collapse", "truncated answers", "dead groups", "context ignored", "contexts independent")

    def seen(self, run: Evidence) -> Seen | None:
        if drift := max(run.metrics.get("rollout/token_drift", {}).values(), default=0.0):
            return f"rollout/token_drift reaches {drift:g}: what was sampled is not what training reads", ()
        solves = episodes(run.first_groups, EpisodeKind.SOLVE)
        share, found = share_of(solves, lambda one: unread(one) or cut(one))
        nats = [-value for one in solves for turn in one.episode.turns for value in turn.behaviour_logprobs]
        surprise = sum(nats) / len(nats) if nats else 0.0
        has_weights = any(map(run.option, ("warm_start", "model.policy.weights", "model.policy.path")))
        if not has_weights or share < self.unread or surprise < self.surprise:
            return None
        said = f"in the first rollout {share:.0%} of {len(solves)} solve episodes did not parse, at {surprise:.1f} nats a token"
        return said, found


class TruncatedAnswers(Cause):
    """Answers end at the response limit, so that what is trained on are beginnings.

    Named where at least {most:.0%} of the late episodes of a kind were cut off unread, from the first rollout on.
    """

    most = 0.25
    remedy = "Raise data.max_new_tokens, or teach shorter answers."
    explains = ("format collapse", "dead groups", "context ignored", "contexts independent")

    def seen(self, run: Evidence) -> Seen | None:
        for kind in EpisodeKind:
            late, found = share_of(episodes(run.late_groups, kind), cut)
            first, _ = share_of(episodes(run.first_groups, kind), cut)
            if late >= self.most and first >= self.most:
                said = (
                    f"{late:.0%} of late {kind} episodes end at data.max_new_tokens ({first:.0%} in the first rollout)"
                )
                return said, found
        return None


class BaselineWithoutSiblings(Cause):
    """Groups have no second sibling to compare with, so that advantages are missing.

    Named where at least {most:.0%} of the late groups have fewer than two lifecycles that went all the way.
    """

    most = 0.5
    remedy = "Read lifecycles/faults.log for what costs the lifecycles; or choose a baseline that compares nothing."
    explains = ("dead groups", "rate too low", "format collapse")

    def seen(self, run: Evidence) -> Seen | None:
        lost, size = late_mean(run.metrics, "rollout/num_lost_groups"), run.option("data.packs_per_rollout")
        if lost is None or not isinstance(size, int) or size < 1 or lost / size < self.most:
            return None
        failed = (one for one in placed(run.late_groups) if one.episode.status is EpisodeStatus.FAILED)
        return f"{lost:.1f} of {size} late groups have fewer than two whole siblings", failed


class DemonstrationsLeaveNothing(Cause):
    """The policy solves the tasks before training: demonstrations, or easy tasks, leave nothing to learn.

    Named where at least {solved:.0%} of the solve episodes of the first rollout succeed; and where evaluation.json has a warm start
    that at some temperature solves as many tasks as scripted play, or {near} fewer, and a trained policy that solves no more.
    """

    solved, near = 0.95, 0.02
    remedy = "Harder tasks (data.env), weaker (warm_start.teacher) or fewer demonstrations, or no training at all."
    explains = ("dead groups", "entropy gone", "rate too low", "context ignored")

    def seen(self, run: Evidence) -> Seen | None:
        solves = episodes(run.first_groups, EpisodeKind.SOLVE)
        success = success_of(solves)
        if success is not None and success >= self.solved:
            return f"{success:.0%} of {len(solves)} solve episodes of the first rollout succeed", solves
        for name, suite in run.suites.items():
            trained, scripted, begun = _levels(suite)
            if begun >= scripted - self.near and trained <= begun + self.near:
                said = f"in suite {name} the warm start at its best temperature solves {begun:.2f} of the tasks"
                return f"{said}, scripted play {scripted:.2f}, the trained policy {trained:.2f}", ()
        return None


class RewardClippedAway(Cause):
    """Siblings succeed and fail, and their rewards are equal: what tells them apart is clipped or summed away.

    Named where at least {most:.0%} of the late tasks that some siblings solved and others did not gave them equal rewards.
    """

    most = 0.5
    remedy = "Look at the parts and weights of data.rewards and at the environment's own bounds."
    explains = ("dead groups", "rate too low")

    def seen(self, run: Evidence) -> Seen | None:
        mixed: list[list[PlacedEpisode]] = []
        for one in run.late_groups:
            solves = sorted(episodes([one], EpisodeKind.SOLVE), key=lambda of: of.episode.position)
            cells = [list(cell) for _, cell in groupby(solves, key=lambda of: of.episode.position)]
            mixed += [cell for cell in cells if len({of.episode.success for of in cell}) > 1]
        equal = [cell for cell in mixed if len({of.episode.reward for of in cell}) == 1]
        if len(mixed) < FEWEST // 4 or len(equal) < self.most * len(mixed):
            return None
        shown = (one for cell in equal for one in cell if one.episode.success)
        said = f"in {len(equal)} of {len(mixed)} late tasks siblings that solved them have the rewards of those that did not"
        return said, shown


class SamplerNotSynced(Cause):
    """The engine does not sample from the trained weights: an adapter is never applied, or a sync brings old weights.

    Named where the log-prob gap between engine and training, before an update moves anything, is late at least {gap} nats and
    {times} times as large as in the first rollout.
    """

    gap, times = 0.01, 10
    remedy = "Leave the self-test of WeightSync on, which stops at the sync that failed; see docs/guides/vllm.md."
    explains = ("rate too high", "rate too low", "dead groups")

    def seen(self, run: Evidence) -> Seen | None:
        late, first = late_mean(run.metrics, "train/logprob_gap"), first_value(run.metrics, "train/logprob_gap")
        if late is None or first is None or late < self.gap or late < self.times * first:
            return None
        is_adapter = "LoRA" in str(run.option("model.policy.class_path"))
        what = "the adapter is not applied" if is_adapter else "the engine is stale"
        return f"train/logprob_gap grew from {first:.1e} to {late:.3f} nats: {what}", ()


class RateTooHigh(Cause):
    """Updates move the policy so far that it forgets what it could.

    Named where a rollout's updates moved log-probs of a fixed prompt by {moved} nats or more in the mean (`engine/policy_moved`),
    and late success is below {kept:.0%} of that in the first rollout.
    """

    moved, kept = 1.0, 0.8
    remedy = "Lower model.lr, ten times at first; keep model.gradient_clip_val."
    explains = (*WrongTokenizer.explains, "entropy gone")

    def seen(self, run: Evidence) -> Seen | None:
        steps = run.metrics.get("engine/policy_moved", {})
        most = max(steps.values(), default=0.0)
        first, late = (success_of(episodes(of, EpisodeKind.SOLVE)) for of in (run.first_groups, run.late_groups))
        if most < self.moved or first is None or late is None or late >= self.kept * first:
            return None
        failed = (one for one in episodes(run.late_groups, EpisodeKind.SOLVE) if not one.episode.success)
        return f"engine/policy_moved reaches {most:.1f} nats, and success fell from {first:.2f} to {late:.2f}", failed


class RateTooLow(Cause):
    """Updates have a gradient and do not move the policy.

    Named where there is a late gradient, and no rollout's updates moved log-probs of a fixed prompt by {moved} nats in the mean
    (`engine/policy_moved`).
    """

    moved = 1e-4
    remedy = "Raise model.lr; look at model.warmup_updates, and whether weights in bfloat16 round the updates away."

    def seen(self, run: Evidence) -> Seen | None:
        steps, norm = run.metrics.get("engine/policy_moved", {}), late_mean(run.metrics, "train/gradient_norm")
        if not steps or not norm or max(steps.values()) >= self.moved:
            return None
        most, lr = max(steps.values()), run.option("model.lr")
        return f"engine/policy_moved is at most {most:.1e} nats at model.lr={lr}, with a gradient of {norm:.2g}", ()


class FormatCollapse(Cause):
    """The policy no longer writes what the environment or the context can read.

    Named where at least {most:.0%} of the late episodes of a kind did not parse.
    """

    most = 0.5
    remedy = "Lower model.lr, add a KL term to the start, or a format reward; without a warm start, begin with one."
    explains = ("dead groups", "context ignored", "contexts independent", "entropy gone")

    def seen(self, run: Evidence) -> Seen | None:
        for kind in EpisodeKind:
            late, found = share_of(episodes(run.late_groups, kind), unread)
            if late >= self.most:
                first, _ = share_of(episodes(run.first_groups, kind), unread)
                return f"{late:.0%} of late {kind} episodes did not parse ({first:.0%} in the first rollout)", found
        return None


class EntropyGone(Cause):
    """The policy says one thing for sure, and no other one is tried any more.

    Named where late entropy is below {nats} nats a token, the first rollout's was above it, and late success is below {solved:.0%}.
    """

    nats, solved = 0.02, 0.9
    remedy = "Add an EntropyBonus or a KL term (model.terms), lower model.lr, or raise clip_high."
    explains = ("dead groups",)

    def seen(self, run: Evidence) -> Seen | None:
        late, first = late_mean(run.metrics, "train/entropy"), first_value(run.metrics, "train/entropy")
        success = success_of(solves := episodes(run.late_groups, EpisodeKind.SOLVE))
        if late is None or first is None or success is None:
            return None
        if late >= self.nats or first < self.nats or success >= self.solved:
            return None
        return f"train/entropy fell from {first:.2f} to {late:.4f} nats a token", solves


class DeadGroups(Cause):
    """Siblings do equally well, so that nothing is learnt from their packs.

    Named where `train/zero_variance_packs` is at least {most:.0%} in the mean of the late updates, or in as many of the late groups
    siblings have equal rewards in every task; not where a critic or another model teaches (`model.critic`, `model.scorers`).
    """

    most = 0.8
    remedy = "Easier or more varied tasks, a larger data.group_size, or data.resample_packs."

    def seen(self, run: Evidence) -> Seen | None:
        if run.option("model.critic") or run.option("model.scorers"):
            return None
        whole = [[life for life in one.group.lifecycles if not life.failed] for one in run.late_groups]
        alike = [_alike(lives) for lives in whole if len(lives) > 1]
        equal = fmean(alike) if len(alike) >= FEWEST // 4 else 0.0
        share = max(late_mean(run.metrics, "train/zero_variance_packs") or 0.0, equal)
        if share < self.most:
            return None
        success = success_of(solves := episodes(run.late_groups, EpisodeKind.SOLVE))
        said = "" if success is None else f"; {success:.0%} of their tasks are solved"
        return f"in {share:.0%} of the late packs all siblings do equally well{said}", solves


class ContextIgnored(Cause):
    """Tasks after the first go as well with the context hidden: the player does not use it.

    Named where hiding the context (`blanked_context` of evaluation.json) costs less than {least} of success in the mean of the
    later tasks, at the upper end of its 95 % interval, and success leaves room.
    """

    least, room = 0.05, 0.95
    remedy = "Demonstrate tasks that are solved by their context, credit later tasks (model.credit), see whether contexts are true."

    def seen(self, run: Evidence) -> Seen | None:
        for name, suite in run.suites.items():
            found = _hidden_costs(suite)
            if found is not None and found[1] < self.least and found[2] < self.room:
                said = f"in suite {name} hiding the context costs {found[0]:+.3f} of success after the first task"
                shown = (one for one in episodes(run.late_groups, EpisodeKind.SOLVE) if one.episode.context_before)
                return f"{said}, at most {found[1]:+.3f}", shown
        return None


class ContextsIndependent(Cause):
    """Contexts do not depend on what was seen: the writer repeats a template, or guesses.

    Named where late notes tell less than {least:.0%} of what would tell their packs apart: each is scored behind the prompts of
    other packs, too (RAGEN-2's diagonal, arXiv 2604.06268).
    """

    least = 0.05
    remedy = (
        "Credit the tasks that read the context (model.credit), demonstrate notes of what was seen, or pay for facts."
    )

    def seen(self, run: Evidence) -> Seen | None:
        found = run.dependence
        if found is None or found.num_notes < FEWEST or found.information >= self.least * log(found.num_notes):
            return None
        said = f"{found.num_notes} notes tell {found.information:.2f} nats of their packs, of {log(found.num_notes):.2f} at most"
        said += f"; {found.retrieved:.0%} are likeliest behind their own prompt"
        return said, episodes(run.late_groups, EpisodeKind.UPDATE)


def _alike(lives: Sequence[Lifecycle]) -> bool:
    """Whether siblings have equal rewards in every task, and in attempts at it."""
    played = [one for life in lives for one in (*life.solves, *life.attempts) if one.reward is not None]
    rewards = {(one.position, one.reward) for one in played}
    return len({len(life.solves) for life in lives}) == 1 and len(rewards) == len({one.position for one in played})


_MISSING = (KeyError, TypeError, ValueError)
"""What a record without the figure that is asked for raises."""


def _levels(suite: Any) -> tuple[float, float, float]:
    """Success in the mean over positions: trained, scripted, and of the warm start at its best temperature; NaN where one lacks."""
    try:
        means: Any = {"best" if row.best else row.key: row.mean for row in rows(suite)}
        return float(means["trained"]), float(means["scripted"]), float(means["best"])
    except _MISSING:
        return nan, nan, nan


def _hidden_costs(suite: Any) -> tuple[float, float, float] | None:
    """Success minus that with the context hidden, on the same packs, in the mean of the tasks after the first; the upper end of its
    95 % interval; and success with the context hidden."""
    try:
        figures, hidden = suite["figures"], fmean(of["success"] for of in suite["controls"]["blanked_context"][1:])
        transfer = figures["forward_transfer"]
        cost = transfer["success"] if transfer["control"] == "blanked_context" else figures["training_adds"]["trained"]
        return float(cost["mean"]), float(cost["ci95"][1]), hidden
    except _MISSING:
        return None


CAUSES: tuple[type[Cause], ...] = (
    WrongTokenizer,
    TruncatedAnswers,
    BaselineWithoutSiblings,
    DemonstrationsLeaveNothing,
    RewardClippedAway,
    SamplerNotSynced,
    RateTooHigh,
    RateTooLow,
    FormatCollapse,
    EntropyGone,
    DeadGroups,
    ContextIgnored,
    ContextsIndependent,
)
"""In the order in which they are looked for: what lies deeper comes first."""


def causes_of(run: Evidence) -> list[Finding]:
    """What ails the run, the deepest first; a cause that follows from one before it is left out."""
    found: list[Finding] = []
    explained: set[str] = set()
    for cause in CAUSES:
        if cause.named() not in explained and (finding := cause()(run)) is not None:
            found.append(finding)
            explained |= set(cause.explains)
    return found


def late_notes(run: Evidence) -> list[Episode]:
    """The first update of a lifecycle of each pack, the latest packs first."""
    updates = episodes(run.groups, EpisodeKind.UPDATE)
    first = min((one.episode.position for one in updates), default=0)
    found: dict[str, Episode] = {}
    for one in sorted(updates, key=lambda one: one.step, reverse=True):  # each rank has a file of its own
        if one.episode.position == first and one.episode.success:
            found.setdefault(one.pack, one.episode)
    return list(found.values())
