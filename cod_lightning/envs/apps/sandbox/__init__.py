"""Code of a policy, interpreted: the syntax tree is walked by a list of what is allowed; Python's own eval and exec are not used."""

from cod_lightning.envs.apps.sandbox.interpreter import Session as Session
