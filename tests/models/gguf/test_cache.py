"""A GGUF file is read once, whatever it is called by, and its folder in the cache is whole or not there."""

import json
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cod_lightning import extras
from cod_lightning.adapters import ADAPTER
from cod_lightning.commands import phase
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models import LoRAPolicy, PretrainedPolicy, QLoRAPolicy
from cod_lightning.models.gguf import cache
from cod_lightning.models.gguf.cache import checkpoint_folder
from cod_lightning.training.scorers import CheckpointScorer
from tests.tiny_gguf import tiny_file, tiny_model

pytest.importorskip("gguf", reason="gguf is not installed")
KEY = "model.policy.path"


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A cache of its own, and no memory of others."""
    monkeypatch.setenv("COD_LIGHTNING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_found", {})
    return tmp_path / "cache" / "gguf"


@pytest.fixture
def made(monkeypatch):
    """The folders that were made."""
    folders = []
    make = cache._make
    monkeypatch.setattr(cache, "_make", lambda *arguments: folders.append(arguments[-1]) or make(*arguments))
    return folders


def restarted(monkeypatch):
    monkeypatch.setattr(cache, "_found", {})


def test_a_file_its_folder_and_its_package_are_one_checkpoint_that_is_made_once(kept, made, monkeypatch, tmp_path):
    package = tmp_path / "site" / "tiny_weights"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('a package is found, not run')")
    file = tiny_file(package / "data" / "tiny.gguf")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    names = (str(file), str(file.parent), "site/tiny_weights/data", "tiny_weights", "tiny-weights")
    folders = {checkpoint_folder(name, KEY) for name in names}
    restarted(monkeypatch)
    folders.add(checkpoint_folder("tiny_weights", KEY))
    assert len(folders) == len(made) == 1
    marks = [list(phase._marks({"path": name})) for name in (str(file), "tiny_weights")]
    assert marks[0] == marks[1] != []  # another release of the package is another warm start
    assert "tiny_weights" not in sys.modules


def test_another_content_under_the_same_name_is_another_checkpoint(kept, tmp_path):
    file = tiny_file(tmp_path / "tiny.gguf")
    first = checkpoint_folder(str(file), KEY)
    facts = file.stat()
    tiny_file(file, **{"general.name": "other"})
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert checkpoint_folder(str(file), KEY) != first


def test_a_file_that_other_code_read_is_read_again(kept, monkeypatch, tmp_path):
    file = tiny_file(tmp_path / "tiny.gguf")
    first = checkpoint_folder(str(file), KEY)
    shutil.copytree(Path(cache.__file__).parent, tmp_path / "gguf")
    with (tmp_path / "gguf" / "tokenizer.py").open("a") as code:
        code.write("# a rule more\n")
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "gguf" / "cache.py"))
    assert checkpoint_folder(str(file), KEY) != first


def test_what_breaks_off_leaves_nothing_and_a_full_disk_is_named(kept, monkeypatch, tmp_path):
    file = str(tiny_file(tmp_path / "tiny.gguf"))
    tensor = cache.as_trained

    def full(values, name, config):
        if name == "blk.1.ffn_up.weight":
            raise OSError(28, "No space left on device")
        return tensor(values, name, config)

    monkeypatch.setattr(cache, "as_trained", full)
    with pytest.raises(ConfigError, match=r"COD_LIGHTNING_CACHE is .*gguf; expected .*No space left on device"):
        checkpoint_folder(file, KEY)
    assert [one.name for one in kept.iterdir() if one.is_dir()] == []
    monkeypatch.setattr(cache, "as_trained", tensor)
    folder = Path(checkpoint_folder(file, KEY))
    shutil.rmtree(folder)
    folder.with_name(f"{folder.name}.part").mkdir()  # as a process that is killed leaves it
    restarted(monkeypatch)
    assert checkpoint_folder(file, KEY) == str(folder)
    assert [one for one in kept.iterdir() if one.is_dir()] == [folder]


def test_what_makes_no_checkpoint_is_named_before_anything_is_loaded(kept, monkeypatch, tmp_path):
    folder = tmp_path / "several"
    folder.mkdir()
    file = tiny_file(folder / "a.gguf")
    shutil.copy(file, folder / "b.gguf")
    with pytest.raises(ConfigError, match=r"is .*several; expected one GGUF file in it, and there are 2: a.gguf, b"):
        checkpoint_folder(str(folder), KEY)
    with pytest.raises(ConfigError, match=r"nowhere.gguf; expected a GGUF file, and there is none of this name"):
        checkpoint_folder(str(tmp_path / "nowhere.gguf"), KEY)
    with pytest.raises(DataError, match=r"model.policy.path is no_such_weights"):
        PretrainedPolicy("no_such_weights").tokenizer([])
    (folder / "c.gguf").write_text("a text")
    with pytest.raises(ConfigError, match=r"c.gguf; expected a file that begins with the letters GGUF"):
        checkpoint_folder(str(folder / "c.gguf"), KEY)

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "version", missing)
    with pytest.raises(ConfigError, match=r"gguf in this environment, which has none. Do pip install 'gguf>="):
        checkpoint_folder(str(file), KEY)


def test_without_a_name_no_file_in_the_current_folder_is_taken(monkeypatch, tmp_path):
    tiny_file(tmp_path / "tiny.gguf")
    monkeypatch.chdir(tmp_path)
    assert checkpoint_folder("", KEY) == ""


def test_a_folder_in_hugging_face_form_stays_one_whatever_lies_beside(tmp_path):
    tiny_file(tmp_path / "tiny.gguf")
    (tmp_path / "config.json").write_text("{}")
    assert checkpoint_folder(str(tmp_path), KEY) == str(tmp_path)
    assert checkpoint_folder("Qwen/Qwen3-8B", KEY) == "Qwen/Qwen3-8B"


def test_the_folder_has_what_transformers_and_engines_ask_for(tmp_path):
    folder = checkpoint_folder(str(tiny_file(tmp_path / "tiny.gguf")), KEY)
    config = json.loads((Path(folder) / "config.json").read_text())
    assert (config["architectures"], config["dtype"]) == (["LlamaForCausalLM"], "float32")
    assert "quantization_config" not in config
    generation = json.loads((Path(folder) / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["pad_token_id"]) == ([2], 2)
    weights = load_file(f"{folder}/model.safetensors")
    right = {name: weight for name, weight in tiny_model().state_dict().items() if name != "lm_head.weight"}
    assert weights.keys() == right.keys()
    assert all(torch.equal(weights[name], weight) for name, weight in right.items())


def test_adapters_and_teachers_take_a_file_too(tmp_path):
    file = str(tiny_file(tmp_path / "tiny.gguf"))
    folder = checkpoint_folder(file, KEY)
    policies = [kind(path, dtype="float32", rank=4) for kind in (LoRAPolicy, QLoRAPolicy) for path in (file, folder)]
    models = [policy.model(policy.tokenizer([])) for policy in policies]
    digests = [policy.base.digest for policy in policies if policy.base]
    assert digests[0] == digests[1]
    assert digests[2] == digests[3]
    assert models[0].peft_config[ADAPTER].base_model_name_or_path == folder  # pyright: ignore
    teacher = CheckpointScorer(file)
    teacher.check("model.scorers.teacher", policies[0].tokenizer([]).get_vocab())
    assert teacher.num_weight_bytes() > 0
