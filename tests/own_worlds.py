"""Which shipped worlds need nothing of others."""

from cod_lightning.commands.shipped import files_of

OF_OTHERS = tuple(
    f"cod_lightning.envs.{one}." for one in ("dataset", "reasoning_gym_world", "textarena_world", "textworld")
)
"""Where classes of worlds are whose questions come from elsewhere."""


def own_worlds() -> list[str]:
    """Names of those that need neither a file nor a package of others."""
    return [name for name, path in files_of("env").items() if not any(one in path.read_text() for one in OF_OTHERS)]
