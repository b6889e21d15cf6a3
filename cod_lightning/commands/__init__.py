"""What `python -m cod_lightning` does: a module with a `run` for each command."""

LIGHTNING = ("fit", "validate", "test")
_OWN = "plan serve warm_start export deploy context worlds check play report doctor sweep"
OF_METHODS = {"evolve": "cod_lightning.methods.evolution_command"}
"""Command of a method -> its module, with the `OPTIONS` that it adds to those of a command that plays, and its `run`."""
COMMANDS = (
    dict.fromkeys(LIGHTNING, "fit") | {name: name for name in _OWN.split()} | dict.fromkeys(OF_METHODS, "of_method")
)
"""Command -> the module with its `run`."""
LIGHT = ("context", "worlds", "check", "play", "report", "sweep")
"""Those that import no torch, or only once they know that they need it."""
LEARNT_NOTHING = 3
"""Exit code of a `fit` in which no update had a gradient."""
