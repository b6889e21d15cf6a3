"""Which checkpoint `last`, `auto` and a path mean."""

import pytest
import torch

from cod_lightning.checkpoints.folder import CheckpointFolder, named, newest
from cod_lightning.errors import ConfigError, DataError


@pytest.fixture
def folder(tmp_path):
    kept = CheckpointFolder(tmp_path / "checkpoints")
    for num_updates in (3, 7):
        kept.clear()
        torch.save(
            {"cod_lightning": {}, "global_step": num_updates, "state_dict": {"a": torch.ones(5000)}},
            kept.unfinished(num_updates),
        )
        kept.finish(num_updates)
    return kept


def test_last_is_the_newest_in_silence(folder, capsys):
    assert newest(folder.path, needed=True) == folder.last
    assert capsys.readouterr().err == ""


def test_damage_of_the_newest_is_told_and_the_one_before_taken(folder, capsys):
    folder.named(7).write_bytes(b"")
    assert newest(folder.path, needed=True) == folder.named(3)
    said = f"warning: {folder.last} is damaged: it is empty. Going on from the one before, {folder.named(3)}\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("needed", [True, False])
def test_with_every_one_damaged_nothing_is_begun_anew_unasked(needed, folder):
    for num_updates in (3, 7):
        folder.named(num_updates).write_bytes(b"")
    with pytest.raises(DataError, match=r"No checkpoint in .* is whole; begin anew with --overwrite true"):
        newest(folder.path, needed=needed)


def test_where_there_is_none_auto_begins_and_last_refuses(tmp_path):
    assert newest(tmp_path / "checkpoints", needed=False) is None
    with pytest.raises(ConfigError, match=r"last\.ckpt; expected an existing checkpoint"):
        newest(tmp_path / "checkpoints", needed=True)


def test_a_damaged_checkpoint_that_was_named_is_refused_with_another(folder):
    assert named(folder.named(3)).global_step == 3
    content = bytearray(folder.named(7).read_bytes())
    content[len(content) // 2] ^= 1
    folder.named(7).write_bytes(content)
    for path in (folder.named(7), folder.last):
        with pytest.raises(DataError, match=rf"{path}, which is damaged: .*Use {folder.named(3)}"):
            named(path)
