"""The paper's lifecycle: solve, write down what was learned, use it next time."""

from dataclasses import dataclass

from cod_lightning.lifecycles.base import Agent, Program
from cod_lightning.ranges import Count
from cod_lightning.types import Pack


@dataclass(frozen=True, kw_only=True)
class ConnectTheDots(Program):
    """solve_0 -> rewrite_0 -> solve_1 -> ... -> solve_{N-1} (arXiv 2606.20002, figure 1), or with rarer rewrites."""

    every: Count | None = 1
    """Tasks from one rewrite of the context to the next; 1 is the paper's. Null: none, for contexts written within tasks."""

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        for number, task in enumerate(pack.tasks, start=1):
            solved = await agent.solve(task)
            if self.every and number % self.every == 0 and number < len(pack):
                await agent.rewrite(solved)
