"""A plan before every task: an episode of its own, whose text the task is shown."""

from dataclasses import dataclass

from cod_lightning.lifecycles.base import Agent, Ask, Program
from cod_lightning.types import Pack

_HEADING = "\n\n## Your plan for this task\n"
"""What stands between the environment's rules and the plan."""


@dataclass(frozen=True, kw_only=True)
class PlanAndSolve(Program):
    """write_0 -> solve_0 -> rewrite_0 -> write_1 -> ...: the policy sees how a task begins, writes a plan, then solves the task.

    A plan is compared with the siblings' plans at its position, and credited with the rewards of the solve episodes after it, as
    far as the credit rule looks ahead: not by `TaskCredit`. Source: Plan-and-Solve prompting (arXiv 2305.04091). What differs: the
    plan is an episode of its own, trained by what came of it, and a task is shown it as a part of the rules.
    """

    request: str = "\n\nDo not answer yet. Write a short plan for this task first."
    """What follows the task's first observation where a plan is asked for."""

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        for task in pack.tasks:
            _, plan = await agent.ask(task, Ask(self.request))
            solved = await agent.solve(task, note=f"{_HEADING}{plan}" if plan else "")
            if task is not pack.tasks[-1]:
                await agent.rewrite(solved)

    def words(self) -> tuple[str, ...]:
        return tuple(f"{self.request} {_HEADING}".split())
