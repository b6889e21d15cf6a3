"""What a person at a terminal needs beyond what a policy does: how to type, what there is, and what came of a task."""

from collections.abc import Mapping, Sequence

from cod_lightning.envs.base import Companion, E


class ForPeople(Companion[E]):
    """An environment at its present task, for the person who plays or watches it: by default, the answer by itself is typed.

    Nothing here reaches a policy.
    """

    about = "The answer by itself is enough, without reasoning or tags."
    """What to type."""

    def meant(self, lines: Sequence[str]) -> str | None:
        """The response of a person who has typed these lines, the first not empty; None while there is more to type.

        Raises `ValueError`, with what was expected, for what could not be read; the person then begins again.
        """
        return lines[0]

    def holds(self) -> Sequence[Mapping[str, str]]:
        """What there is to work with, as the rows of a table."""
        return ()

    def outcome(self) -> Sequence[tuple[bool | None, str]]:
        """Of a task that has ended, each condition and whether it holds; with None, a remark."""
        return ()
