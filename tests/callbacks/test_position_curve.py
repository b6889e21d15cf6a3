"""What TensorBoard gets to see."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from cod_lightning.callbacks.checkpoints import RunConfig
from cod_lightning.callbacks.tensorboard import PositionCurve
from tests.played_run import PlayedData, PlayedModule, trainer

HOSTILE = "```\n# free\n<script>alert(1)</script> ![x](http://x.y/z.png) | a | b |\n````\n\x1b[0m\x00"


class Elements(HTMLParser):
    """Which elements there are, and the text inside and outside of code."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.text = {True: "", False: ""}
        self._inside = False

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self._inside = self._inside or tag == "pre"

    def handle_endtag(self, tag):
        self._inside = self._inside and tag != "pre"

    def handle_data(self, data):
        self.text[self._inside] += data


def test_tensorboard_gets_a_picture_and_a_lifecycle_whose_text_is_code_alone_after_each_validation(tmp_path: Path):
    curve, logger = PositionCurve(), TensorBoardLogger(str(tmp_path), name="", version="tensorboard")
    trainer(tmp_path, [curve], logger=logger).fit(PlayedModule(), PlayedData(HOSTILE))
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [image.step for image in events.Images("val/position_curve")] == [4, 8]
    assert [step for step, _ in curve.history] == [4, 8]
    assert len(events.Tensors("custom_scalars__config__")) == 1
    (tag,) = (tag for tag in events.Tags()["tensors"] if tag.startswith("val/lifecycle"))
    assert [event.step for event in events.Tensors(tag)] == [4, 8]
    text, page = events.Tensors(tag)[-1].tensor_proto.string_val[0].decode(), Elements()
    assert text.startswith("**validation/0**, sibling 0; rewards by position:")
    page.feed(markdown_to_safe_html(text))
    assert page.seen <= {"p", "strong", "h4", "pre", "code"}
    assert "<script>alert(1)</script> ![x](http://x.y/z.png)" in page.text[True]
    assert "free" not in page.text[False]
    assert "␛[0m" in page.text[True]


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


def test_the_curves_go_into_the_checkpoint_and_back() -> None:
    before, after = PositionCurve(), PositionCurve()
    before.history = [(4, (0.5, 1.0))]
    after.load_state_dict(before.state_dict())
    assert after.history == before.history
