"""Policy losses on tokens. A loss is a frozen dataclass that YAML names with `model.loss.class_path`.

Each divides by a count of the *whole update* (tokens or episodes, over all micro-batches), so that splitting an update
changes memory and not the gradient. What is a sequence elsewhere is an episode here: all its rows together.

Options of one name have one default in all classes: a command line that names another class keeps the options
that the config's class had under that name.
"""

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.objective.losses.base import LossInputs as LossInputs
    from cod_lightning.objective.losses.base import LossOutputs as LossOutputs
    from cod_lightning.objective.losses.base import PolicyLoss as PolicyLoss
    from cod_lightning.objective.losses.ppo import DAPO as DAPO
    from cod_lightning.objective.losses.ppo import GRPO as GRPO
    from cod_lightning.objective.losses.ppo import GSPO as GSPO
    from cod_lightning.objective.losses.ppo import LOOP as LOOP
    from cod_lightning.objective.losses.ppo import DrGRPO as DrGRPO
    from cod_lightning.objective.losses.rec import REC as REC
    from cod_lightning.objective.losses.reinforce import CISPO as CISPO
    from cod_lightning.objective.losses.reinforce import RLOO as RLOO

__getattr__ = lazily(__name__, __file__)
