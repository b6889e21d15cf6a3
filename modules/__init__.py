"""LightningModules: the objective of CoD-Train, and the supervised warm start before it."""

from modules.grpo import GRPOModule as GRPOModule
from modules.warm_start import WarmStartModule as WarmStartModule
