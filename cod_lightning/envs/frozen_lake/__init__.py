"""FrozenLake-Obscure: four action codes, four directions, a hidden order."""

from cod_lightning.envs.frozen_lake.world import FrozenLakeObscure as FrozenLakeObscure
