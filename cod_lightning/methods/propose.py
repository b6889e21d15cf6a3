"""A lifecycle in which the agent chooses its tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.errors import ConfigError
from cod_lightning.lifecycles import Agent, ConnectTheDots, Program
from cod_lightning.ranges import Several
from cod_lightning.rewards import ProposalReward
from cod_lightning.types import Episode, Pack, Task


class Learnability(ProposalReward):
    """4 p (1 - p), with p the share of the proposed task's solve episodes that succeeded: 1 for even chances, 0 for a sure outcome.

    In expectation over M independent solve episodes, each solved with probability q, it is (1 - 1/M) 4 q (1 - q).

    Source: the variance of success by which SFL (arXiv 2408.15099) chooses levels, times 4. What differs: it pays who proposes the
    task. Absolute Zero (arXiv 2505.03335) pays 1 - p, and 0 for p = 0, so that the hardest task that is ever solved pays most;
    R-Zero (arXiv 2508.05004) 1 - 2 |p - 1/2|, with the same maximum, and has a penalty for tasks like others, which is left out:
    what the context says already pays nothing.

    Args:
        weight: Factor of this part.
    """

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    async def __call__(self, solves: Sequence[Episode], task: Task) -> float:
        p = sum(bool(one.success) for one in solves) / len(solves)
        return 4 * p * (1 - p)


@dataclass(frozen=True, kw_only=True)
class ProposeAndSolve(Program):
    """The agent proposes a task, solves it `solves` times from the same context, then updates the context, and so on.

    One policy in two roles. A proposal is paid by how learnable its task is (`Learnability`, unless `data.rewards` has other parts
    for it) and by nothing else, and is compared with the proposals of siblings at its position, a solve episode with their solve
    episodes. Outside training each task is solved once and followed by an update, as with `ConnectTheDots`.

    Source: Absolute Zero (arXiv 2505.03335) has one policy propose and solve tasks, with a baseline by role and kind of task;
    R-Zero (arXiv 2508.05004) trains two policies in turn; SPIRAL (arXiv 2506.24119) plays games of two roles with a moving average
    by role as baseline. Differs: proposals are made within a lifecycle, with the context that the agent has written, of the pack's
    own hidden rule, and the environment knows the answer. Solve episodes of siblings are compared though they may have proposed
    different tasks.
    """

    solves: Several = 4
    """Solve episodes of one task, at least 2, since of one the success is 0 or 1; a divisor of `data.pack_size`."""
    proposes: bool = True
    """False plays the pack's own task as often at each of these places: what proposals are compared with."""

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        if len(pack) % self.solves:
            expected = f"a divisor of the {len(pack)} tasks of a pack, since each proposal is solved that often"
            raise ConfigError("data.program.solves", self.solves, expected, "Change it, or data.pack_size.")
        for first in range(0, len(pack), self.solves):
            task = await agent.ask(pack.tasks[first], Learnability()) if self.proposes else pack.tasks[first]
            solved = await agent.solve(task)
            for _ in range(1, self.solves):
                solved = await agent.solve(task, again=True)
            if first + self.solves < len(pack):
                await agent.rewrite(solved)

    @property
    def held_out(self) -> Program:
        return ConnectTheDots()
