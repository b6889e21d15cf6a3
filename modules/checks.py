"""Numbers of an objective that cannot work."""

from cod_lightning.errors import ConfigError


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


def check_terms(kl_coefficient: float, kl_estimator: str, entropy_coefficient: float) -> None:
    """Raise `ConfigError` for terms of the loss out of range."""
    if kl_coefficient < 0:
        raise ConfigError("model.kl_coefficient", kl_coefficient, "at least 0", "0 is the paper's.")
    if kl_coefficient == 0 and kl_estimator != "k2":
        expected = "left out while model.kl_coefficient is 0, since there is nothing to estimate"
        raise ConfigError("model.kl_estimator", kl_estimator, expected, "Set both.")
    if entropy_coefficient < 0:
        raise ConfigError("model.entropy_coefficient", entropy_coefficient, "at least 0", "0.001 is a usual value.")
