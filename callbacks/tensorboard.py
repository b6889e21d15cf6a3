"""What TensorBoard shows after a validation: success by position, and one lifecycle as text."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import yaml
from lightning.fabric.utilities.logger import _flatten_dict
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.tensorboard.summary import hparams

from cod_lightning.callbacks.checkpoints import RunConfig
from cod_lightning.callbacks.runner import RolloutCallback
from cod_lightning.evaluation.metrics import by_position
from cod_lightning.rollout import story
from cod_lightning.types import Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAYOUT = {
    "by position": {
        "success on held-out packs": ["Multiline", [r"^val/success/position_\d+$"]],
        "reward in training": ["Multiline", [r"^train/reward/position_\d+$"]],
    }
}
"""Of TensorBoard's tab CUSTOM SCALARS: positions beside each other."""
_COMPARED = re.compile(r"val/(cod_gain|success/position_\d+)")
"""What TensorBoard shows of a run beside its settings."""
_OF_THE_COMMAND = ("accept_changes", "overwrite", "ckpt_path", "weights_only", "trainer.default_root_dir")
"""Keys of a config that are no settings."""
Curve = tuple[int, tuple[float, ...]]
"""A global step, and success by position."""


class PositionCurve(RolloutCallback):
    """After every validation: a picture of success by position, earlier ones behind it, and a lifecycle through the first pack.

    After the first, the settings of the run, to compare runs by.
    """

    def __init__(self) -> None:
        self.history: list[Curve] = []
        self._text = ""

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        success = tuple(by_position(trainer.callback_metrics, "val/success/position_"))
        if trainer.sanity_checking or not success:
            return
        step, first = trainer.global_step, not self.history
        self.history.append((step, success))
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger) and trainer.is_global_zero:
                if first:
                    logger.experiment.add_custom_scalars(_LAYOUT)
                    metrics = [name for name in trainer.callback_metrics if _COMPARED.fullmatch(name)]
                    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
                        if isinstance(callback, RunConfig):
                            show_settings(logger, yaml.safe_load(callback.text), metrics)
                picture = pixels(position_figure(self.history))
                logger.experiment.add_image("val/position_curve", picture, step, dataformats="HWC")
                logger.experiment.add_text("val/lifecycle", self._text, step)

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        if label == "validation" and groups:
            self._text = story.as_markdown(groups[0].lifecycles[0])

    def state_dict(self) -> dict[str, Any]:
        return {"history": [[step, list(success)] for step, success in self.history]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = [(step, tuple(success)) for step, success in state_dict["history"]]


def show_settings(logger: TensorBoardLogger, config: dict[str, Any], metrics: Sequence[str]) -> None:
    """Fill TensorBoard's tab HPARAMS: the keys of the config that are set, beside these metrics, which are logged as ever.

    `Logger.log_hyperparams` would log each of them once more, as 0 at step 0.
    """
    shown: dict[str, bool | float | str] = {}
    for key, value in _flatten_dict(config, delimiter=".").items():
        if value is not None and key not in _OF_THE_COMMAND:  # names as they are typed: data.context is HintContext
            typed = value if isinstance(value, bool | int | float) else str(value)
            named = str(value).rpartition(".")[2] if key.endswith(".class_path") else typed
            shown[key.replace(".init_args", "").removesuffix(".class_path")] = named
    writer = logger.experiment._get_file_writer()
    for summary in hparams(shown, dict.fromkeys(metrics, 0.0)):
        writer.add_summary(summary)


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
