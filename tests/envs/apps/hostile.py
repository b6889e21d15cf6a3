"""Calls that no agent in its right mind makes."""

import contextlib
import random

from cod_lightning.envs.apps.api import ApiError
from cod_lightning.envs.apps.catalog import APPS
from cod_lightning.envs.apps.server import AppServer

ENDPOINTS = [endpoint for app in APPS for endpoint in app.endpoints.values()]
HOSTILE = (
    "", " ", "x" * 3_000, "\x00", "\ud800", "../../etc/passwd", "'; drop table mail; --", "{0.__class__}", "%s" * 50, -1, 0, 1,
    10**9, 10**30, 1.5, float("nan"), float("inf"), True, False, None, [], [[]], {}, {"a": {}}, ["x"] * 60, [None], (1, 2),
    object(), print, b"x", "inbox", "a@home.example", "2026-03-05", "2026-99-99 99:99", "home", "gold", 1 + 2j, {1, 2},
)  # fmt: skip


def logged_in(server: AppServer, app: str) -> str:
    """Its token."""
    return server.call(f"{app}.{server.facts.moved or 'login'}", {"password": server.passwords[app]})["token"]


def hostile_calls(server: AppServer, rng: random.Random, count: int) -> int:
    """Calls of every endpoint, most with the right token, with arguments that fit or do not; how many were answered."""
    answered = 0
    tokens = {app.name: logged_in(server, app.name) for app in APPS if app.private}
    for _ in range(count):
        endpoint = rng.choice(ENDPOINTS)
        names = [parameter.name for parameter in endpoint.parameters if rng.random() < 0.9]
        arguments = {name: rng.choice(HOSTILE) for name in names}
        for parameter in endpoint.parameters:
            if parameter.kind == "whole number" and rng.random() < 0.7:
                arguments[parameter.name] = rng.randint(1, 200)
        if endpoint.app in tokens and rng.random() < 0.9:
            arguments["token"] = tokens[endpoint.app]
        if rng.random() < 0.1:
            arguments[rng.choice(("page", "x", "self", "desk", "__class__"))] = rng.choice(HOSTILE)
        name = rng.choice(
            (f"{endpoint.app}.{endpoint.name}",) * 20 + ("", ".", "mail", "mail.", "mail.__class__", "x" * 500)
        )
        server.begin_turn()
        with contextlib.suppress(ApiError):
            server.call(name, arguments)
            answered += 1
        server.finished = False
    return answered
