"""What an agent carries from task to task, and what it keeps within a task, one mechanism a file."""

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.contexts.base import ContextMechanism as ContextMechanism
    from cod_lightning.contexts.base import ContextUpdate as ContextUpdate
    from cod_lightning.contexts.checked import CheckedContext as CheckedContext
    from cod_lightning.contexts.hint import HintContext as HintContext
    from cod_lightning.contexts.stacked import StackedContext as StackedContext
    from cod_lightning.contexts.wrapped import StartedContext as StartedContext

__getattr__ = lazily(__name__, __file__)


def default_mechanism(*, compact: bool) -> "ContextMechanism":
    """The paper's mechanism, in compact wording for an environment with a closed vocabulary."""
    from cod_lightning.contexts.hint import HintContext

    return HintContext("compact" if compact else "natural", response_limit=None)
