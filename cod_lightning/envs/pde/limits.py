"""Which parameters of PDE Discovery can work."""

from typing import TYPE_CHECKING

from cod_lightning.envs.checks import check_between, check_choice, check_in, check_share, check_span, check_turns
from cod_lightning.envs.pde.templates import FAMILIES, eligible
from cod_lightning.errors import ConfigError

if TYPE_CHECKING:
    from cod_lightning.envs.pde.world import PDEDiscovery


def check_parameters(env: "PDEDiscovery") -> None:
    """Raise `ConfigError` at the first parameter that cannot work."""
    compact = env.protocol == "compact"
    check_choice("data.env.protocol", env.protocol, ("natural", "compact"))
    check_choice("data.env.labels", env.labels, ("fixed", "random"))
    check_choice("data.env.family", env.family, tuple(FAMILIES))
    check_turns(env.max_turns, "6 is the reference's.")
    fewest = 2 if compact else 3
    if env.max_turns < fewest:
        need = "measure and answer" if compact else "measure, fit and finalise"
        raise ConfigError("data.env.max_turns", env.max_turns, f"at least {fewest}, to {need}", "6 is the reference's.")
    most = 2 if compact else 3
    low, high = env.min_terms, env.max_terms
    check_span("min_terms", low, "max_terms", high, 1, most, "1 and 2 are the reference's for training.")
    if not compact and not eligible(env.family, env.min_terms, env.max_terms):
        has = f"a number of terms that {env.family} has; its reactions have 1-2 (training) or 2-3 terms (evaluation)"
        raise ConfigError("data.env.max_terms", env.max_terms, has, "Use 2 for training, 3 for evaluation.")
    fewest = 4 if compact else 1
    check_in("data.env.point_budget", env.point_budget, fewest, 24, "6 is the reference's.")
    check_between("data.env.noise_level", env.noise_level, 0, 0.1, "0.002 is the reference's.")
    if not env.kappa_threshold >= 1:
        raise ConfigError("data.env.kappa_threshold", env.kappa_threshold, "at least 1", "100 is the reference's.")
    check_in("data.env.grid_points", env.grid_points, 17, 1025, "257 is the reference's.")
    check_in("data.env.time_levels", env.time_levels, 101, 8001, "2001 is the reference's.")
    check_share("data.env.length_penalty", env.length_penalty, "0 is the default.")
