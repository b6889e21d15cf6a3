"""Options of the objective and of the data that have no meaning together, and would cost a training without a word."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

from cod_lightning.credit.baselines import TermsAlone
from cod_lightning.errors import ConfigError, answering
from cod_lightning.lifecycles import outline
from cod_lightning.objective.terms import REFERENCE, LossTerm
from cod_lightning.rewards import SiblingReward
from cod_lightning.training.scorers import Scorer
from cod_lightning.types import EpisodeKind

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
    for refuses, key, value, expected in _rules(module, data):
        if refuses:
            shown = value if isinstance(value, int | str | list) else type(value).__name__
            raise ConfigError(key, shown, expected, "Change one of the two.")


def _rules(module: Any, data: Any) -> Iterator[tuple[object, str, object, str]]:
    """Whether it refuses; key, value, what is expected."""
    loss, baseline = module.loss, module.baseline

    expected = "left out with a model.loss that compares siblings, without which an episode is replayed"
    yield data.replay is not None and loss.compares_siblings, "data.replay", data.replay, expected

    there = {step.kind for step in outline(data.program, data.pack_size, data.context.updates)}
    there -= {data.frozen.kind} if data.frozen else set()
    kinds, left = [str(kind) for kind in module.trained_kinds], ", ".join(sorted(there)) or "none is left"
    expected = f"a kind that data.program has and data.frozen does not play ({left})"
    yield not there & {*module.trained_kinds}, "model.trained_kinds", kinds, expected
    unmeasured = EpisodeKind.UPDATE not in there & {*module.trained_kinds}
    expected = "one without attempts that measure what an update wrote, since none is trained"
    yield {*data.program.beside} - {"own"} and unmeasured, "data.program", data.program, expected

    needs = module.critic is None or module.filter_packs or data.resample_packs or data.replay is not None
    expected = "at least 2 where siblings are compared, as all but model.critic and baseline=TermsAlone do, and some data.source"
    compared = (baseline.compares and needs) or loss.compares_siblings or data.packs.source.compares
    compared = compared or any(isinstance(part, SiblingReward) for part in data.rewards.values())
    yield data.group_size < 2 and compared, "data.group_size", data.group_size, expected

    if isinstance(baseline, TermsAlone):
        expected = "left out with baseline=TermsAlone, beside which no pack is worth a replay"
        yield data.replay is not None, "data.replay", data.replay, expected
        expected = "another one without model.terms, since its advantages are 0, so that nothing would be trained"
        yield not module.terms, "model.baseline", baseline, expected
    if not baseline.scales:
        named = type(baseline).__name__
        expected = (
            f"left out with baseline={named}, whose advantages are in no units of reward: there is nothing to compare"
        )
        yield data.program.beside, "data.program", data.program, expected
        yield loss.compares_siblings, "model.loss", loss, expected
