"""Levers behind sessions: a copy of the world holds one from its first task until it is closed."""

from typing import Any

from cod_lightning.envs.levers import Levers


class Sessions(Levers):
    held: "list[Sessions]"
    """Copies that hold one, whichever object made them."""

    def __init__(self) -> None:
        super().__init__(protocol="compact")
        type(self).held = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.close()
        self.held.append(self)
        return super().reset(seed=seed, options=options)

    def close(self) -> None:
        type(self).held = [one for one in self.held if one is not self]
