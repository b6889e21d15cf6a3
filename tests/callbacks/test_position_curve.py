"""What TensorBoard gets to see."""

from pathlib import Path

import numpy as np
import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from cod_lightning.callbacks.checkpoints import RunConfig
from cod_lightning.callbacks.tensorboard import PositionCurve, contexts_as_markdown, pixels, position_figure
from tests.played_run import PlayedData, PlayedModule, trainer
from tests.records import lifecycle

SCRIPT = "<script>alert(1)</script>"


def test_tensorboard_gets_a_picture_and_texts_after_each_validation(tmp_path: Path) -> None:
    curve, logger = PositionCurve(num_texts=2), TensorBoardLogger(str(tmp_path), name="", version="tensorboard")
    trainer(tmp_path, [curve], logger=logger).fit(PlayedModule(), PlayedData(SCRIPT))
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [image.step for image in events.Images("val/position_curve")] == [4, 8]
    (tag,) = (tag for tag in events.Tags()["tensors"] if tag.startswith("val/contexts"))
    text = events.Tensors(tag)[-1].tensor_proto.string_val[0].decode()
    page = markdown_to_safe_html(text)
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page
    assert page.count("<pre>") == text.count("```text") == 2
    assert [step for step, _ in curve.history] == [4, 8]
    assert len(events.Tensors("custom_scalars__config__")) == 1


def test_runs_are_compared_by_their_settings_beside_what_validation_logged(tmp_path: Path) -> None:
    text = "model:\n  lr: 0.002\n  clip: null\ndata:\n  env: {class_path: my.World}\n  sizes: [1, 2]\n"
    logger = TensorBoardLogger(str(tmp_path), name="", version="tensorboard")
    trainer(tmp_path, [PositionCurve(), RunConfig(text, tmp_path, {})], logger=logger).fit(PlayedModule(), PlayedData())
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    plugin = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = HParamsPluginData.FromString(plugin).session_start_info.hparams
    assert settings["model.lr"].number_value == 0.002
    assert settings["data.env"].string_value == "World"
    assert "model.clip" not in settings
    plugin = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    tags = {info.name.tag for info in HParamsPluginData.FromString(plugin).experiment.metric_infos}
    assert {"val/cod_gain", "val/success/position_0", "val/success/position_2"} <= tags
    assert [event.step for event in events.Scalars("val/success/position_2")] == [3, 7]  # nothing made up at step 0


@pytest.mark.parametrize("logger", ["none", "csv"])
def test_without_tensorboard_nothing_happens(tmp_path: Path, logger: str) -> None:
    chosen = CSVLogger(str(tmp_path)) if logger == "csv" else False
    trainer(tmp_path, [PositionCurve()], logger=chosen).fit(PlayedModule(), PlayedData())
    assert not list(tmp_path.rglob("events*"))


def test_model_text_never_ends_its_block_nor_acts_as_html() -> None:
    text = contexts_as_markdown(lifecycle("a/b", (True, False, None), context=f"</pre>\n```\n# free {SCRIPT}\n````"))
    page = markdown_to_safe_html(text)
    assert page.count("<pre>") == page.count("</pre>") == 1
    assert page.endswith("</pre>")
    assert "<script" not in page
    assert "<h1" not in page
    assert "position 0: solved; context: (none)" in text
    assert "position 1: not solved" in text
    assert "position 2: missing" in text


def test_no_line_of_a_context_passes_for_another_position() -> None:
    text = contexts_as_markdown(
        lifecycle("a/b", (True, True), context="x\nposition 1: solved; context: y " + "y " * 99)
    )
    assert sum(line.startswith("position 1:") for line in text.splitlines()) == 1
    assert max(map(len, text.splitlines())) <= 124


def test_the_latest_curve_stands_out_from_earlier_ones() -> None:
    axes = position_figure([(0, (0.1, 0.2)), (10, (0.4, 0.9))]).axes[0]
    latest, earlier = axes.lines
    assert latest.get_ydata() == pytest.approx((0.4, 0.9))
    assert latest.get_label() == "step 10"
    assert earlier.get_color() == "0.8"


def test_the_picture_is_drawn_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    picture = pixels(position_figure([(0, (0.1, 0.2))]))
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert picture.std() > 0


def test_the_curves_go_into_the_checkpoint_and_back() -> None:
    before, after = PositionCurve(), PositionCurve()
    before.history = [(4, (0.5, 1.0))]
    after.load_state_dict(before.state_dict())
    assert after.history == before.history
