"""What TensorBoard gets to see."""

from html.parser import HTMLParser
from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html

from cod_lightning.callbacks.loggers import PositionCurve
from tests.cases import each
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


def test_tensorboard_gets_charts_by_position_and_a_lifecycle_whose_text_is_code_alone_after_each_validation(
    tmp_path: Path,
):
    curve, logger = PositionCurve(), TensorBoardLogger(str(tmp_path), name="", version="tensorboard")
    trainer(tmp_path, [curve], logger=logger).fit(PlayedModule(), PlayedData(HOSTILE))
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
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


@each("logger", ["none", "csv"])
def test_without_tensorboard_nothing_happens(tmp_path: Path, logger: str) -> None:
    chosen = CSVLogger(str(tmp_path)) if logger == "csv" else False
    trainer(tmp_path, [PositionCurve()], logger=chosen).fit(PlayedModule(), PlayedData())
    assert not list(tmp_path.rglob("events*"))
