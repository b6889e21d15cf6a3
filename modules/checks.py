"""Numbers of an objective that cannot work, and options of it and of the data that have no meaning together."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from cod_lightning.credit.baselines import Accepted, AsymRE, RoleMean, TermsAlone
from cod_lightning.credit.credited import next_solve
from cod_lightning.credit.returns import CreditRule
from cod_lightning.credit.table import kind_id
from cod_lightning.errors import ConfigError, check_at_least, check_between, check_positive
from cod_lightning.lifecycles import outline
from cod_lightning.objective.losses import PolicyLoss
from cod_lightning.objective.terms import REFERENCE, LossTerm
from cod_lightning.training.scorers import Scorer
from cod_lightning.types import AttemptKind, EpisodeKind


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
    if gradient_clip_val is not None and not gradient_clip_val > 0:
        raise ConfigError("model.gradient_clip_val", gradient_clip_val, "above 0, or null", "1.0 is the default.")


def check_kinds(kinds: Sequence[str] | None) -> tuple[EpisodeKind, ...]:
    """The kinds of episodes that are trained on. Raises `ConfigError` where there is none."""
    if kinds is None:
        return tuple(EpisodeKind)
    if not kinds or not set(kinds) <= set(EpisodeKind):
        expected = f"at least one of {', '.join(EpisodeKind)}"
        raise ConfigError("model.trained_kinds", kinds, expected, "Null trains on all episodes.")
    return tuple(EpisodeKind(kind) for kind in kinds)


def check_terms(terms: Sequence[LossTerm], scorers: Mapping[str, Scorer]) -> None:
    """Raise `ConfigError` for terms of a model that is not there, and for models that no term needs."""
    needed = {name: type(term).__name__ for term in terms for name in term.needs}
    if REFERENCE in scorers:
        expected = "another name, since reference is the policy as it was when training began"
        raise ConfigError("model.scorers", REFERENCE, expected, "Rename it.")
    if unknown := sorted(needed.keys() - {REFERENCE, *scorers}):
        expected = f"reference or a key of model.scorers ({', '.join(sorted(scorers)) or 'none'})"
        term = f"model.terms.{needed[unknown[0]]}"
        raise ConfigError(term, unknown[0], expected, "Add the model under model.scorers.")
    if unused := sorted(set(scorers) - needed.keys()):
        raise ConfigError("model.scorers", unused[0], "a name that a term of model.terms needs", "Leave it out.")
    names = [term.logged_as for term in terms if term.logged_as]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            "model.terms", twice[0], "terms that are logged under different names", "Leave one of them out."
        )


def check_combination(module: Any, data: Any) -> None:
    """Raise `ConfigError` naming the key, and why. `module` is the GRPOModule, `data` the RolloutDataModule."""
    module.credit.check(data.pack_size)
    _check_reuse(module.loss, data)
    _check_attempts(module.credit, module.trained_kinds, data)
    _check_roles(module.trained_kinds, data)
    _check_baseline(module, data)
    if data.replay is not None and data.packs.source.changes_size:
        expected = "null with data.replay, which compares episodes at one place, so that packs stay as long as they are"
        raise ConfigError("data.source.num_tasks", "set", expected, "Grow max_turns alone, or leave data.replay out.")


def _check_baseline(module: Any, data: Any) -> None:
    """What has no meaning with a baseline that compares, accepts, leaves all to terms, or gives every pack an advantage."""
    baseline, replay = module.baseline, data.replay
    name = type(baseline).__name__
    if data.group_size < 2 and baseline.compares and module.critic is None:
        expected = f"at least 2 with model.baseline={name}, which compares siblings"
        remedy = "8 is the default; or set model.critic, or baseline=TermsAlone."
        raise ConfigError("data.group_size", data.group_size, expected, remedy)
    if isinstance(baseline, TermsAlone) and not module.terms:
        expected = "another one without model.terms, since its advantages are 0, so that nothing would be trained"
        raise ConfigError("model.baseline", name, expected, "Add a term, such as KL to a teacher.")
    if isinstance(baseline, Accepted):
        if data.program.beside:
            attempting = type(data.program).__name__
            expected = (
                f"another one with data.program={attempting}, whose attempts compare rewards where this one accepts"
            )
            raise ConfigError("model.baseline", "Accepted", expected, "Choose baseline=GroupMean, or another program.")
        if module.scale != "none":
            expected = "none with baseline=Accepted, whose advantages are all 1, so that nothing is left to divide by"
            raise ConfigError("model.scale", module.scale, expected, "Choose loss=reinforce, which sets it, or none.")
        if (source := data.packs.source).compares_advantages:
            expected = "another one with baseline=Accepted, whose advantages are all 1, in every category alike"
            remedy = "Choose source=learnability, or another baseline."
            raise ConfigError("data.source", type(source).__name__, expected, remedy)
        if module.loss.compares_siblings:
            expected = "one that looks at each episode alone with baseline=Accepted, which leaves out all but successes"
            raise ConfigError("model.loss", type(module.loss).__name__, expected, "Choose loss=reinforce.")
    every = isinstance(baseline, RoleMean) or (isinstance(baseline, AsymRE) and baseline.shift < 0)
    if not every and not isinstance(baseline, TermsAlone):
        return
    signal = type(replay).__name__ if replay is not None and replay.fills_in else ""
    for key, value, off, what in (
        ("data.resample_packs", data.resample_packs, 0, "none" if every else "all"),
        ("model.filter_packs", module.filter_packs, False, "none" if every else "all"),
        ("data.replay", signal, "another one", "none" if every else "all"),
    ):
        if value:
            gives = "every pack an advantage" if every else "no pack one"
            expected = (
                f"{off} with model.baseline={name}, which gives {gives}, so that {what} would be replaced or left out"
            )
            raise ConfigError(key, value, expected, "Leave it out, or choose another baseline.")


def _check_reuse(loss: PolicyLoss, data: Any) -> None:
    name = type(data.replay).__name__
    for key, value, used, off, harm in (
        (
            "passes_per_rollout",
            data.passes_per_rollout,
            data.passes_per_rollout > 1,
            1,
            "push the same ones further in every pass",
        ),
        (
            "max_staleness",
            data.max_staleness,
            data.max_staleness > 0,
            0,
            "take those of older weights for the policy's own",
        ),
        ("replay", name, data.replay is not None, "null", "take old ones for its own"),
        (
            "source",
            type(data.packs.source).__name__,
            data.packs.collects,
            "one whose packs the engine plays",
            "take those of other weights for the policy's own",
        ),
    ):
        if used and not loss.reuses_tokens:
            expected = (
                f"{off} with model.loss={type(loss).__name__} as it is set, which neither clips nor weighs tokens by their ratio "
                f"and so would {harm}"
            )
            raise ConfigError(f"data.{key}", value, expected, "Choose loss=loop, grpo, cispo or rec.")
    if data.replay is not None and loss.compares_siblings:
        expected = (
            f"null with model.loss={type(loss).__name__} as it is set, which compares an episode with its siblings, which are not "
            "replayed with it"
        )
        raise ConfigError(
            "data.replay", name, expected, "Choose loss=loop, grpo, cispo or rec, or leave data.replay out."
        )


def _check_roles(trained: Sequence[EpisodeKind], data: Any) -> None:
    there = {step.kind for step in outline(data.program, data.pack_size, data.context.updates)}
    if not there & set(trained):
        expected = f"a kind that the program has ({', '.join(sorted(there))})"
        raise ConfigError(
            "model.trained_kinds", [str(kind) for kind in trained], expected, "Null trains on all episodes."
        )
    if data.frozen is not None and data.frozen.kind not in there:
        expected = f"a kind that the program has ({', '.join(sorted(there))}), since there is nothing else to play"
        raise ConfigError("data.frozen.kind", str(data.frozen.kind), expected, "Leave data.frozen out.")
    if data.frozen is not None and data.frozen.kind in trained:
        other = ", ".join(kind for kind in EpisodeKind if kind in there and kind is not data.frozen.kind)
        raise ConfigError(
            "data.frozen.kind",
            str(data.frozen.kind),
            "a kind that model.trained_kinds leaves out, since what another policy samples says nothing on the trained one",
            f"Set model.trained_kinds to [{other}].",
        )


def _check_attempts(credit: CreditRule, trained: Sequence[EpisodeKind], data: Any) -> None:
    """Attempts need a rule that credits each episode apart; those without a context, trained updates that it credits with the next
    task."""
    if not data.program.beside:
        return
    steps = outline(data.program, data.pack_size, data.context.updates)
    kinds = torch.tensor([kind_id(step.kind) for step in steps])
    of_next = credit.weights(kinds).gather(1, next_solve(kinds)[:, None])[kinds == kind_id(EpisodeKind.UPDATE)]
    measured = EpisodeKind.UPDATE in trained and len(of_next) > 0 and bool((of_next > 0).all())
    if AttemptKind.WITHOUT_CONTEXT in data.program.beside and not measured:
        expected = "one without attempts that measure contexts, unless updates take place, are trained, and get the next reward"
        remedy = "Choose credit=episode or a window of at least 2, a program with updates, and all kinds."
        raise ConfigError("data.program", type(data.program).__name__, expected, remedy)
