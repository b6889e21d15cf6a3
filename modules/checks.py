"""Options of the objective and of the data that have no meaning together, and numbers that cannot work."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from cod_lightning.credit.baselines import Accepted, TermsAlone
from cod_lightning.credit.credited import next_solve
from cod_lightning.credit.table import kind_id
from cod_lightning.errors import ConfigError, check_at_least, check_between, check_positive
from cod_lightning.lifecycles import outline
from cod_lightning.objective.terms import REFERENCE, LossTerm
from cod_lightning.training.scorers import Scorer
from cod_lightning.types import AttemptKind, EpisodeKind

_REUSING = "Choose method=loop, grpo, cispo or rec."


def check_numbers(
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    warmup_updates: int,
    token_budget: int,
    gradient_clip_val: float | None,
    final_lr_fraction: float,
) -> None:
    """Raise `ConfigError` for optimizer settings out of range."""
    if not all(0 <= beta < 1 for beta in betas):
        raise ConfigError("model.betas", betas, "two numbers from 0 to below 1", "[0.9, 0.999] is the default.")
    if not 0 <= weight_decay < math.inf:
        raise ConfigError("model.weight_decay", weight_decay, "finite, and at least 0", "0 is the default.")
    check_at_least("model.warmup_updates", warmup_updates, 0, "0 is the default.")
    check_between("model.final_lr_fraction", final_lr_fraction, 0, 1, "1 keeps the rate constant.")
    check_positive("model.lr", lr, "The paper's is 1e-6, a tiny policy's about 1e-3.")
    check_at_least("model.token_budget", token_budget, 1, "16384 is the default.")
    check_positive("model.gradient_clip_val", gradient_clip_val, "1.0 is the default; null leaves gradients alone.")


def check_kinds(kinds: Sequence[str] | None) -> tuple[EpisodeKind, ...]:
    """The kinds of episodes that are trained on. Raises `ConfigError` where there is none."""
    if kinds is None:
        return tuple(EpisodeKind)
    if not kinds or not set(kinds) <= set(EpisodeKind):
        expected = f"at least one of {', '.join(EpisodeKind)}"
        raise ConfigError("model.trained_kinds", kinds, expected, "Null trains on all episodes.")
    return tuple(EpisodeKind(kind) for kind in kinds)


def check_terms(terms: Sequence[LossTerm], scorers: Mapping[str, Scorer]) -> None:
    """Raise `ConfigError` for terms of a model that is not there, and for two that are logged under one name."""
    needed = {name: type(term).__name__ for term in terms for name in term.needs}
    if REFERENCE in scorers:
        expected = "another name, since reference is the policy as it was when training began"
        raise ConfigError("model.scorers", REFERENCE, expected, "Rename it.")
    if unknown := sorted(needed.keys() - {REFERENCE, *scorers}):
        expected = f"reference or a key of model.scorers ({', '.join(sorted(scorers)) or 'none'})"
        term = f"model.terms.{needed[unknown[0]]}"
        raise ConfigError(term, unknown[0], expected, "Add the model under model.scorers.")
    if unused := sorted(set(scorers) - needed.keys()):  # a whole model would be loaded for nothing
        raise ConfigError("model.scorers", unused[0], "a name that a term of model.terms needs", "Leave it out.")
    names = [term.logged_as for term in terms if term.logged_as]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        expected = "terms that are logged under different names"
        raise ConfigError("model.terms", twice[0], expected, "Leave one of them out.")


def check_combination(module: Any, data: Any) -> None:
    """Raise `ConfigError` for the first of two options that have no meaning together, and would cost a training.

    `module` is the GRPOModule, `data` the RolloutDataModule.
    """
    module.credit.check(data.pack_size)
    for refuses, key, value, expected, remedy in _rules(module, data):
        if refuses:
            raise ConfigError(key, value, expected, remedy)


def _rules(module: Any, data: Any) -> Iterator[tuple[bool, str, object, str, str]]:
    """Whether it refuses; key, value, what is expected, remedy."""
    loss, baseline, trained = module.loss, module.baseline, module.trained_kinds
    as_set, named = f"model.loss={type(loss).__name__} as it is set", type(baseline).__name__
    replay = data.replay and type(data.replay).__name__
    steps = outline(data.program, data.pack_size, data.context.updates)
    there = sorted({step.kind for step in steps})

    for key, value, least in (
        ("passes_per_rollout", data.passes_per_rollout, 1),
        ("max_staleness", data.max_staleness, 0),
    ):
        expected = f"{least} with {as_set}, which neither clips nor weighs what older weights have sampled"
        yield value > least and not loss.reuses_tokens, f"data.{key}", value, expected, _REUSING
    expected = (
        f"null with {as_set}, which takes old tokens for the policy's own, or compares siblings, which are not replayed"
    )
    yield bool(replay) and (not loss.reuses_tokens or loss.compares_siblings), "data.replay", replay, expected, _REUSING
    expected = (
        f"one whose packs the engine plays with {as_set}, which takes tokens of other weights for the policy's own"
    )
    source = type(data.packs.source).__name__
    yield data.packs.collects and not loss.reuses_tokens, "data.source", source, expected, _REUSING
    shuffles = data.shuffle_episodes and (loss.compares_siblings or bool(replay))
    expected = (
        "false with a replay, which adds whole packs, and a loss that compares siblings, which may be in other updates"
    )
    remedy = "Leave it out, or choose method=loop without a replay."
    yield shuffles, "data.shuffle_episodes", True, expected, remedy
    expected = "null with data.replay, which compares episodes at one place, so that packs stay as long as they are"
    grows = bool(replay) and data.packs.source.changes_size
    yield grows, "data.source.num_tasks", "set", expected, "Grow max_turns alone, or leave data.replay out."

    expected = f"a kind that the program has ({', '.join(there)})"
    kinds = [str(kind) for kind in trained]
    yield not set(there) & set(trained), "model.trained_kinds", kinds, expected, "Null trains on all episodes."
    if (frozen := data.frozen and data.frozen.kind) is not None:
        yield frozen not in there, "data.frozen.kind", str(frozen), expected, "Leave data.frozen out."
        expected = (
            "a kind that model.trained_kinds leaves out, since another policy's samples say nothing on the trained one"
        )
        remedy = f"Set model.trained_kinds to [{', '.join(kind for kind in there if kind is not frozen)}]."
        yield frozen in trained, "data.frozen.kind", str(frozen), expected, remedy

    beside, program = data.program.beside, type(data.program).__name__
    if beside:
        ids = torch.tensor([kind_id(step.kind) for step in steps])
        worth = module.credit.weights(ids).gather(1, next_solve(ids)[:, None])[ids == kind_id(EpisodeKind.UPDATE)]
        measured = EpisodeKind.UPDATE in trained and len(worth) > 0 and bool((worth > 0).all())
        expected = "one without attempts that measure contexts, unless updates take place, are trained, and get the next reward"
        remedy = "Choose credit=EpisodeCredit or a window of at least 2, a program with updates, and all kinds."
        yield AttemptKind.WITHOUT_CONTEXT in beside and not measured, "data.program", program, expected, remedy

    alone = data.group_size < 2 and baseline.compares and module.critic is None
    expected = f"at least 2 with model.baseline={named}, which compares siblings"
    yield (
        alone,
        "data.group_size",
        data.group_size,
        expected,
        "8 is the default; or baseline=TermsAlone, or model.critic.",
    )
    if isinstance(baseline, Accepted):
        expected = (
            "left out with baseline=Accepted, whose advantages are all 1: there is nothing to compare, or to divide by"
        )
        for refuses, key, value in (
            (bool(beside), "data.program", program),
            (module.scale != "none", "model.scale", module.scale),
            (data.packs.source.compares_advantages, "data.source", source),
            (loss.compares_siblings, "model.loss", type(loss).__name__),
        ):
            yield (
                refuses,
                key,
                value,
                expected,
                "Leave it out, or choose another baseline; method=reinforce fits this one.",
            )
    if isinstance(baseline, TermsAlone):
        expected = "another one without model.terms, since its advantages are 0, so that nothing would be trained"
        yield not module.terms, "model.baseline", named, expected, "Add a term, such as KL to a teacher."
        expected = "left out with baseline=TermsAlone, which gives no pack an advantage, so that all would be replaced or left out"
        for key, value in (
            ("data.resample_packs", data.resample_packs),
            ("model.filter_packs", module.filter_packs),
            ("data.replay", replay if replay and data.replay.fills_in else None),
        ):
            yield bool(value), key, value, expected, "Leave it out, or choose another baseline."
