"""Code of a policy, interpreted: the syntax tree is walked, and only what is listed is allowed; eval and exec are not used."""

from cod_lightning.envs.apps.sandbox.bounds import MOST_LETTERS as MOST_LETTERS
from cod_lightning.envs.apps.sandbox.interpreter import CodeSession as CodeSession
