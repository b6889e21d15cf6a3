"""`worlds`: the shipped worlds, one line each. Other commands find and build their world with it, too."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cod_lightning.commands.config_files import class_of, keys_of, shipped_or_class
from cod_lightning.commands.parser import Options, own_refusals, parser_of, program
from cod_lightning.commands.shipped import files_of, import_named
from cod_lightning.contexts import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError


def run(argv: Sequence[str]) -> int:
    """Print the list."""
    about = "List the shipped worlds: what `env=NAME` and `play --env NAME` take."
    parser_of("worlds", about).parse_args(list(argv))
    from rich.table import Column, Table

    from cod_lightning.terminal import Screen

    head = (Column(title, overflow="fold") for title in ("world", "protocol", "what it is"))
    screen, table = Screen(), Table(*head, box=None, pad_edge=False)
    for name, path in files_of("env").items():
        table.add_row(name, protocol(path), description(path))
    screen.print(table)
    print(f"\nPlay one yourself: {program()} play --env levers", file=sys.stderr)
    return 0


def protocol(path: Path) -> str:
    """Of a world's file: compact or natural."""
    return "compact" if re.search(r"protocol: compact|envs\.ways\.", path.read_text()) else "natural"


def description(path: Path) -> str:
    """The comment lines at the top of a world's file, in one line."""
    lines = [line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# ")]
    return " ".join(line for line in lines if not line.startswith("@package "))


def parse_world(
    command: str, about: str, argv: Sequence[str], options: Options | None = None, *, required: bool = True
) -> Any:
    """What is typed behind a command about a world and a context mechanism (`--env`, `--context`), both built.

    Either is a name that ships, a YAML file or a class path; parameters follow as `--env.KEY VALUE`.
    """
    parser: Any = parser_of(command, about, options)
    for key, kind, text in (
        ("env", TextEnv, "A shipped world (see `worlds`), a YAML file with class_path and init_args, or a class path"),
        ("context", ContextMechanism, "How the context is kept, likewise; null: a hint, rewritten whole"),
    ):
        help_text = f"{text}. Its parameters follow as --{key}.KEY VALUE."
        parser.add_argument(f"--{key}", type=kind, required=required and key == "env", help=help_text)
    line: list[str] = []
    pairs = [(typed.removeprefix("--").removeprefix("data."), typed, value) for typed, value in keys_of(argv)]
    absent = {"env", "context"} - {key for key, *_ in pairs}
    for key, typed, value in pairs:
        whole, _, one = key.partition(".")
        if whole in absent and one != "help":
            raise ConfigError(typed, value, f"a --{whole} that it is a parameter of", f"Add --{whole}, by its name.")
        if key in ("env", "context") and value is not None:
            found = class_of(str(shipped_or_class(key, value, f"--{key}")), f"--{key}")
            if found is None:
                continue
            value = json.dumps(found)
            import_named(value)
        line.append(typed if value is None else f"--{key}={value}")
    config = parser.parse_args(line)
    with own_refusals():
        return parser.instantiate_classes(config)
