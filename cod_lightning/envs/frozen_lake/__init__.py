"""FrozenLake-Obscure: four action codes, four directions, a hidden order; in sentences, in words, or as a picture."""

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.envs.frozen_lake.picture import PicturedLake as PicturedLake
    from cod_lightning.envs.frozen_lake.world import FrozenLakeObscure as FrozenLakeObscure

__getattr__ = lazily(__name__, __file__)
