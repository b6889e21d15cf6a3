"""LightningModules: the objective of CoD-Train, and the supervised warm start before it."""

if __name__ != "cod_lightning.modules":  # from a checkout's folder; its classes would be there twice
    raise ImportError(f"import cod_lightning.modules: {__name__} is a part of that package")

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.modules.grpo import GRPOModule as GRPOModule
    from cod_lightning.modules.warm_start import WarmStartModule as WarmStartModule

__getattr__ = lazily(__name__, __file__)
