"""The cache of warm starts when several runs want the same at once."""

import importlib
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from lightning.fabric.utilities.rank_zero import rank_zero_only

from cod_lightning.commands import warm_start
from cod_lightning.commands.sources import sources
from cod_lightning.errors import ConfigError


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

    made = SimpleNamespace(parser=SimpleNamespace(dump=str), config="{}")
    monkeypatch.setenv("COD_LIGHTNING_CACHE", str(tmp_path))
    monkeypatch.setattr(warm_start, "expand", lambda _: SimpleNamespace(argv=[]))
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


def test_of_two_ranks_that_find_it_the_first_says_so(trained, capsys, monkeypatch) -> None:
    for rank in (0, 0, 1):
        monkeypatch.setattr(rank_zero_only, "rank", rank)
        warm_start.ensure_warm_start("warm_start/levers", 1, 1)
    assert capsys.readouterr().err.count("warm start: cached in") == 1


def test_a_cache_that_cannot_be_is_refused_by_its_variable(trained, tmp_path, monkeypatch) -> None:
    (file := tmp_path / "file").touch()
    monkeypatch.setenv("COD_LIGHTNING_CACHE", str(file))
    with pytest.raises(
        ConfigError, match=r"COD_LIGHTNING_CACHE is .*file/warm_start; expected a folder, and .*file is a file"
    ):
        warm_start.ensure_warm_start("warm_start/levers", 1, 1)


def test_the_lock_is_let_go_where_training_fails(trained, monkeypatch) -> None:
    def fail(folder: Path, argv) -> None:
        raise RuntimeError("no memory")

    working = warm_start._train_into
    monkeypatch.setattr(warm_start, "_train_into", fail)
    with pytest.raises(RuntimeError):
        warm_start.ensure_warm_start("warm_start/levers", 1, 1)
    monkeypatch.setattr(warm_start, "_train_into", working)
    assert warm_start.ensure_warm_start("warm_start/levers", 1, 1).is_dir()


_CONFIG = "data:\n  env:\n    class_path: {}\n  context:\n    class_path: cod_lightning.contexts.HintContext\n"


@pytest.mark.parametrize(
    ("world_file", "imports"),
    [
        ("world_of_cache", "import words_of_cache"),
        ("world_of_cache", "def late():\n    from words_of_cache import WORDS"),
        ("world_of_cache", "from shared_of_cache import words"),
        (
            "world_of_cache",
            "try:\n    from .words_of_cache import WORDS\nexcept ImportError:\n    from words_of_cache import WORDS",
        ),
        ("world_of_cache__init", "from . import words"),
        ("world_of_cache__init", "from .deep.words import WORDS"),
    ],
)
@pytest.mark.parametrize("edited", ["world", "words"])
def test_a_warm_start_is_made_anew_when_the_code_of_the_world_or_what_it_imports_changed(
    world_file, imports, edited, tmp_path, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    place = {
        "words_of_cache": "",
        "shared_of_cache": "shared_of_cache/",
        ". import": "world_of_cache/",
        ".deep": "world_of_cache/deep/",
    }
    folder = next(folder for named, folder in place.items() if named in imports)
    words = tmp_path / folder / ("words.py" if folder else "words_of_cache.py")
    own = tmp_path / ("world_of_cache.py" if world_file == "world_of_cache" else "world_of_cache/__init__.py")
    for path, text in ((own, imports), (words, "WORDS = 1")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    importlib.invalidate_caches()
    config = _CONFIG.format("world_of_cache.World")
    before = warm_start._key(config)
    assert warm_start._key(config) == before
    file = own if edited == "world" else words
    file.write_text(f"{file.read_text()}\nMORE = 2")
    assert warm_start._key(config) != before


def test_a_warm_start_is_made_anew_when_a_file_that_its_config_names_changed(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    files = [tmp_path / "rows.jsonl", tmp_path / "base" / "config.json"]
    for file in files:
        file.write_text("1")
    named = {"env": {"init_args": {"path": "rows.jsonl"}}}, {"policy": {"init_args": {"path": "base", "mark": "."}}}
    config = yaml.safe_dump(dict(zip(("data", "model"), named, strict=True)))
    found = [warm_start._key(config)]
    for file in files:
        file.write_text("2")
        found.append(warm_start._key(config))
    (tmp_path / "unnamed").write_text("1")
    assert warm_start._key(config) == found[-1]
    assert len(set(found)) == 3


def test_the_code_of_a_world_of_this_project_counts_and_that_of_libraries_and_reports_does_not() -> None:
    files = {path.as_posix().rpartition("cod_lightning/")[2] for path in sources(["cod_lightning.envs.levers"])}
    assert {"envs/levers/world.py", "envs/levers/wording.py", "envs/base.py", "seeds.py"} <= files
    assert not {file for file in files if file.startswith(("/", "reports/", "commands/", "envs/doors"))}
