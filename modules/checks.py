"""What `model` refuses by its keys alone, and of what losses and terms answer; combinations with the data are in
`datamodules/combinations.py`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch

from cod_lightning.errors import ConfigError, answering
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
