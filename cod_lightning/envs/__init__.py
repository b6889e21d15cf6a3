"""Worlds: gymnasium environments in text space. Importing them imports neither torch nor a model."""

from cod_lightning.envs.base import TextEnv as TextEnv
from cod_lightning.envs.facts import TeacherDials as TeacherDials
from cod_lightning.envs.frozen_lake_obscure import FrozenLakeObscure as FrozenLakeObscure
from cod_lightning.envs.levers import Levers as Levers
