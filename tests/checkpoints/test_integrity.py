"""What is recognised as a damaged or incomplete checkpoint."""

import random

import pytest
import torch

from cod_lightning.cache import digests
from cod_lightning.checkpoints.checkpoint import MARKER, METADATA, damage, seal
from tests.cases import each
from tests.checkpoints.made import model, sharded

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "whole.ckpt"
    with path.open("wb") as out:
        torch.save({"weights": torch.arange(3000.0), "loops": {"fit_loop": [1, 2, "x"]}}, out)
    return path


@pytest.fixture
def folder(tmp_path):
    path = sharded(tmp_path / "shards.ckpt", model())
    seal(path, digests(path.glob("__0_*")))
    return path


def test_a_whole_checkpoint_is_whole(file, folder):
    assert damage(file) is None
    assert damage(folder) is None


@each("kept", [0.0, 0.01, 0.5, 0.999])
def test_a_file_that_was_cut_is_recognised(kept, file, tmp_path):
    whole = file.read_bytes()
    (tmp_path / "cut.ckpt").write_bytes(whole[: int(kept * len(whole))])
    assert damage(tmp_path / "cut.ckpt") is not None


def test_no_flipped_bit_changes_what_is_loaded_unnoticed(file, tmp_path):
    whole, rng, path = file.read_bytes(), random.Random(1), tmp_path / "flipped.ckpt"
    before = torch.load(file, weights_only=True)
    num_noticed = 0
    for _ in range(100):
        content = bytearray(whole)
        content[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        if damage(path) is not None:
            num_noticed += 1
            continue
        after = torch.load(path, weights_only=True)
        assert torch.equal(after["weights"], before["weights"])
        assert after["loops"] == before["loops"]
    assert num_noticed > 75


def test_a_file_that_is_not_there_is_missing(tmp_path):
    assert damage(tmp_path / "none.ckpt") == "it is missing"


@pytest.mark.parametrize("name", [METADATA, "meta.pt", MARKER, "__0_0.distcp"])
def test_a_sharded_checkpoint_that_lacks_a_file_is_incomplete(name, folder):
    (folder / name).unlink()
    assert damage(folder) == f"it is incomplete: {name} is missing"


@pytest.mark.parametrize("name", [METADATA, "meta.pt", "__0_0.distcp"])
def test_a_flipped_bit_in_a_shard_is_recognised(name, folder):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 4
    (folder / name).write_bytes(content)
    assert damage(folder) == f"{name} in it is not as it was written"


@pytest.mark.parametrize("marker", ["", "{", "[]", '{"sha256": 3}', '{"sha256": {"__0_0.distcp": ', "[" * 100_000])
def test_a_marker_that_cannot_be_read_marks_nothing(marker, folder):
    (folder / MARKER).write_text(marker)
    assert MARKER in (damage(folder) or "")
