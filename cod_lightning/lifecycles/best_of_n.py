"""Several attempts at every task, of which the best one teaches."""

import math
from collections import Counter
from dataclasses import dataclass

from cod_lightning.lifecycles.base import Agent, Program, Shows
from cod_lightning.ranges import Several
from cod_lightning.types import Pack


@dataclass(frozen=True, kw_only=True)
class BestOfN(Program):
    """n attempts at each task from one context and one state of the environment; the context is rewritten in view of the best.

    Attempts at a task are compared with each other, like an anchor's (`credit/credited.py`), and all are trained on. The lifecycle
    goes on in its own environment; of attempts of one reward its own solve episode counts as the best. Evaluations play n attempts,
    too, and show pass@k for k up to n.
    """

    n: Several = 4
    """Attempts at a task, the lifecycle's own solve episode included."""

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        for task in pack.tasks:
            for _ in range(1, self.n):
                agent.fork(task)
            solved = await agent.solve(task)
            if task is not pack.tasks[-1]:
                attempts = (solved, *await agent.attempts())
                best = max(attempts, key=lambda one: -math.inf if one.reward is None else one.reward)
                await agent.rewrite(best)

    @property
    def beside(self) -> Counter[Shows]:
        return Counter({"own": self.n - 1})
