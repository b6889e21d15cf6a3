"""A cached warm start is used where it is what this user made, whole, and made anew elsewhere."""

import os
import shutil
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from cod_lightning.cache import sources
from cod_lightning.commands import phase
from cod_lightning.commands.phase import WarmStart, ensure_warm_start
from cod_lightning.errors import ConfigError
from tests.cases import each


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COD_LIGHTNING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "warm_start"


@pytest.fixture
def trained(monkeypatch):
    """The folders that policies were trained into; here that takes no time, and the config is these two lines."""
    made = []

    def save(cli, folder):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(1000))
        made.append(folder)

    parser = SimpleNamespace(dump=lambda config: "data: {}\nmodel: {}")
    data = SimpleNamespace(env="demonstrated", check_with=str)
    cli = SimpleNamespace(parser=parser, config=None, datamodule=data, model=SimpleNamespace(policy=None))
    monkeypatch.setattr(phase, "start", lambda *args, **more: cli)
    monkeypatch.setattr(phase, "save_policy", save)
    return made


RUN = {
    "seed_everything": 1,
    "torch_threads": None,
    "warm_start": asdict(WarmStart()),
    "trainer": {"accelerator": "cpu", "precision": None},
    "model": {"policy": {"class_path": "a.Tiny", "init_args": {}}},
    "data": {
        "env": {"class_path": "b.Levers", "init_args": {}},
        "context": {"class_path": "c.Hint", "init_args": {}},
        "program": {"class_path": "d.ConnectTheDots", "init_args": {}},
        "pack_size": 4,
        "max_new_tokens": 8,
    },
}


def ensure():
    folder, env = ensure_warm_start(RUN)
    assert env == "demonstrated"
    return folder


def test_a_policy_is_trained_once(cache, trained):
    assert ensure() == ensure()
    assert len(trained) == 1


def flip(policy):
    content = bytearray((policy / "model.safetensors").read_bytes())
    content[500] ^= 1
    (policy / "model.safetensors").write_bytes(content)


def link(policy):
    away = policy.parent.parent / "elsewhere"
    policy.rename(away)
    policy.symlink_to(away)


def link_weights(policy):
    weights = policy / "model.safetensors"
    weights.rename(policy.parent / "weights")
    weights.symlink_to(policy.parent / "weights")


def replace(policy):
    """By a policy that was made, whole, for another config."""
    noted = policy / "manifest.json"
    noted.write_text(noted.read_text().replace(policy.name, "0123456789abcdef"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip, "model.safetensors in it is not as it was written"),
        (link, "a link"),
        (link_weights, "a link"),
        (replace, "made for something else"),
        (lambda policy: (policy / "extra.py").write_text(""), "extra.py in it is missing, or was added"),
        (lambda policy: (policy / "model.safetensors").unlink(), "model.safetensors in it is missing"),
        (lambda policy: (policy / "manifest.json").unlink(), "manifest.json cannot be read"),
        (lambda policy: (policy / "manifest.json").write_text("[]"), "manifest.json cannot be read"),
        (lambda policy: shutil.rmtree(policy) or policy.mkdir(), "manifest.json cannot be read"),
    ],
)
def test_what_is_damaged_or_foreign_is_made_anew_and_said(cache, trained, capsys, damage, said):
    policy = ensure()
    damage(policy)
    capsys.readouterr()
    assert ensure() == policy
    assert said in capsys.readouterr().err
    assert len(trained) == 2
    assert not policy.is_symlink()
    assert (policy / "model.safetensors").read_bytes() == bytes(1000)
    assert ensure() == policy
    assert len(trained) == 2


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_another_user_s_policy_is_not_trained_on(cache, trained, capsys):
    policy = ensure()
    os.chown(policy / "model.safetensors", 65534, 65534)
    ensure()
    assert "belongs to another user" in capsys.readouterr().err
    assert len(trained) == 2
    os.chown(cache, 65534, 65534)
    with pytest.raises(ConfigError, match="COD_LIGHTNING_CACHE"):
        ensure()


def test_a_cache_that_everyone_can_write_is_refused_and_none_is_made(cache, trained):
    before = os.umask(0)
    try:
        ensure()
    finally:
        os.umask(before)
    assert cache.stat().st_mode & 0o022 == 0
    cache.chmod(0o777)
    with pytest.raises(ConfigError, match="COD_LIGHTNING_CACHE"):
        ensure()


def test_for_a_user_without_a_home_the_error_names_the_variable(trained, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("COD_LIGHTNING_CACHE")
    monkeypatch.setattr("pathlib.Path.home", no_home)
    with pytest.raises(ConfigError, match="COD_LIGHTNING_CACHE is empty; expected a folder"):
        ensure()


def test_what_a_killed_process_left_beside_the_entry_goes(cache, trained):
    policy = ensure()
    shutil.rmtree(policy)
    left = policy.with_name(f"{policy.name}.part")
    left.mkdir()
    (left / "half").touch()
    assert ensure() == policy
    assert not left.exists()
    assert not (policy / "half").exists()


@each("content", [b"print 'x'", b"\0", b"(" * 3000, b"# -*- coding: other -*-", b"\xff\xfe"])
def test_a_file_that_this_python_cannot_read_is_a_source_that_imports_nothing(tmp_path, monkeypatch, content):
    package = tmp_path / "old_and_new"
    package.mkdir()
    for name, text in (
        ("__init__", b""),
        ("world", b"def older():\n    from old_and_new import old"),
        ("old", content),
    ):
        (package / f"{name}.py").write_bytes(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert [path.stem for path in sources(["old_and_new.world"])] == ["__init__", "old", "world"]


def test_files_that_a_config_names_are_known_by_what_they_hold_and_not_by_where_they_lie(tmp_path):
    for name, rows in (("one", "a"), ("moved", "a"), ("edited", "b")):
        (tmp_path / name / "rows").mkdir(parents=True)
        (tmp_path / name / "rows" / "train.jsonl").write_text(rows)
    one, moved, edited = ([*phase._marks({"path": str(tmp_path / name)})] for name in ("one", "moved", "edited"))
    assert one == moved != edited
    assert len(one) == 1
