"""What reaches a terminal: texts of worlds, models, servers and files are shown there, and never act on it.

`cleaned_output` holds for everything that a command prints, errors, warnings and tracebacks too; `Screen` is the one way past it,
since colours and live displays are escape sequences themselves.
"""

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from cod_lightning.errors import ReaderEnded
from cod_lightning.markdown import visible


class Screen(Console):
    """A rich console: styles are its own, texts are cleaned. Square brackets in a text are no markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "highlight": False, "emoji": False, **options})
        if not self.width:  # of COLUMNS=0, in which nothing is shown
            self.width = 80

    @property
    def file(self) -> IO[str]:
        """Where it writes: the stream itself, within whatever cleans or redirects it."""
        stream = super().file
        while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
            stream = inner
        return stream

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def on_broken_pipe(self) -> None:
        """End the command, also from within a rollout; rich has let go of the pipe."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise ReaderEnded(128 + signal.SIGPIPE) from None

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich renders it, without links and control characters."""
        for text, style, control in super().render(renderable, options):
            unlinked = style.update_link(None) if style is not None and style.link else style
            yield Segment(text if control else visible(text), unlinked, control)


class CleanStream:
    """A text stream whose every character is printable, a tab or a newline.

    A carriage return at the start of what is written stays, as progress bars of libraries begin so.

    Args:
        stream: Where it goes.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        """By this name rich finds where a `Screen` is to write."""

    def write(self, text: str) -> int:
        redrawn = text.startswith("\r") and self.rich_proxied_file.isatty()
        self.rich_proxied_file.write("\r" + visible(text[1:]) if redrawn else visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def cleaned_output() -> Iterator[None]:
    """Clean all that is printed meanwhile; also a traceback that is printed afterwards, for what is raised here."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and CleanStream(stream) for stream in before)  # pyright: ignore
    yield
    sys.stdout, sys.stderr = before
