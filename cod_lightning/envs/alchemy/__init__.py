"""Alchemy-Random: hidden recipes of two elements each, the same for a whole pack; make the target before the rounds run out."""

from cod_lightning.envs.alchemy.world import Alchemy as Alchemy
