"""LightningDataModules: online rollouts, and the demonstrations of the warm start."""

if __name__ != "cod_lightning.datamodules":  # from a checkout's folder; its classes would be there twice
    raise ImportError(f"import cod_lightning.datamodules: {__name__} is a part of that package")

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.datamodules.demonstrations import DemonstrationDataModule as DemonstrationDataModule
    from cod_lightning.datamodules.rollout import RolloutDataModule as RolloutDataModule

__getattr__ = lazily(__name__, __file__)
