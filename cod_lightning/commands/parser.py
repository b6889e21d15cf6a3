"""How the command line answers a mistake in an option: in one line, by the name that the person typed."""

import contextlib
import sys
import traceback
from argparse import ArgumentError
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser
from jsonargparse._common import ImportDenied
from jsonargparse._link_arguments import ActionLink

from cod_lightning.commands.shipped import classes, groups
from cod_lightning.errors import CodLightningError, ConfigError, did_you_mean, in_a_line, nearest, said_where
from cod_lightning.trusted import ADD_TRUST

Options = dict[str, tuple[Any, Any, str]]
"""Key -> its type (None: a flag), default (...: there is none), and help."""
TRUST = (None, False, "Let the run's config name classes of other packages, other machines and programs.")
_MOST = 900
"""Characters of jsonargparse's message; one that lists classes goes on for screens."""


class OneLine(ArgumentParser):
    """Leaves out the usage, whose hundred lines would stand before the one that matters; takes no key that is cut short."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """As ever; a module that a class path names and that raises is answered in one line, too."""
        try:
            return super().parse_args(*args, **kwargs)
        except CodLightningError:
            raise
        except ArgumentError as error:  # of a key within a class within a class
            self.error(str(error), error)
        except Exception as error:
            raise _raised(error, "a class whose module can be imported") from error

    def validate(self, *args: Any, **kwargs: Any) -> None:
        """As ever; to an unknown key the nearest is noted, of this parser's, which may be that of a class."""
        try:
            super().validate(*args, **kwargs)
        except KeyError as error:
            if not hasattr(error, "__notes__"):  # of a class within
                error.add_note("".join(map(self._nearest, str(error).split("'")[-2:-1])))
            raise

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Exit with 2 after `PROGRAM COMMAND: error: jsonargparse's message (a remedy)` on stderr."""
        if not self.exit_on_error:
            super().error(message, ex)
        said = in_a_line(message)
        if len(said) > _MOST:  # the key stands first, the value last
            said = f"{said[: _MOST // 2]} ... {said[-_MOST // 2 :]}"
        causes = list(_causes(ex))
        if "arguments are required" in said:
            said = " ".join(
                f"--{one}" if f"--{one.strip(',')}" in self._option_string_actions else one for one in said.split()
            )
        if ex is None:  # keys that are none
            typed = (word.partition("=")[0].strip("-:") for word in message.split() if word.startswith("--"))
            meant = "".join(map(self._nearest, typed))
        else:
            notes = (note for one in causes for note in getattr(one, "__notes__", ()))
            meant = next(notes, "") or _unwritten(message) or _raised_at(causes) or self._nearest_class(causes)
        trust = f"{ADD_TRUST} " if any(isinstance(one, ImportDenied) for one in causes) else ""
        self.exit(2, f"{self.prog}: error: {said} ({meant}{trust}{self.prog} --help lists all keys)\n")

    def _nearest(self, unknown: str) -> str:
        """The sentence that names the key whose last part is spelt nearly as that of an unknown one."""
        options = self._option_string_actions
        keys = [key[2:] for key in options if key.startswith("--") and not isinstance(options[key], ActionLink)]
        leaves = {key.rpartition(".")[2]: key for key in reversed(keys)}
        if "config" in keys:
            leaves |= {group: group for group in groups()}
        close = nearest(unknown.rpartition(".")[2], [*leaves], 1, cutoff=0.7)
        close += [leaf for leaf in leaves if len(unknown) > 2 and leaf.startswith(unknown)]
        return f"Did you mean {leaves[close[0]]}? " if close else ""

    def _nearest_class(self, causes: Sequence[BaseException]) -> str:
        """Likewise of a class: of the module that has none of this name, or of ours, as a value that was typed."""
        names = sorted(set().union(*classes().values()))
        typed = [word.partition("=")[2] for word in self.args or ()]
        lacking = (one for one in causes if isinstance(one, AttributeError))
        near = [did_you_mean(one.name or "", dir(one.obj)) for one in lacking]
        near += [did_you_mean(one, names, 0.87) for one in typed if one.isidentifier() and one not in names]
        return "".join(near)


def parser_of(command: str, about: str, options: Options | None = None) -> OneLine:
    """The parser of a command that builds no training."""
    parser = OneLine(prog=f"{program()} {command}", description=about)
    add_options(parser, options or {})
    return parser


def add_options(parser: ArgumentParser, options: Options) -> None:
    """Add them, each as `--KEY`."""
    add: Any = parser.add_argument
    for name, (kind, default, text) in options.items():
        how = {"required": True} if default is ... else {"default": default}
        add(f"--{name}", help=text, **({"action": "store_true"} if kind is None else how | {"type": kind}))


def _unwritten(message: str) -> str:
    """The sentence that names what a class in the message still has to define, where that is what is wrong."""
    if "is abstract" not in message:
        return ""
    named = (word.rpartition(".") for word in message.split())
    found = (getattr(sys.modules.get(module), name, None) for module, _, name in named)
    lacks = sorted(chain.from_iterable(getattr(one, "__abstractmethods__", ()) for one in found))
    return f"It lacks {', '.join(lacks)}. " if lacks else ""


def _raised_at(causes: Sequence[BaseException]) -> str:
    """The sentence that says where a module that a class path names raises while it is imported."""
    frames = chain.from_iterable(traceback.extract_tb(one.__traceback__) for one in causes)
    at = [f"{frame.filename}:{frame.lineno}" for frame in frames if frame.name == "<module>"]
    return f"Raised at {at[-1]}. " if at else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextlib.contextmanager
def own_refusals() -> Iterator[None]:
    """Raise a class's own error by itself: jsonargparse wraps it where a key has several types. What else a class raises while it
    is built becomes a `ConfigError`.
    """
    try:
        yield
    except CodLightningError:
        raise
    except Exception as error:
        for one in _causes(error):
            if isinstance(one, CodLightningError):
                raise one from error
            if "default_class_instantiator" in (frame.name for frame in traceback.extract_tb(one.__traceback__)):
                raise _raised(one, "a class that can be built") from error
        raise


def _raised(error: BaseException, expected: str) -> ConfigError:
    return ConfigError("class_path", "one that raises", f"{expected} ({said_where(error)})", "Correct it there.")


def program() -> str:
    """What the person typed before the command."""
    return "cod-lightning" if Path(sys.argv[0]).stem == "cod-lightning" else "python -m cod_lightning"
