"""Worlds with planted faults, in a module that worker processes can import without torch."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cod_lightning.envs.base import Traits
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.world import LeverProposals
from cod_lightning.envs.wrapped import WrappedWorld
from cod_lightning.errors import ConfigError
from cod_lightning.types import Pack, Split, Task

HANG_S = 3600.0
SLEEP_S = 60.0


class FaultyLevers(WrappedWorld):
    """Levers whose packs fail by their index: `(index - 1) % every` picks the fault, if any; the task goes by index, too.

    Args:
        faults: What happens where `(index - 1) % every` is the fault's place in the list: raises, hangs, dies, sleeps, none.
        every: Length of the round.
        blocking: Whether threads play them.
        split: Whose packs have faults.
    """

    def __init__(
        self, faults: tuple[str, ...] = (), every: int = 1, blocking: bool = False, split: Split = Split.TRAIN
    ) -> None:
        super().__init__(Levers(protocol="compact"))
        self.world.traits = Traits(blocking=blocking)
        self.faults, self.every, self.split = faults, every, split
        self._fault, self._at_step = "", False

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        pack = self.world.sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
        place = (index - 1) % self.every
        if split is not self.split or place >= len(self.faults):
            return pack
        marked = (index // self.every) % num_tasks
        tasks = tuple(_marked(t, self.faults[place], index) if n == marked else t for n, t in enumerate(pack.tasks))
        return Pack(id=pack.id, split=pack.split, world_seed=pack.world_seed, tasks=tasks)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        assert options is not None
        _, self._fault, step = (*options["task"].id.split("!"), "", "")[:3]
        self._at_step = step == "step"
        if not self._at_step:
            strike(self._fault)
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._at_step:
            strike(self._fault)
        return super().step(action)


class MeetingLevers(Levers):
    """Levers whose first step waits for one in another process."""

    def __init__(self, folder: str) -> None:
        super().__init__(protocol="compact")
        self.folder = Path(folder)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        (self.folder / str(os.getpid())).touch()
        for _ in range(400):
            if len(list(self.folder.iterdir())) > 1:
                return super().step(action)
            time.sleep(0.05)
        raise TimeoutError("no other process")


class Teller(Levers):
    """Tells whether its process has torch."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return f"torch: {'torch' in sys.modules}, transformers: {'transformers' in sys.modules}", {}


def strike(fault: str) -> None:
    """What the fault does."""
    if fault == "raises":
        raise RuntimeError("the world is broken")
    if fault == "hangs":
        time.sleep(HANG_S)
    if fault == "sleeps" and not (slept := Path(os.environ["SLEPT"])).exists():  # once
        slept.touch()
        time.sleep(SLEEP_S)
    if fault == "dies":
        os._exit(9)


def _marked(task: Task, fault: str, index: int) -> Task:
    where = "step" if index % 2 else "reset"
    return Task(id=f"{task.id}!{fault}!{where}", seed=task.seed, spec=task.spec, repeat=task.repeat)


class GreedyLevers(Levers):
    """Levers whose next answer takes memory without end, if the action says so."""

    def __init__(self) -> None:
        super().__init__(protocol="compact")

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        kept = []
        while action == "memory":
            kept.append(bytearray(2**24))
        return super().step(action)


class Bomb:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (7,)


class UndrawnLevers(Levers):
    """Levers of which pack 1 is never drawn, and of which there is no pack 2."""

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        strike("hangs" if index == 1 else "")
        if index == 2:
            raise ConfigError("data.num_packs", index, "at most 2", "Lower it.")
        return super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)


class RudeLeversProposals(LeverProposals):
    def proposed(self, response: str, task: Task) -> Task | None:
        strike(response)
        return super().proposed(response, task)


class RudeLevers(Levers):
    """Levers that do to their process what the action names."""

    companions = (RudeLeversProposals, *Levers.companions)

    def step(self, action: str) -> Any:
        match action:
            case "forks":
                os.fork()
            case "goes elsewhere":
                os.chdir("/")
            case "alarms":
                signal.setitimer(signal.ITIMER_REAL, 0.2)
            case "answers with a bomb":
                return Bomb(), 0.0, False, False, {}
            case "answers by half":
                for place in Path("/proc/self/fd").iterdir():
                    with suppress(OSError):
                        socket.socket(fileno=os.dup(int(place.name))).sendall(b"\0\0\0\0\0\0\0\x09half")
                time.sleep(60)
            case "grows":
                self.big = b"x" * 2**23
            case "asks where":
                return os.getcwd(), 0.0, False, False, {}
        return super().step(action)


class ClosedLevers(Levers):
    """Levers that note in a file how many tasks had begun when they were closed; a pull hangs."""

    def __init__(self, file: str) -> None:
        super().__init__(protocol="compact")
        self.file, self.begun = file, 0

    def reset(self, **options):
        self.begun += 1
        return super().reset(**options)

    def step(self, action):
        time.sleep(60)
        return super().step(action)

    def close(self):
        with Path(self.file).open("a") as file:
            file.write(f"{self.begun} ")


class ChildLevers(Levers):
    """Levers that start a program on a task, note its number and where they print to in a file; a pull hangs."""

    def __init__(self, file: str, own_session: bool = False) -> None:
        super().__init__()
        self.file, self.own_session = file, own_session

    def reset(self, **options):
        child = subprocess.Popen(["sleep", "60"], start_new_session=self.own_session)
        streams = [type(stream).__name__ for stream in (sys.stdout, sys.stderr)]
        Path(self.file).write_text(" ".join([str(child.pid), *streams]))
        return super().reset(**options)

    def step(self, action):
        time.sleep(60)
        return super().step(action)
