"""Network namespaces of this machine as nodes: each has an address of its own on one bridge."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def unavailable() -> str:
    """Why there can be none here; empty where there can."""
    if shutil.which("ip") is None:
        return "no ip command (package iproute2)"
    name = f"cod-probe-{os.getpid()}"
    made = _ip("netns", "add", name)
    if made.returncode:
        return f"ip netns add: {made.stderr.strip()}"
    try:
        bridge = _ip("netns", "exec", name, "ip", "link", "add", "probe", "type", "veth", "peer", "name", "other")
        return f"ip link add: {bridge.stderr.strip()}" if bridge.returncode else ""
    finally:
        _ip("netns", "del", name)


@contextmanager
def nodes(number: int, net: str = "10.77.0") -> Iterator[dict[str, str]]:
    """Address -> namespace; each is connected to a bridge by its interface eth0."""
    made = {f"{net}.{i + 1}": f"cod-{os.getpid()}-{i + 1}" for i in range(number)}
    switch = f"cod-{os.getpid()}-s"
    try:
        _run("netns", "add", switch)
        _run("-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("-n", switch, "link", "set", "bridge", "up")
        for index, (address, name) in enumerate(made.items()):
            _run("netns", "add", name)
            port = f"port{index}"
            _run("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", switch)
            _run("-n", switch, "link", "set", port, "master", "bridge", "up")
            _run("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                _run("-n", name, "link", "set", interface, "up")
        yield made
    finally:
        for name in (*made.values(), switch):
            kill(name)
            _ip("netns", "del", name)


def pids(name: str) -> list[int]:
    """Processes in the namespace."""
    return [int(pid) for pid in _ip("netns", "pids", name).stdout.split()]


def kill(name: str) -> None:
    """As if the node had lost power: all of its processes end at once."""
    for pid in pids(name):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def cut_off(name: str) -> Iterator[None]:
    """As if the node's cable were unplugged: nothing reaches it, nothing is refused, and its processes go on."""
    node, _, place = name.rpartition("-")
    port = ("-n", f"{node}-s", "link", "set", f"port{int(place) - 1}")
    _run(*port, "down")
    try:
        yield
    finally:
        _run(*port, "up")


def _ip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


def _run(*arguments: str) -> None:
    done = _ip(*arguments)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"
