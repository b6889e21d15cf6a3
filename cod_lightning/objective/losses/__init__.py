"""Policy losses on tokens. A loss is a frozen dataclass that YAML names with `model.loss.class_path`.

Each divides by a count of the *whole update* (tokens or episodes, over all micro-batches), so that splitting an update
changes memory and not the gradient. What is a sequence elsewhere is an episode here: all its rows together.

Options of one name have one default in all classes: a command line that names another class keeps the options
that the config's class had under that name.
"""

from cod_lightning.objective.losses.base import LossInputs, LossMetrics, LossOutputs, PolicyLoss, UpdateTokens
from cod_lightning.objective.losses.cispo import CISPO
from cod_lightning.objective.losses.covariance import ClipCov, KLCov
from cod_lightning.objective.losses.divergence import kl_to_reference
from cod_lightning.objective.losses.ppo import DAPO, GRPO, GSPO, LOOP, DrGRPO
from cod_lightning.objective.losses.rec import REC
from cod_lightning.objective.losses.reinforce import OPMD, RLOO

__all__ = [
    "CISPO",
    "DAPO",
    "GRPO",
    "GSPO",
    "LOOP",
    "OPMD",
    "REC",
    "RLOO",
    "ClipCov",
    "DrGRPO",
    "KLCov",
    "LossInputs",
    "LossMetrics",
    "LossOutputs",
    "PolicyLoss",
    "UpdateTokens",
    "kl_to_reference",
]
