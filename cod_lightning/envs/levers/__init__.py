"""Levers: the smallest world in which a context pays."""

from cod_lightning.envs.levers.forbidden import ForbiddenLever as ForbiddenLever
from cod_lightning.envs.levers.world import Levers as Levers
