"""Policy folders of others: what is damaged, absurd or lacks a weight is refused in one line, and nothing in there is run."""

import io
import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from cod_lightning.errors import CodLightningError, DataError
from cod_lightning.models import PretrainedPolicy
from cod_lightning.models.pretrained import read_model
from cod_lightning.rollout.chat import Chat
from tests.cases import each
from tests.random_checkpoint import saved_checkpoint


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return saved_checkpoint(tmp_path_factory.mktemp("policies") / "whole")


def changed(folder, name="config.json", **values):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def weights(folder, change):
    path = folder / "model.safetensors"
    found = load_file(path)
    change(found)
    save_file(found, path, metadata={"format": "pt"})


def template(folder, text):
    (folder / "chat_template.jinja").write_text(text)


def own_code(folder, model_type):
    (folder / "evil.py").write_text(f"open({str(folder / 'PWNED')!r}, 'w')\nclass C: ...\n")
    changed(folder, auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.C"}, model_type=model_type)


def pickled(folder):
    class Evil:
        def __reduce__(self):
            return open, (str(folder / "PWNED"), "w")

    (folder / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Evil()}, folder / "pytorch_model.bin")


def _begun(policy):
    tokenizer = policy.tokenizer([])
    Chat(tokenizer)
    policy.model(tokenizer)


def an_adapter_beside(folder):
    whole = AutoModelForCausalLM.from_pretrained(folder)
    get_peft_model(whole, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(folder)


REFUSED = {
    "code of its own": (lambda f: own_code(f, "new"), "custom code"),
    "a pickle": (pickled, "Weights only load failed"),
    "a weight of another shape": (
        lambda f: weights(f, lambda w: w.update({"model.norm.weight": torch.ones(7)})),
        "model.policy.path is",
    ),
    "no such weight": (
        lambda f: weights(f, lambda w: w.pop("model.layers.1.mlp.up_proj.weight")),
        "it lacks model.layers.1.mlp.up_proj.weight",
    ),
    "an adapter beside the weights": (an_adapter_beside, "an adapter_config.json lies beside its weights"),
    "a truncated file": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:5000]),
        "incomplete metadata",
    ),
    "an absurd header": (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 8), "header too large"),
    "a negative size": (lambda f: changed(f, hidden_size=-3), "negative dimension"),
    "a size in words": (lambda f: changed(f, hidden_size="many"), "hidden_size"),
    "no heads": (lambda f: changed(f, num_attention_heads=0), "by zero"),
    "positions in words": (lambda f: changed(f, max_position_embeddings="many"), "max_position_embeddings"),
    "a list": (lambda f: (f / "config.json").write_text("[1]"), "mapping"),
    "deep JSON": (lambda f: (f / "config.json").write_text("[" * 100_000), "recursion"),
    "an empty tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "model.policy.path is"),
    "a template without end": (
        lambda f: template(f, "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"),
        "chat template is one that raises; expected one that renders a dialogue (RecursionError",
    ),
    "a template that looks around": (lambda f: template(f, "{{ messages.__class__.__mro__ }}"), "SecurityError"),
    "a huge template": (lambda f: template(f, "{# " + "x" * 2**21 + " #}"), "chat template has 2,097,158 characters"),
}


@each("name", REFUSED)
def test_a_policy_folder_that_cannot_be_used_as_it_is_written_is_refused_in_one_line(name, whole, tmp_path, capsys):
    damage, said = REFUSED[name]
    folder = tmp_path / "policy"
    shutil.copytree(whole, folder)
    damage(folder)
    policy = PretrainedPolicy(str(folder), dtype="float32")
    with pytest.raises(CodLightningError) as refused:
        _begun(policy)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (folder / "PWNED").exists()
    assert "[y/N]" not in capsys.readouterr().out, "a question whether to run foreign code is no refusal"


@each(
    ("model_type", "read"),
    [
        ("new", lambda folder: read_model(folder, "model.scorers.path")),
        ("vit", lambda folder: read_model(folder, "model.scorers.path")),
        ("vit", lambda folder: PretrainedPolicy(folder).skeleton()),
    ],
)
def test_a_folder_runs_no_code_of_its_own_whatever_is_answered(whole, tmp_path, monkeypatch, capsys, model_type, read):
    folder = tmp_path / "policy"
    shutil.copytree(whole, folder)
    own_code(folder, model_type)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    with pytest.raises(DataError, match="custom code"):
        read(str(folder))
    assert not (folder / "PWNED").exists()
    assert "[y/N]" not in capsys.readouterr().out
