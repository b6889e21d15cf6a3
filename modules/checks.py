"""Numbers of an objective that cannot work."""

from collections.abc import Mapping, Sequence

from cod_lightning.errors import ConfigError
from cod_lightning.objective.terms import REFERENCE, LossTerm
from cod_lightning.training.scorers import Scorer


def check_numbers(lr: float, token_budget: int, gradient_clip_val: float | None, final_lr_fraction: float) -> None:
    """Raise `ConfigError` for optimizer settings out of range."""
    if not 0 <= final_lr_fraction <= 1:
        raise ConfigError("model.final_lr_fraction", final_lr_fraction, "in [0, 1]", "1 keeps the rate constant.")
    if not lr > 0:
        raise ConfigError("model.lr", lr, "a number above 0", "The paper's is 1e-6, a tiny policy's about 1e-3.")
    if token_budget < 1:
        raise ConfigError("model.token_budget", token_budget, "at least 1", "16384 is the default.")
    if gradient_clip_val is not None and not gradient_clip_val > 0:
        raise ConfigError("model.gradient_clip_val", gradient_clip_val, "above 0, or null", "1.0 is the default.")


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
