"""`serve`: looks at the file that ends it before the libraries are imported, which takes seconds; `serving.py` does the rest."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path


class Changes:
    """Whether files have changed since they were first looked at, by the time of their last change; a missing one has none."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def __call__(self, file: str | None) -> bool:
        """Whether this one has; null never."""
        if file is None:
            return False
        try:
            now = Path(file).stat().st_mtime_ns
        except OSError:
            now = 0
        return now != self._seen.setdefault(file, now)


def run(argv: Sequence[str]) -> int:
    """Serve until the file that `--until` names is another than now."""
    changed = Changes()
    words = [word for one in argv for word in one.split("=", 1)]
    for option, file in pairwise(words):
        if option == "--until":
            changed(file)
    from cod_lightning.commands import serving

    return serving.run(argv, changed)
