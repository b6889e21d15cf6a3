"""Options of the objective and of the data that have no meaning together, and would cost a training without a word."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

from cod_lightning.credit.baselines import Accepted, TermsAlone
from cod_lightning.errors import ConfigError, answering
from cod_lightning.lifecycles import outline
from cod_lightning.objective.terms import REFERENCE, LossTerm
from cod_lightning.training.scorers import Scorer

In = TypeVar("In")
Out = TypeVar("Out")


def check_terms(terms: Sequence[LossTerm], scorers: Mapping[str, Scorer]) -> None:
    """Raise `ConfigError` for terms without a coefficient, or of a model that is not there, or that has the name of another."""
    if REFERENCE in scorers:
        expected = "another name, since reference is the policy as it was when training began"
        raise ConfigError("model.scorers", REFERENCE, expected, "Rename it.")
    for term in terms:
        if not hasattr(term, "coefficient"):
            expected = "a frozen dataclass with a field `coefficient`"
            raise ConfigError("model.terms", type(term).__name__, expected, "Add the field.")
        if unknown := sorted(set(term.needs) - {REFERENCE, *scorers}):
            expected = f"reference or a key of model.scorers ({', '.join(sorted(scorers)) or 'none'})"
            key = f"model.terms.{type(term).__name__}"
            raise ConfigError(key, unknown[0], expected, "Add the model under model.scorers.")


def made(part: Callable[[In], Out], inputs: In, key: str, kind: type[Out]) -> Out:
    """What a loss or a term makes of a micro-batch. Raises `ConfigError` where it raises, or makes another kind of thing."""
    refused = partial(ConfigError, key, type(part).__name__, remedy="Correct it.")
    try:
        out = part(inputs)
        if isinstance(out, kind):
            return out
        raise TypeError(f"it returns a {type(out).__name__}")
    except torch.OutOfMemoryError:
        raise
    except Exception:
        with answering(refused, f"one that returns {kind.__name__}"):
            raise


def check_combination(module: Any, data: Any) -> None:
    """Raise `ConfigError` for the first of two options that have no meaning together.

    `module` is the GRPOModule, `data` the RolloutDataModule.
    """
    for refuses, key, value, expected, remedy in _rules(module, data):
        if refuses:
            shown = value if isinstance(value, int | str | list) else type(value).__name__
            raise ConfigError(key, shown, expected, remedy)


def _rules(module: Any, data: Any) -> Iterator[tuple[object, str, object, str, str]]:
    """Whether it refuses; key, value, what is expected, remedy."""
    loss, baseline, replays = module.loss, module.baseline, data.replay is not None

    expected = "left out with a loss that compares siblings, without which an episode is replayed"
    remedy = "Leave it out, or choose method=loop, grpo, cispo or rec."
    yield replays and loss.compares_siblings, "data.replay", data.replay, expected, remedy

    there = {step.kind for step in outline(data.program, data.pack_size, data.context.updates)}
    there -= {data.frozen.kind} if data.frozen else set()
    kinds, left = [str(kind) for kind in module.trained_kinds], ", ".join(sorted(there)) or "none is left"
    expected = f"a kind that the program has and data.frozen does not play ({left})"
    remedy = "Name one, or change data.frozen."
    yield not there & {*module.trained_kinds}, "model.trained_kinds", kinds, expected, remedy

    by_baseline = {
        f"model.baseline={type(baseline).__name__}": module.critic is None,
        "model.filter_packs": module.filter_packs,
        "data.resample_packs": data.resample_packs,
        "data.replay": replays,
    }
    compares = [what for what, there in by_baseline.items() if there and baseline.compares]
    compares += [f"model.loss={type(loss).__name__}"] * loss.compares_siblings
    expected = f"at least 2 with {', '.join(compares)}, where siblings are compared"
    remedy = (
        "8 is the default; or leave that out: model.critic, and baseline=TermsAlone with model.terms, compare nothing."
    )
    yield data.group_size < 2 and compares, "data.group_size", data.group_size, expected, remedy
    expected = "0 with baseline=TermsAlone, beside which every pack would be replaced"
    vain = isinstance(baseline, TermsAlone) and data.resample_packs
    yield vain, "data.resample_packs", data.resample_packs, expected, "Leave it out."
    expected = "one without Counterfactual beside model.critic, which takes the place of what that measures"
    vain = module.critic is not None and set(data.program.beside) - {"own"}
    yield vain, "data.program", data.program, expected, "Leave out one of the two."
    expected = "another one without model.terms, since its advantages are 0, so that nothing would be trained"
    remedy = "Add a term, such as KL to a teacher."
    yield isinstance(baseline, TermsAlone) and not module.terms, "model.baseline", baseline, expected, remedy
    expected = (
        "left out with baseline=Accepted, whose advantages are all 1: there is nothing to compare, or to divide by"
    )
    for compared, key, value in (
        (data.program.beside, "data.program", data.program),
        (module.scale != "none", "model.scale", module.scale),
        (loss.compares_siblings, "model.loss", loss),
    ):
        yield isinstance(baseline, Accepted) and compared, key, value, expected, "Or choose another baseline."
