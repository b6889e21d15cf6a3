"""`context log|show|revert`: inspect the context of a deployed agent, and make an earlier version current."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Column, Table

from cod_lightning.commands.parser import Options, parser_of
from cod_lightning.deployment.store import ContextStore
from cod_lightning.errors import ConfigError
from cod_lightning.files import locked
from cod_lightning.terminal import Screen

_ABOUT = """Inspect the context of a deployed agent. log: every version with its task, time and reward; show: the text of a version;
revert: make an earlier version current again."""
_OPTIONS: Options = {
    "state": (str, ..., "State folder of `deploy`."),
    "version": (int | None, None, "That is shown, null: the newest, or made current again."),
}


def run(argv: Sequence[str]) -> int:
    """Run one of the three actions and return the exit status."""
    parser = parser_of("context", _ABOUT, _OPTIONS)
    parser.add_argument("action", type=Literal["log", "show", "revert"])
    options, console = parser.parse_args(list(argv)), Screen()
    with closing(ContextStore(options.state, create=False)) as store:
        if options.action == "log":
            _log(store, console)
        elif options.action == "show":
            version = store.current() if options.version is None else store.version(options.version)
            console.print(version.text or "(empty)", soft_wrap=True)
        elif options.version is None:
            raise ConfigError("--version", "missing", "the version that becomes current", "See `context log`.")
        else:
            with locked(Path(options.state), "--state", "deploy"):
                made = store.revert(options.version)
            console.print(f"version {made} is current; its text is that of version {options.version}")
    return 0


def _log(store: ContextStore, console: Console) -> None:
    heads = ("version", "written", "after task", "its reward", "reason")
    columns = [
        Column(head, no_wrap=True, justify="left" if head in ("written", "reason") else "right") for head in heads
    ]
    table = Table(*columns, "first line", box=None, pad_edge=False)
    for version in store.versions():
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(version.created))
        position = "" if version.position is None else str(version.position)
        reward = "" if version.reward is None else f"{version.reward:.3f}"
        first = (version.text.strip().splitlines() or ["(empty)"])[0][:60]
        table.add_row(str(version.version), written, position, reward, version.reason, first)
    console.print(table)
