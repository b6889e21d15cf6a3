"""How an agent writes down what it learnt."""

from cod_lightning.contexts.base import ContextMechanism as ContextMechanism
from cod_lightning.contexts.base import ContextUpdate as ContextUpdate
from cod_lightning.contexts.hint import HintContext as HintContext
