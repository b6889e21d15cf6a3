"""`context log|show|diff|revert`: inspect the context of a deployed agent, and make an earlier version current."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cod_lightning.commands.parser import OneLine, program
from cod_lightning.deployment.store import ContextStore
from cod_lightning.files import locked
from cod_lightning.reports.entries import ChangeKind, entry_changes
from cod_lightning.terminal import Screen


def run(argv: Sequence[str]) -> int:
    """Run one of the four actions and return the exit status."""
    parser = OneLine(prog=f"{program()} context", description="Inspect the context of a deployed agent.")
    actions = parser.add_subcommands()
    for name, does in (
        ("log", "every version with its task, time and reward"),
        ("show", "the text of a version"),
        ("diff", "the entries added, removed and replaced between two versions"),
        ("revert", "make an earlier version current again"),
    ):
        action = OneLine(description=does)
        action.add_argument("--state", type=str, required=True, help="State folder of `deploy`.")
        if name == "show":
            action.add_argument("--version", type=int | None, default=None, help="Which; null: the newest.")
        if name == "revert":
            action.add_argument("--version", type=int, required=True, help="Which.")
        if name == "diff":
            action.add_argument(
                "--old", type=int | None, default=None, help="Older version; null: the one before `new`."
            )
            action.add_argument("--new", type=int | None, default=None, help="Newer version; null: the newest.")
        actions.add_subcommand(name, action, help=does)
        action.prog = f"{program()} context {name}"
    options = parser.parse_args(list(argv))
    chosen, console = options[options.subcommand], Screen()
    with closing(ContextStore(chosen.state, create=False)) as store:
        if options.subcommand == "log":
            _log(store, console)
        elif options.subcommand == "show":
            version = store.current() if chosen.version is None else store.version(chosen.version)
            console.print(version.text or "(empty)")
        elif options.subcommand == "diff":
            _diff(store, chosen, console)
        else:
            with locked(Path(chosen.state), "--state", "deploy"):
                made = store.revert(chosen.version)
            console.print(f"version {made} is current; its text is that of version {chosen.version}")
    return 0


def _log(store: ContextStore, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("version", "written", "after task", "its reward", "reason", "first line"):
        right = column in ("version", "after task", "its reward")
        table.add_column(column, justify="right" if right else "left", no_wrap=column != "first line")
    for version in store.versions():
        lines = version.text.strip().splitlines() or ["(empty)"]
        table.add_row(
            str(version.version),
            _time(version.created),
            "" if version.position is None else str(version.position),
            "" if version.reward is None else f"{version.reward:.3f}",
            version.reason,
            lines[0][:60],
        )
    console.print(table)


def _time(seconds: float) -> str:
    """For readers; a question mark for what no calendar has."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "?"


def _diff(store: ContextStore, options: Any, console: Console) -> None:
    new = store.current() if options.new is None else store.version(options.new)
    old = store.version(max(0, new.version - 1) if options.old is None else options.old)
    console.print(f"from version {old.version} to version {new.version}:")
    for change in (changes := entry_changes(old.text, new.text)):
        if change.kind is ChangeKind.KEPT:
            console.print(f"  {change.before}")
        if change.before and change.kind is not ChangeKind.KEPT:
            console.print(f"- {change.before}", style="red")
        if change.after and change.kind is not ChangeKind.KEPT:
            console.print(f"+ {change.after}", style="green")
    if all(change.kind is ChangeKind.KEPT for change in changes):
        console.print(f"versions {old.version} and {new.version} have the same entries")
