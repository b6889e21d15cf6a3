"""A table in which every text is kept once; records hold its number. Contexts and observations repeat a lot."""


class StringTable:
    """Texts by number, in the order in which they came; 0 is the empty one.

    >>> table = StringTable()
    >>> table.add("up"), table.add("down"), table.add("up"), table.texts
    (1, 2, 1, ['', 'up', 'down'])
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        """The number of this text."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        """All texts, each at its number."""
        return list(self._numbers)
