"""How the command line answers a mistake in an option: in one line, by the name that the person typed."""

import contextlib
import difflib
import re
import sys
import traceback
from argparse import ArgumentError
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from jsonargparse import ArgumentParser, Namespace

from cod_lightning.commands.config_files import line_of
from cod_lightning.commands.shipped import config_names, moved
from cod_lightning.errors import CodLightningError, ConfigError
from cod_lightning.trusted import OWN

SplitName = Literal["train", "validation", "test"]
"""What `--split` takes."""
_ABSURD = 2**64
_UNKNOWN = re.compile(
    r"[Uu]nrecognized arguments: (\S+)|does not accept option '([\w.]+)'|Option '([\w.]+)' is not accepted"
)
_MOST = 900
"""Characters of jsonargparse's message; one that lists classes goes on for screens."""


class OneLine(ArgumentParser):
    """Leaves out the usage, whose hundred lines would stand before the one that matters."""

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """As ever; a module that a class path names and that raises is answered in one line, too."""
        try:
            return super().parse_args(*args, **kwargs)
        except CodLightningError:
            raise
        except ArgumentError as error:  # of a key within a class within a class
            self.error(str(error), error)
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
            expected = "a class of this project, since the run's config.yaml may come from others"
            remedy = "Add --trust if you trust the run as you would a program."
            raise ConfigError("class_path", denied[1], expected, remedy)
        parser: ArgumentParser = getattr(ex, "subcommand_parser", None) or self
        self.exit(2, f"{parser.prog}: error: {_cut(' '.join(message.split()))} ({_remedy(parser, message)})\n")


@contextlib.contextmanager
def own_refusals() -> Iterator[None]:
    """Raise the `ConfigError` of a class's own check by itself: jsonargparse wraps it where a key has several types. What a class
    from outside raises while it is built becomes one.
    """
    try:
        yield
    except Exception as error:
        seen: BaseException | None = error
        while seen is not None and not isinstance(seen, ConfigError):
            if where := _outside(seen):
                said = f"{type(seen).__name__}: {' '.join(str(seen).split())[:200]}"
                expected = f"a class that can be built ({said})"
                raise ConfigError("class_path", f"in {where}", expected, "Correct it there.") from error
            seen = seen.__cause__ or seen.__context__
        if seen is None or seen is error:
            raise
        raise seen from error


def _outside(error: BaseException) -> str:
    """FILE:LINE in the module of a class from outside that raised while jsonargparse built it; empty where none did."""
    frames = [
        (frame.f_code, frame.f_globals["__name__"], line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    calls = [at for at, (code, _, _) in enumerate(frames) if code.co_name == "default_class_instantiator"]
    built = frames[calls[-1] + 1 :] if calls else []
    if not built or built[0][1].partition(".")[0] in OWN:
        return ""
    code, _, line = [one for one in built if one[1] == built[0][1]][-1]
    return f"{code.co_filename}:{line}"


def _cut(message: str) -> str:
    """Both ends of a long message: the key stands first, the value last."""
    return message if len(message) <= _MOST else f"{message[: _MOST // 2]} ... {message[-_MOST // 2 :]}"


def _remedy(parser: ArgumentParser, message: str) -> str:
    """What to type in its place, as far as the message shows it, and where the options are listed."""
    key = match[1] if (match := re.match(r'Parser key "([^"]*)":', message)) else ""
    topic = f" {key}" if key and hasattr(parser, "about") else ""
    listed = f"For {'this key' if topic else 'all options'}: {parser.prog} --help{topic}"
    if "required" in message and "model.policy" in message:
        return f"Name a config, as in --config quickstart, or --config RUN_DIR/config.yaml for a checkpoint. {listed}"
    if "is abstract" in message and "NestedArg" in message:
        return f"Choose the class first, as in --{key} NAME --{key}.KEY VALUE. {listed}"
    if "is abstract" in message:
        return f"Name a class that has the whole contract, as class_path: MODULE.CLASS. {listed}"
    if not (found := _UNKNOWN.search(message)):
        return f"{moved(message)}{listed}"
    known = [option.removeprefix("--") for option in parser._option_string_actions if option.startswith("--")]
    wrong = next(filter(None, found.groups())).removeprefix("--").partition("=")[0]
    if wrong in config_names() and "config" in known:
        return f"Did you mean --config {wrong}? {listed}"
    if named := re.search(r"given class_path '([^']+)'", message):
        module, _, name = named[1].rpartition(".")
        with contextlib.suppress(TypeError, ValueError):
            described = ArgumentParser()
            described.add_class_arguments(getattr(sys.modules.get(module), name, None))  # pyright: ignore
            known = [action.dest for action in described._actions]
    at = line_of(wrong if not key or wrong.startswith(f"{key}.") else f"{key}.{wrong}")
    return f"{_nearest(wrong, known)}{f'It stands in {at}. ' if at else ''}{listed}"


def _nearest(wrong: str, known: Sequence[str]) -> str:
    """The question after the key that ends as the wrong one does, or nearly; empty where none does."""
    leaves = {name.rpartition(".")[2]: name for name in reversed(known)}
    close = difflib.get_close_matches(wrong.rpartition(".")[2], leaves, n=1, cutoff=0.7)
    return f"Did you mean {leaves[close[0]]}? " if close else ""


def refuse_flat_groups(config: Namespace) -> None:
    """Raise `ConfigError` for a value where keys belong: the parser looks at the values of keys alone."""
    for group in ("trainer", "model", "data", "data.deadlines"):
        if (value := config.get(group)) is not None and not isinstance(value, Namespace | dict):
            raise ConfigError(group, value, "keys with values, as in KEY: VALUE", f"`fit --help {group}` lists them.")


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
        shown = config if config.bit_length() < 256 else f"a number of {config.bit_length()} bits"
        raise ConfigError(key, shown, "a number between -2**64 and 2**64", "Correct it.")


def check_seed(seed: object) -> None:
    """Raise `ConfigError` for a seed that the libraries do not take; True draws one."""
    if isinstance(seed, int) and not isinstance(seed, bool) and not 0 <= seed < 2**32:
        raise ConfigError("seed_everything", seed, "between 0 and 4294967295", "1 is the default.")


def program() -> str:
    """What the person typed before the command."""
    return "cod-lightning" if Path(sys.argv[0]).stem == "cod-lightning" else "python -m cod_lightning"
