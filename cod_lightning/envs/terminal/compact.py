"""The terminal in fused words: which way of sending, entering and changing works at this site; one word a turn.

`goal=upload`, answered `send <answer>scp</answer>`, gives `scp=no` or success; feedback lists what every word did. A word
is carried out on the same simulated machines by the usual commands, in which it stands for one belief about the site while
all others are true.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from cod_lightning.envs.known_ways import KnownWays, effect
from cod_lightning.envs.task_world import WorldWording
from cod_lightning.envs.terminal.goals import missing, set_up
from cod_lightning.envs.terminal.options import Result
from cod_lightning.envs.terminal.plans import LOCAL, next_commands
from cod_lightning.envs.terminal.quirks import Quirks, Site
from cod_lightning.envs.terminal.tasks import TerminalTask
from cod_lightning.envs.terminal.wording import TerminalView, view_of

WAYS: dict[str, tuple[str, ...]] = {
    "send": ("scp", "rsync", "scp-O", "drop"),
    "enter": ("direct", "jump", "port", "account"),
    "change": ("plain", "safe", "site", "busybox"),
}
"""Ways of each kind of operation; the first is the usual one. Exactly one works at a site."""
GOALS: dict[str, tuple[str, ...]] = {
    "send": ("upload", "pack_upload", "upload_chmod"),
    "enter": ("chmod", "pack"),
    "change": ("rename", "move", "delete"),
}
"""Kinds of tasks that need the operation (chmod and pack on the remote host, the last three locally)."""
SLOT_OF = {kind: slot for slot, kinds in GOALS.items() for kind in kinds}
SLOT_OF_WAY = {way: slot for slot, ways in WAYS.items() for way in ways}
SIDE_OF = {"send": "local", "enter": "remote", "change": "local"}
_ROUTES = {"jump": "jump bastion", "port": "port 2222"}
_TOOLS = {"safe": "safe-", "site": "site-", "busybox": "busybox"}
OUTCOMES = ("win", "late", "malformed")
VOID = "void"
"""The effect of a word for another operation than the task's: nothing happens, and nothing is learned."""


def draw_ways(rng: random.Random, num_quirks: int) -> dict[str, str]:
    """A way for each operation: any in `num_quirks` of them, the usual one in the rest."""
    open_slots = rng.sample(tuple(WAYS), num_quirks)
    return {slot: rng.choice(ways) if slot in open_slots else ways[0] for slot, ways in WAYS.items()}


def site_with(site: Site, ways: Mapping[str, str]) -> Site:
    """The site at which exactly these ways work."""
    account = "ops" if site.user != "ops" else "admin"
    login = account if ways["enter"] == "account" else ""
    drop = f"drop /home/{login or site.user}/incoming"
    quirks = Quirks(
        transfer={"rsync": "rsync", "scp-O": "scp -O"}.get(ways["send"], "scp"),
        route=_ROUTES.get(ways["enter"], ""),
        login=login,
        tools=_TOOLS.get(ways["change"], ""),
        place=drop if ways["send"] == "drop" else "",
    )
    return replace(site, quirks=quirks)


def ways_of(site: Site) -> dict[str, str]:
    """The ways that work at a site, read back."""
    quirks = site.quirks
    routes, tools = ({value: way for way, value in table.items()} for table in (_ROUTES, _TOOLS))
    return {
        "send": "drop" if quirks.place else quirks.transfer.replace(" -", "-"),
        "enter": "account" if quirks.login else routes.get(quirks.route, "direct"),
        "change": tools.get(quirks.tools, "plain"),
    }


def canonical(task: TerminalTask) -> str:
    """The task as a text that decides its split, without the hidden ways.

    There are but 64 of these. Were they themselves held out, a player without memory could learn in training what is never so in
    tests; now each is as likely in every split.
    """
    usual = {slot: ways[0] for slot, ways in WAYS.items()}
    return repr(replace(task, site=site_with(task.site, usual)))


@lru_cache(maxsize=4_096)
def attempt(task: TerminalTask, way: str, max_commands: int) -> tuple[bool, Result]:
    """Do the task on fresh machines with that way, all else as it is at the site: (whether it worked, the last result)."""
    if SLOT_OF_WAY[way] != SLOT_OF[task.type]:
        return False, Result("", 1, 1)
    site = task.site
    believed = site_with(site, {**ways_of(site), SLOT_OF_WAY[way]: way}).quirks
    shell, view, done, side = set_up(task, max_commands), view_of(task), set[str](), LOCAL
    result = Result("", 0)
    while commands := next_commands(view, believed, done, side, 1):
        ((name, command),) = commands
        result = shell.run(command)
        if result.code:
            return False, result
        side = {"enter": "remote", "leave": LOCAL}.get(name, side)
        done.add(name)
    return not missing(task, shell), result


class CompactTerminal(WorldWording):
    """Fused words."""

    def rules(self, max_turns: int, max_commands: int) -> str:
        return "shell"

    def observation(self, view: TerminalView) -> str:
        return _shown_effect(view, view.attempts[-1].said, ok=False) if view.attempts else f"goal={view.task.type}"

    def feedback(self, outcome: str, view: TerminalView, reason: str) -> str:
        shown = [_shown_effect(view, a.said, ok=outcome == "win" and a is view.attempts[-1]) for a in view.attempts]
        return " ".join([outcome, *dict.fromkeys(shown)])

    def words(self) -> tuple[str, ...]:
        ways = tuple(SLOT_OF_WAY)
        effects = tuple(effect(way, ok=ok) for way in ways for ok in (True, False))
        answers = tuple(f"<answer>{way}</answer>" for way in ways)
        return ("shell", *(f"goal={kind}" for kind in SLOT_OF), *effects, *answers, *WAYS, *OUTCOMES, VOID)


def _shown_effect(view: TerminalView, way: str, *, ok: bool) -> str:
    return effect(way, ok=ok) if SLOT_OF_WAY[way] == SLOT_OF[view.task.type] else VOID


class Known(KnownWays):
    """Ways of the three operations known to work or not."""

    ways: ClassVar = WAYS
