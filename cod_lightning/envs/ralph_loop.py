"""The Ralph loop: the same task again and again, so that only the context can improve the reward."""

from dataclasses import replace

from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.wrapped import WrappedRules, WrappedWorld
from cod_lightning.types import Pack, Split


class RalphLoop(WrappedWorld):
    """Every pack is the first task of the inner world's pack, N times over; the position is the attempt.

    What the world itself carries over between tasks (a map, samples) it carries over between attempts. The reference
    rebuilds that at each attempt, or fails. Source: arXiv 2606.20002, Ralph evaluation.

    Args:
        world: The world whose tasks are repeated.
    """

    companions = (WrappedRules, *WrappedWorld.companions)

    def __init__(self, world: TextEnv) -> None:
        super().__init__(world)
        self.name = f"ralph-{world.name}"

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        pack = self.world.sample_pack(split=split, index=index, num_tasks=1, seed=seed)
        attempts = tuple(replace(pack.tasks[0], id=str(n), repeat=n > 0) for n in range(num_tasks))
        return replace(pack, id=f"ralph-{pack.id}", tasks=attempts)
