"""`context log|show|revert`: inspect the context of a deployed agent, and make an earlier version current."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from cod_lightning.commands.parser import Options, parser_of, program
from cod_lightning.deployment.store import ContextStore
from cod_lightning.files import locked
from cod_lightning.terminal import Screen

_STATE: Options = {"state": (str, ..., "State folder of `deploy`.")}
_ACTIONS: dict[str, tuple[str, Options]] = {
    "log": ("every version with its task, time and reward", {}),
    "show": ("the text of a version", {"version": (int | None, None, "Which; null: the newest.")}),
    "revert": ("make an earlier version current again", {"version": (int, ..., "Which.")}),
}


def run(argv: Sequence[str]) -> int:
    """Run one of the three actions and return the exit status."""
    parser = parser_of("context", "Inspect the context of a deployed agent.")
    actions = parser.add_subcommands()
    for name, (does, options) in _ACTIONS.items():
        action = parser_of(f"context {name}", does, _STATE | options)
        actions.add_subcommand(name, action, help=does)
        action.prog = f"{program()} context {name}"
    options = parser.parse_args(list(argv))
    chosen, console = options[options.subcommand], Screen()
    with closing(ContextStore(chosen.state, create=False)) as store:
        if options.subcommand == "log":
            _log(store, console)
        elif options.subcommand == "show":
            version = store.current() if chosen.version is None else store.version(chosen.version)
            console.print(version.text or "(empty)", soft_wrap=True)
        else:
            with locked(Path(chosen.state), "--state", "deploy"):
                made = store.revert(chosen.version)
            console.print(f"version {made} is current; its text is that of version {chosen.version}")
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
