"""Worlds: gymnasium environments in text space, a folder each. Importing one imports neither torch nor a model.

A world's class lives in its folder: `from cod_lightning.envs.levers import Levers`.
"""

from cod_lightning.envs.base import TextEnv as TextEnv
from cod_lightning.envs.facts import QuotingDials as QuotingDials
from cod_lightning.envs.facts import TeacherDials as TeacherDials
