"""Names, links and the newest whole checkpoint of a run, and which one `last`, `auto` and a path mean."""

from pathlib import Path

import pytest
import torch

from cod_lightning.checkpoints.folder import LAST, CheckpointFolder, named, newest, num_updates_of
from cod_lightning.errors import ConfigError, DataError


def write(folder: CheckpointFolder, num_updates: int) -> Path:
    folder.clear()
    whole = {"cod_lightning": {}, "global_step": num_updates, "state_dict": {"a": torch.ones(5000)}}
    torch.save(whole, folder.unfinished(num_updates))
    return folder.finish(num_updates)


@pytest.fixture
def folder(tmp_path):
    return CheckpointFolder(tmp_path / "checkpoints")


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_last_is_the_newest(folder, capsys):
    for num_updates in (3, 7, 12):
        path = write(folder, num_updates)
        assert folder.last.resolve() == path.resolve()
        assert torch.load(folder.last, weights_only=True)["global_step"] == num_updates_of(path) == num_updates
    assert folder.usable() == (folder.last, [])
    assert newest(folder.path, needed=True) == folder.last
    assert capsys.readouterr().err == ""
    assert [num_updates_of(path) for path in folder.kept()] == [12, 7, 3]


def test_the_newest_whole_one_is_used_and_the_damaged_ones_are_told(folder):
    paths = [write(folder, num_updates) for num_updates in (3, 7, 12)]
    paths[2].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:-9])
    found, damaged = folder.usable()
    assert found == paths[0]
    assert [path for path, _ in damaged] == [folder.last, paths[1]]
    assert damaged[0][1] == "it is empty"


def test_killed_before_the_link_the_run_goes_on_from_the_linked_one(folder):
    write(folder, 3)
    torch.save({"global_step": 7}, folder.named(7))
    assert folder.usable() == (folder.last, [])
    assert [path.name for path in folder.newest_first()] == [LAST]


def test_without_a_link_the_newest_is_the_one_of_most_updates(folder):
    for num_updates in (3, 12):
        write(folder, num_updates)
    folder.last.unlink()
    assert folder.usable() == (folder.named(12), [])


def test_a_link_to_nothing_is_told(folder):
    write(folder, 3)
    write(folder, 7).unlink()
    assert folder.usable() == (folder.named(3), [(folder.last, "it is missing")])


def test_a_plain_file_in_place_of_the_link_counts_and_is_replaced(folder):
    content = write(folder, 3).read_bytes()
    folder.last.unlink()
    folder.last.write_bytes(content)
    assert folder.usable() == (folder.last, [])
    write(folder, 7)
    assert folder.last.is_symlink()


def test_what_was_left_unfinished_goes_and_is_never_used(folder):
    write(folder, 3)
    torch.save({}, folder.unfinished(7))
    folder.unfinished(8).mkdir()
    assert folder.usable() == (folder.last, [])
    write(folder, 9)
    assert names(folder) == [LAST, "update-00000003.ckpt", "update-00000009.ckpt"]


def test_shards_take_the_place_of_shards_of_the_same_update(folder):
    for text in ("old", "new"):
        folder.clear()
        folder.unfinished(3).mkdir()
        (folder.unfinished(3) / "meta.pt").write_text(text)
        folder.finish(3)
    assert (folder.last / "meta.pt").read_text() == "new"
    assert names(folder) == [LAST, "update-00000003.ckpt"]


def test_shards_take_the_place_of_a_file_of_the_same_update_and_a_file_theirs(folder):
    write(folder, 3)
    folder.unfinished(3).mkdir()
    assert folder.finish(3).is_dir()
    assert write(folder, 3).is_file()
    assert names(folder) == [LAST, "update-00000003.ckpt"]


def test_damage_of_the_newest_is_told_and_the_one_before_taken(folder, capsys):
    write(folder, 3)
    write(folder, 7).write_bytes(b"")
    assert newest(folder.path, needed=True) == folder.named(3)
    said = f"warning: {folder.last} is damaged: it is empty. Going on from the one before, {folder.named(3)}\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("needed", [True, False])
def test_with_every_one_damaged_nothing_is_begun_anew_unasked(needed, folder):
    for num_updates in (3, 7):
        write(folder, num_updates).write_bytes(b"")
    with pytest.raises(DataError, match=r"No checkpoint in .* is whole; begin anew with --overwrite true"):
        newest(folder.path, needed=needed)


def test_where_there_is_none_auto_begins_and_last_refuses(folder):
    assert newest(folder.path, needed=False) is None
    with pytest.raises(ConfigError, match=r"last\.ckpt; expected an existing checkpoint"):
        newest(folder.path, needed=True)


def test_a_damaged_checkpoint_that_was_named_is_refused_with_another(folder):
    assert named(write(folder, 3)).global_step == 3
    damaged = write(folder, 7)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    for path in (damaged, folder.last):
        with pytest.raises(DataError, match=rf"{path}, which is damaged: .*Use {folder.named(3)}"):
            named(path)
