"""How the command line answers a mistake in an option: in one line, by the name that the person typed."""

import contextlib
import difflib
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace

from cod_lightning.commands.config_files import line_of
from cod_lightning.errors import CodLightningError, ConfigError

_ABSURD = 2**64
_UNKNOWN = re.compile(
    r"[Uu]nrecognized arguments: --([\w.]+)|does not accept option '([\w.]+)'|Option '([\w.]+)' is not accepted"
)

_OF_UNIONS = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"- Expected a path but .*? either not accessible or invalid; - ", ""),
        (r"Does not validate against any of the Union subtypes; Subtypes: \[.*?\]; Errors: (?:- )?", ""),
        (r"(?:; )?- Expected a NoneType(?=;|$)", ""),
        (r"; Given value type: \S+; Given value: ", ". Got value: "),
        (r"(?<=[;:] )- |; - ", "; or: "),
    )
)
"""What jsonargparse says of a key with several types, and what of it helps a person."""


class OneLine(ArgumentParser):
    """Leaves out the usage, whose hundred lines would stand before the one that matters."""

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """As ever; a module that a class path names and that raises is answered in one line, too."""
        try:
            return super().parse_args(*args, **kwargs)
        except CodLightningError:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raised = f"{type(error).__name__}: {error}"[:300]
            expected = f"a class whose module can be imported ({raised})"
            raise ConfigError(
                "class_path", f"in {where.filename}:{where.lineno}", expected, "Correct that module."
            ) from error

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Exit with 2 after `PROGRAM COMMAND: error: ...` on stderr."""
        if not self.exit_on_error:
            super().error(message, ex)
        if denied := re.search(r"Importing '([^']*)' is not allowed", message):
            expected = "a class of this project, since the run's config.yaml may be anybody's"
            remedy = "Add --trust if you trust the run as you would a program."
            raise ConfigError("class_path", denied[1], expected, remedy)
        parser: ArgumentParser = getattr(ex, "subcommand_parser", None) or self
        self.exit(2, f"{parser.prog}: error: {one_line(message)} ({_remedy(parser, message)}{parser.prog} --help)\n")


@contextlib.contextmanager
def own_refusals() -> Iterator[None]:
    """Raise the `ConfigError` of a class's own check by itself: jsonargparse wraps it where a key has several types."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        seen: BaseException | None = error
        while seen is not None and not isinstance(seen, ConfigError):
            seen = seen.__cause__ or seen.__context__
        raise seen or error from error


def _remedy(parser: ArgumentParser, message: str) -> str:
    """What may have been meant by a key that is not there, and where a file sets it."""
    if "required: " in message and "model.policy" in message:
        return "Name a config, as in --config quickstart. For all options: "
    if "is abstract" in message:
        return f"{_unfinished(message)}For all options: "
    if not (found := _UNKNOWN.search(message)):
        return "For all options: "
    wrong = next(filter(None, found.groups()))
    known = [option.removeprefix("--") for option in parser._option_string_actions]
    if named := re.search(r"given class_path '([^']+)'", message):
        module, _, name = named[1].rpartition(".")
        with contextlib.suppress(TypeError, ValueError):
            known = list(inspect.signature(getattr(sys.modules.get(module), name, None)).parameters)  # pyright: ignore
    close = difflib.get_close_matches(wrong, known, n=1)
    meant = f"Did you mean {close[0]}? " if close else ""
    at = line_of(wrong)
    return f"{meant}{f'It stands in {at}. ' if at else ''}For all options: "


def _unfinished(message: str) -> str:
    """What the abstract class that the message names, its last one, leaves out of its contract."""
    for path in reversed(re.findall(r"[\w.]+\.\w+", message)):
        module, _, name = path.rpartition(".")
        if missing := getattr(getattr(sys.modules.get(module), name, None), "__abstractmethods__", None):
            return f"{path} lacks {', '.join(sorted(missing))}. "
    return ""


def refuse_absurd(config: Any, key: str = "") -> None:
    """Raise `ConfigError` for a number that no machine counts to: libraries fail on those with errors of their own."""
    if isinstance(config, Namespace):
        config = vars(config)
    items = (
        config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list | tuple) else ()
    )
    for name, value in items:
        refuse_absurd(value, f"{key}.{name}".lstrip("."))
    if isinstance(config, int) and abs(config) >= _ABSURD:
        raise ConfigError(key, f"a number of {config.bit_length()} bits", "one between -2**64 and 2**64", "Correct it.")


def check_seed(seed: object) -> None:
    """Raise `ConfigError` for a seed that the libraries do not take; True draws one."""
    if isinstance(seed, int) and not isinstance(seed, bool) and not 0 <= seed < 2**32:
        raise ConfigError("seed_everything", seed, "between 0 and 4294967295", "1 is the default.")


def one_line(message: str) -> str:
    r'''The message without line breaks and without Python's notation of types.

    >>> one_line('Parser key "model.lr":\n  Expected a <class \'float\'>. Got value: abc')
    'model.lr: Expected a float. Got value: abc'
    >>> one_line("""Parser key "seed_everything":
    ...   Does not validate against any of the Union subtypes
    ...   Subtypes: [<class 'bool'>, <class 'int'>]
    ...   Errors:
    ...     - Expected a <class 'bool'>
    ...     - Expected a <class 'int'>
    ...   Given value type: <class 'str'>
    ...   Given value: x""")
    'seed_everything: Expected a bool; or: Expected a int. Got value: x'
    '''
    named = re.sub(r'Parser key "([^"]*)":', r"\1:", re.sub(r"<class '([^']*)'>", r"\1", message))
    lines = [line.strip() for line in named.splitlines() if line.strip()]
    joined = "".join(line + (" " if line.endswith(":") else "; ") for line in lines).rstrip(" ;")
    for pattern, plain in _OF_UNIONS:
        joined = pattern.sub(plain, joined)
    return joined


def program() -> str:
    """What the person typed before the command."""
    return "cod-lightning" if Path(sys.argv[0]).stem == "cod-lightning" else "python -m cod_lightning"
