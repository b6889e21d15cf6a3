"""A lifecycle in which the agent chooses its tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cod_lightning.envs.base import Proposals, TextEnv, beside
from cod_lightning.errors import ConfigError, EnvironmentFailure
from cod_lightning.lifecycles import Agent, Ask, ConnectTheDots, Program
from cod_lightning.ranges import Several
from cod_lightning.types import Episode, Pack, Task


@dataclass(frozen=True, kw_only=True)
class ProposeAndSolve(Program):
    """The agent proposes a task, solves it `solves` times from the same context, then updates the context, and so on.

    One policy in two roles. A proposal is paid by how learnable its task is (`learnability`) and by nothing else, and is compared
    with the proposals of siblings at its position, a solve episode with their solve episodes. Outside training each task is solved
    once and followed by an update, as with `ConnectTheDots`.

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
        specs: list[object] = []
        for first in range(0, len(pack), self.solves):
            offer = TaskOffer(pack.tasks[first], specs)
            proposal = (await agent.ask(offer.task, offer)).episode if self.proposes else None
            solved = [await agent.solve(offer.task)]
            for _ in range(1, self.solves):
                solved.append(await agent.solve(offer.task, context=solved[0].state_before))
            if proposal is not None:
                agent.pay(proposal, solved, learnability=learnability(solved) if proposal.success else 0.0)
            if first + self.solves < len(pack):
                await agent.rewrite(solved[-1])

    @property
    def held_out(self) -> Program:
        return ConnectTheDots()


class TaskOffer(Ask):
    """Asks for a task in place of the pack's own, in the words of the environment (`envs.base.Proposals`).

    Args:
        task: The pack's own; afterwards what is to be solved: the proposed one, or this where the answer proposes none.
        specs: Of the tasks that were solved before, to which this one is added.
    """

    scripted = chooses_task = True

    def __init__(self, task: Task, specs: list[object]) -> None:
        super().__init__()
        self.task, self._specs = task, specs

    def message(self, env: TextEnv, observation: str) -> str:
        return beside(env, Proposals).offer

    def read(self, env: TextEnv, response: str) -> Task | None:
        made: Any = beside(env, Proposals).proposed(response, self.task)
        if not isinstance(made, Task | None):
            raise EnvironmentFailure(f"{type(env).__name__}.proposed gave a {type(made).__name__}, not a Task or None")
        chosen = made or self.task
        self.task = replace(chosen, repeat=chosen.spec in self._specs)
        self._specs.append(chosen.spec)
        return made

    def check(self, env: TextEnv) -> None:
        if beside(env, Proposals).offer == "":
            expected = f"a program without proposals, since {type(env).__name__} makes no tasks of them"
            remedy = "Choose program=ConnectTheDots, env=doors or env=levers, or give yours offer and proposed()."
            raise ConfigError("data.program", ProposeAndSolve.__name__, expected, remedy)


def learnability(solves: Sequence[Episode]) -> float:
    """4 p (1 - p), with p the share of a task's solve episodes that succeeded: 1 for even chances, 0 for a sure outcome.

    In expectation over M independent solve episodes, each solved with probability q, it is (1 - 1/M) 4 q (1 - q).

    Source: the variance of success by which SFL (arXiv 2408.15099) chooses levels, times 4. What differs: it pays who proposes the
    task. Absolute Zero (arXiv 2505.03335) pays 1 - p, and 0 for p = 0, so that the hardest task that is ever solved pays most;
    R-Zero (arXiv 2508.05004) 1 - 2 |p - 1/2|, with the same maximum, and has a penalty for tasks like others, which is left out:
    what the context says already pays nothing.
    """
    p = sum(bool(one.success) for one in solves) / len(solves)
    return 4 * p * (1 - p)
