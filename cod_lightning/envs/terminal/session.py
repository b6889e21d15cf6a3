"""What commands act on: the machines of a task, and the chain of sessions that lead to the present one."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from cod_lightning.envs.terminal.machine import Machine
from cod_lightning.envs.terminal.quirks import Site


@dataclass(frozen=True, slots=True)
class Result:
    """What a line printed, its exit code, and where it failed."""

    output: str
    code: int
    failed: int = 0
    """1-based number of the last command that failed; 0 if none did."""
    count: int = 1
    """Commands in the line."""


@dataclass(slots=True)
class Session(ABC):
    """Machines, the chain of sessions (the last one is the present one), and the last exit code."""

    site: Site
    local: Machine
    remote: Machine
    gateway: Machine | None
    max_commands: int = 8
    sessions: list[Machine] = field(default_factory=list)
    code: int = 0
    budget: int = 0
    """Commands that this line may still run, commands after ssh included."""

    @property
    def here(self) -> Machine:
        """The machine that commands act on."""
        return self.sessions[-1] if self.sessions else self.local

    @abstractmethod
    def run_part(self, line: str) -> Result:
        """Run a line within the budget; also the command after ssh."""
