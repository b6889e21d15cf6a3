"""The cache of warm starts when several runs want the same at once."""

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cod_lightning.commands import warm_start


@pytest.fixture
def trained(tmp_path, monkeypatch) -> list[Path]:
    """Folders that were trained into, slowly; nothing is trained really."""
    folders: list[Path] = []

    def train(folder: Path, argv) -> None:
        folders.append(folder)
        time.sleep(0.2)
        (folder / "policy").mkdir(parents=True)
        time.sleep(0.2)
        (folder / "policy" / "config.json").write_text("{}")

    made = SimpleNamespace(parser=SimpleNamespace(dump=str), config="the config")
    monkeypatch.setenv("COD_LIGHTNING_CACHE", str(tmp_path))
    monkeypatch.setattr(warm_start, "expand", lambda argv: SimpleNamespace(argv=argv))
    monkeypatch.setattr(warm_start, "start", lambda *_, **__: made)
    monkeypatch.setattr(warm_start, "_train_into", train)
    return folders


def test_of_several_that_want_the_same_one_trains_and_all_find_it(trained, capsys) -> None:
    found: list[Path] = []
    want = [
        threading.Thread(target=lambda: found.append(warm_start.ensure_warm_start("warm_start/levers", 1, 1)))
        for _ in range(3)
    ]
    for thread in want:
        thread.start()
    for thread in want:
        thread.join()
    assert len(trained) == 1
    assert found == [trained[0] / "policy"] * 3
    said = capsys.readouterr().err
    assert "another process makes" in said
    assert said.count("once; then cached") == 1


def test_the_lock_is_let_go_where_training_fails(trained, monkeypatch) -> None:
    def fail(folder: Path, argv) -> None:
        raise RuntimeError("no memory")

    working = warm_start._train_into
    monkeypatch.setattr(warm_start, "_train_into", fail)
    with pytest.raises(RuntimeError):
        warm_start.ensure_warm_start("warm_start/levers", 1, 1)
    monkeypatch.setattr(warm_start, "_train_into", working)
    assert warm_start.ensure_warm_start("warm_start/levers", 1, 1).is_dir()


@pytest.mark.parametrize("file", ["mine_of_cache.py", "mine_of_cache/__init__.py"])
def test_a_world_of_ones_own_that_was_edited_begins_anew(file, tmp_path, monkeypatch) -> None:
    source = tmp_path / file
    source.parent.mkdir(exist_ok=True)
    source.write_text("")
    config = "data:\n  env:\n    class_path: mine_of_cache.World\n  context:\n    class_path: cod_lightning.contexts.HintContext\n"
    monkeypatch.setitem(sys.modules, "mine_of_cache", SimpleNamespace(__file__=str(source)))
    first = warm_start._key(config)
    assert warm_start._key(config) == first
    (source.parent / "wording.py").write_text("WORDS = 1")
    assert warm_start._key(config) != first


def test_a_world_of_this_project_is_known_by_the_version() -> None:
    assert list(warm_start._sources("class_path: cod_lightning.envs.levers.Levers")) == []
