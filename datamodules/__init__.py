"""LightningDataModules: online rollouts, and the demonstrations of the warm start."""

from datamodules.demonstrations import DemonstrationDataModule as DemonstrationDataModule
from datamodules.rollout import RolloutDataModule as RolloutDataModule
