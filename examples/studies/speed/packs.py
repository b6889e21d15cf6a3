"""What benchmarks play."""

from cod_lightning.envs.base import TextEnv
from cod_lightning.types import Pack, Split


def training_packs(world: TextEnv, count: int, num_tasks: int, first: int = 0) -> list[Pack]:
    """The world's training packs from `first` on."""
    return [world.sample_pack(split=Split.TRAIN, index=i, num_tasks=num_tasks) for i in range(first, first + count)]
