"""The paper's lifecycle: solve, write down what was learned, use it next time."""

from dataclasses import dataclass

from cod_lightning.errors import check_at_least
from cod_lightning.lifecycles.base import Agent, Program
from cod_lightning.types import Pack


@dataclass(frozen=True, kw_only=True)
class ConnectTheDots(Program):
    """solve_0 -> rewrite_0 -> solve_1 -> ... -> solve_{N-1} (arXiv 2606.20002, figure 1), or with rarer rewrites."""

    every: int | None = 1
    """Tasks from one rewrite of the context to the next; 1 is the paper's. Null: none, for contexts written within tasks."""

    def __post_init__(self) -> None:
        check_at_least("data.program.every", self.every, 1, "1 rewrites the context after every task.")

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        for number, task in enumerate(pack.tasks, start=1):
            solved = await agent.solve(task)
            if self.every and number % self.every == 0 and number < len(pack):
                await agent.rewrite(solved)
