"""The lifecycle that TensorBoard shows after each validation."""

from html.parser import HTMLParser
from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html

from cod_lightning.callbacks.tensorboard import Sample
from tests.played_run import PlayedData, PlayedModule, trainer

HOSTILE = "```\n# free\n<script>alert(1)</script> ![x](http://x.y/z.png) | a | b |\n````\n\x1b[0m\x00"


def texts(folder: Path, context: str = HOSTILE) -> dict[int, str]:
    """Step -> text, from the event file of a training."""
    logger = TensorBoardLogger(str(folder), name="", version="tensorboard")
    trainer(folder, [Sample()], logger=logger).fit(PlayedModule(), PlayedData(context))
    logger.experiment.flush()
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    (tag,) = (tag for tag in events.Tags()["tensors"] if tag.startswith("val/lifecycle"))
    return {event.step: event.tensor_proto.string_val[0].decode() for event in events.Tensors(tag)}


def test_the_event_file_holds_one_lifecycle_of_the_same_pack_for_each_validation(tmp_path: Path) -> None:
    found = texts(tmp_path, "left is up")
    assert sorted(found) == [4, 8]
    for text in found.values():
        assert text.startswith("**validation/0**, sibling 0; rewards by position:")
        assert text.count("####") == 5
        assert " context | left is up" in text


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


def test_what_tensorboard_makes_of_it_shows_hostile_text_as_code_only(tmp_path: Path) -> None:
    page = Elements()
    page.feed(markdown_to_safe_html(texts(tmp_path)[8]))
    assert page.seen <= {"p", "strong", "h4", "pre", "code"}
    assert "<script>alert(1)</script> ![x](http://x.y/z.png)" in page.text[True]
    assert "free" not in page.text[False]
    assert "␛[0m" in page.text[True]


def test_without_tensorboard_nothing_happens(tmp_path: Path) -> None:
    trainer(tmp_path, [Sample()], logger=CSVLogger(str(tmp_path))).fit(PlayedModule(), PlayedData())
    assert not list(tmp_path.rglob("events*"))
