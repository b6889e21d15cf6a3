"""FrozenLake-Obscure: four action codes, four directions, a hidden order; in sentences, in words, or as a picture."""

from cod_lightning.envs.frozen_lake.picture import PicturedLake as PicturedLake
from cod_lightning.envs.frozen_lake.world import FrozenLakeObscure as FrozenLakeObscure
