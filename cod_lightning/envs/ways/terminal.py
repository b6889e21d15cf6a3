"""The ways of a site in fused words: how sending, entering and changing work there."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from cod_lightning.envs.base import split_of_text
from cod_lightning.envs.terminal.quirks import Quirks, Site, draw_site
from cod_lightning.envs.terminal.tasks import COMPOSITE, TerminalTask, draw_task
from cod_lightning.envs.ways.known import KnownWays
from cod_lightning.envs.ways.world import FusedWays, WaysWorld
from cod_lightning.types import Split

WAYS: dict[str, tuple[str, ...]] = {
    "send": ("scp", "rsync", "scp-O", "drop"),
    "enter": ("direct", "jump", "port", "account"),
    "change": ("plain", "safe", "site", "busybox"),
}
"""Ways of each kind of operation; the first is the usual one."""
GOALS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("upload", "pack_upload", "upload_chmod"), ("send",)),
    **dict.fromkeys(("chmod", "pack"), ("enter",)),
    **dict.fromkeys(("rename", "move", "delete"), ("change",)),
}
"""Kinds of tasks of the terminal, and the operation that each needs: chmod and pack are on the remote host."""
_ROUTES = {"jump": "jump bastion", "port": "port 2222"}
_TOOLS = {"safe": "safe-", "site": "site-", "busybox": "busybox"}


class Known(KnownWays):
    """Ways of the three operations known to work or not."""

    ways: ClassVar = WAYS


def draw_ways(rng: random.Random) -> dict[str, str]:
    """A way for each operation."""
    rng.sample(tuple(WAYS), len(WAYS))  # a draw without use, which keeps packs as they were
    return {slot: rng.choice(ways) for slot, ways in WAYS.items()}


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


class TerminalWays(WaysWorld[TerminalTask]):
    """Say which way of an operation works at a site, a word for each try."""

    task_type = TerminalTask
    wording = FusedWays("shell", Known, GOALS, ("win", "late", "malformed"))
    drawn_as, goal = "terminal", "type"
    max_turns = misses = 2
    name = f"terminal-compact-q{len(WAYS)}-t{max_turns}-8-c0.5-fixed"

    def hidden(self, rng: random.Random, split: Split) -> Site:
        """A site of no split."""
        return site_with(replace(draw_site(rng, 0), system="linux"), draw_ways(rng))

    def task(self, rng: random.Random, split: Split, hidden: Site) -> TerminalTask:
        """Half of them, where there are any, of several steps."""
        while True:
            composite = rng.random() < 0.5
            kind = rng.choice([kind for kind in GOALS if (kind in COMPOSITE) == composite])
            side = "remote" if GOALS[kind] == ("enter",) else "local"
            task = replace(draw_task(rng, hidden, kind), side=side)
            if split_of_text(canonical(task)) is split:
                return task

    def other_ways(self, rng: random.Random, split: Split, task: TerminalTask) -> Mapping[str, Any]:
        while (new := site_with(task.site, draw_ways(rng))) == task.site:
            pass
        return {"site": new}

    def truth(self, task: TerminalTask) -> Mapping[str, str]:
        return ways_of(task.site)
