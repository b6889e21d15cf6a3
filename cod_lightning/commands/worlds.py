"""`worlds`: the shipped worlds, one line each. Also how the other commands find and build the world they are told."""

import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cod_lightning.commands.config_files import config_folders
from cod_lightning.commands.parser import OneLine, program, refuse_absurd
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError

_PACKAGE_LINE = re.compile(r"^# @package .*\n")


def run(argv: Sequence[str]) -> int:
    """Print the list."""
    parser = OneLine(
        prog=f"{program()} worlds", description="List the shipped worlds: what `env=NAME` and `play --env NAME` take."
    )
    parser.parse_args(list(argv))
    from rich.table import Table

    from cod_lightning.terminal import Screen

    table = Table(box=None, pad_edge=False)
    for title in ("world", "protocol", "what it is"):
        table.add_column(title, no_wrap=title != "what it is")
    for name, path in shipped_worlds().items():
        table.add_row(name, _protocol(path), description(path))
    Screen().print(table)
    print("\nPlay one yourself: python -m cod_lightning play --env levers", file=sys.stderr)
    return 0


def shipped_worlds() -> dict[str, Path]:
    """Files of the group `env`, by the name that chooses them; a checkout's before an installation's."""
    found: dict[str, Path] = {}
    for folder in reversed(config_folders()):
        found |= {path.stem: path for path in (folder / "env").glob("*.yaml")}
    return dict(sorted(found.items()))


def description(path: Path) -> str:
    """The comment lines at the top of a world's file, in one line."""
    text = _PACKAGE_LINE.sub("", path.read_text())
    lines = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    return " ".join(lines)


def world_parser(command: str, description: str, *, required: bool = True) -> OneLine:
    """A parser with `--env`, which takes a shipped name, a YAML file or a class path, and `--env.KEY value`."""
    parser = OneLine(prog=f"{program()} {command}", description=description)
    parser.add_subclass_arguments(
        TextEnv,
        "env",
        required=required,
        help="A shipped world (see `worlds`), a YAML file with class_path and init_args, or a class path. Its parameters "
        "follow as --env.KEY VALUE.",
    )
    return parser


def parse_world(parser: OneLine, argv: Sequence[str]) -> Any:
    """Parsed arguments with shipped names replaced by their files; the world itself is built."""
    config = parser.parse_args(_with_files(argv))
    refuse_absurd(config)
    try:
        return parser.instantiate_classes(config)
    except ValueError as error:
        raise _refusal(error) or error from error


def _refusal(error: BaseException) -> ConfigError | None:
    """What a world's own check said, out of what jsonargparse wraps around it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ConfigError):
        seen = seen.__cause__ or seen.__context__
    return seen


def _with_files(argv: Sequence[str]) -> list[str]:
    out: list[str] = []
    for before, arg in zip(["", *argv], argv, strict=False):
        flag, is_assigned, value = arg.partition("=")
        if before == "--env":
            out.append(_file(arg))
        elif flag == "--env" and is_assigned:
            out.append(f"--env={_file(value)}")
        else:
            out.append(arg)
    return out


def _file(name: str) -> str:
    worlds = shipped_worlds()
    if (path := worlds.get(name.removeprefix("env/").removesuffix(".yaml"))) is not None:
        return str(path)
    if "." in name or Path(name).is_file():
        return name
    (close, *_) = [*difflib.get_close_matches(name, worlds, n=1), ""]
    meant = f"Did you mean {close}? " if close else ""
    raise ConfigError(
        "--env", name, f"one of {', '.join(worlds)}, a YAML file or a class path", f"{meant}See `worlds`."
    )


def _protocol(path: Path) -> str:
    return "compact" if "protocol: compact" in path.read_text() else "natural"
