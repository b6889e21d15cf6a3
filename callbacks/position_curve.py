"""Shows in TensorBoard what CoD is about: success that rises with position, and the contexts that make it rise."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks.runner import follow, unfollow
from cod_lightning.markdown import fenced, visible
from cod_lightning.rollout import story
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.types import Group, Lifecycle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METRIC = "val/success/position_"
_LAYOUT = {
    "by position": {
        "success on held-out packs": ["Multiline", [r"^val/success/position_\d+$"]],
        "reward in training": ["Multiline", [r"^train/reward/position_\d+$"]],
    }
}
"""Of TensorBoard's tab CUSTOM SCALARS: positions beside each other."""
Curve = tuple[int, tuple[float, ...]]
"""A global step, and success by position."""


class PositionCurve(Callback, RolloutObserver):
    """After every validation: a picture of success by position, earlier ones behind it, and some lifecycles' contexts.

    Args:
        num_texts: Lifecycles whose contexts are shown as text.
    """

    def __init__(self, num_texts: int = 4) -> None:
        self.num_texts = num_texts
        self.history: list[Curve] = []
        self._texts: list[str] = []

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Follow rollouts."""
        follow(trainer, self)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Follow them no more."""
        unfollow(trainer, self)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Draw, where there is a TensorBoard to draw in."""
        success = success_by_position(trainer.callback_metrics)
        if trainer.sanity_checking or not success:
            return
        step, first = trainer.global_step, not self.history
        self.history.append((step, success))
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger) and trainer.is_global_zero:
                if first:
                    logger.experiment.add_custom_scalars(_LAYOUT)
                picture = pixels(position_figure(self.history))
                logger.experiment.add_image("val/position_curve", picture, step, dataformats="HWC")
                logger.experiment.add_text("val/contexts", "\n\n".join(self._texts), step)

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        """Keep the contexts of a validation."""
        if label == "validation":
            lifecycles = [lifecycle for group in groups for lifecycle in group.lifecycles]
            self._texts = [contexts_as_markdown(lifecycle) for lifecycle in lifecycles[: self.num_texts]]

    def state_dict(self) -> dict[str, Any]:
        """The curves so far, in plain containers."""
        return {"history": [[step, list(success)] for step, success in self.history]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the curves of the checkpoint."""
        self.history = [(step, tuple(success)) for step, success in state_dict["history"]]


def success_by_position(metrics: dict[str, Any]) -> tuple[float, ...]:
    """`val/success/position_K` for K = 0, 1, ... as far as they go without a gap."""
    values: list[float] = []
    while (name := f"{_METRIC}{len(values)}") in metrics:
        values.append(float(metrics[name]))
    return tuple(values)


def contexts_as_markdown(lifecycle: Lifecycle) -> str:
    """The context that each task was solved with and what came of it, as a code block that a policy's text cannot end."""
    lines = [f"{lifecycle.pack_id} #{lifecycle.sibling}"]
    for solve in lifecycle.solves:
        outcome = {True: "solved", False: "not solved", None: "missing"}[solve.success]
        lines.append(f"position {solve.position}: {outcome}; context: {solve.context_before or '(none)'}")
    said = "\n".join(visible(line).replace("\n", "\n    ") for line in lines)
    return fenced("\n".join("\n    ".join(story.wrapped(line)) for line in said.split("\n")))


def position_figure(history: Sequence[Curve]) -> "Figure":
    """Success by position: the latest curve strong, earlier ones faint."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5, 3.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for age, (step, success) in enumerate(reversed(history)):
        style: dict[str, Any] = {"color": "0.8", "linewidth": 1, "zorder": 1}
        if age == 0:
            style = {"color": "tab:green", "linewidth": 2, "marker": "o", "zorder": 2, "label": f"step {step}"}
        axes.plot(range(len(success)), success, **style)
    axes.set(xlabel="position in the pack", ylabel="success", ylim=(0, 1.02), title="Held-out packs, by position")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right", frameon=False)
    return figure


def pixels(figure: "Figure") -> np.ndarray:
    """The figure as uint8 [H W 3], drawn without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
