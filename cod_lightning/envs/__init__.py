"""Worlds: gymnasium environments in text space, a folder each. Importing one imports neither torch nor a model.

Each folder exports its class: `from cod_lightning.envs.levers import Levers`.
"""

from cod_lightning.envs.base import TextEnv as TextEnv
from cod_lightning.envs.facts import QuotingDials as QuotingDials
from cod_lightning.envs.facts import TeacherDials as TeacherDials
