"""Programs of others that play a task by themselves and ask the policy over HTTP."""

from cod_lightning.envs.programs.verifiers_world import VerifiersWorld
from cod_lightning.envs.programs.world import ProgramWorld, ReportedReward

__all__ = ["ProgramWorld", "ReportedReward", "VerifiersWorld"]
