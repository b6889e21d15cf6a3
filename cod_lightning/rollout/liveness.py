"""Where every live lifecycle is, so that a watchdog sees when nothing moves, and names what hangs."""

import time


class Liveness:
    """Marked wherever a lifecycle hands over to an engine or a world; costs a dictionary write."""

    def __init__(self) -> None:
        self.beats = 0
        """Rises with every mark."""
        self._where: dict[str, tuple[str, float]] = {}
        self._over: BaseException | None = None

    def give_up(self, error: BaseException | None) -> None:
        """From now on every mark raises this, so that whatever goes by this liveness ends with its current turn; None: no more."""
        self._over = error

    def at(self, identity: str, place: str) -> None:
        """The episode `identity` is now in the `engine` or in the `world`."""
        if self._over is not None:
            raise self._over
        self._where[identity] = (place, time.monotonic())
        self.beats += 1

    def over(self, identity: str) -> None:
        """The episode has ended."""
        self._where.pop(identity, None)
        self.beats += 1

    def lines(self, most: int = 32) -> list[str]:
        """The live episodes, the one that moved last first: in a process that hangs, it is the one that holds up the others."""
        now = time.monotonic()
        live = sorted(self._where.copy().items(), key=lambda item: -item[1][1])
        lines = [f"{identity}: in the {place} for {now - since:.1f} s" for identity, (place, since) in live[:most]]
        return lines + ([f"and {len(live) - most:,} more"] if len(live) > most else [])
