"""`export`: a checkpoint becomes a Hugging Face folder."""

import contextlib
import io
import os
import re
import shutil
import stat

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from cod_lightning.checkpoints.checkpoint import seal
from cod_lightning.cli import main
from cod_lightning.files import scratch_prefix
from cod_lightning.models import PretrainedPolicy, TinyPolicy
from tests.checkpoints.test_checkpoint import sharded

pytestmark = pytest.mark.slow

SIZES = ["--data.packs_per_rollout", "4", "--data.updates_per_rollout", "1", "--data.group_size", "2"]
FIT = ["fit", "--config", "smoke", "--warm_start", "null", "--torch_threads", "1", "--trainer.max_epochs", "1", *SIZES]
SHORT = ["--data.rollouts_per_epoch", "1", "--data.val_packs", "4", "--data.suites", "null", "--model.lr", "0.01"]
SENTENCE = "<system> levers <user> want=blue <assistant>"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of one update."""
    root = tmp_path_factory.mktemp("runs") / "tiny"
    assert main([*FIT, *SHORT, "--trainer.default_root_dir", str(root)]) == 0
    return root


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "policies" / "ours"


def export(run, out, *more):
    return main(["export", "--ckpt_path", str(run / "checkpoints" / "last.ckpt"), "--out", str(out), *more])


def kept_model(run):
    """The checkpoint's model, put together by hand."""
    content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    config = yaml.safe_load((run / "config.yaml").read_text())["model"]["policy"]["init_args"]
    policy = TinyPolicy(**config)
    words = [f"w{i}" for i in range(len(content["model.model.embed_tokens.weight"]) - 6)]
    model = policy.model(policy.tokenizer(words))
    model.load_state_dict({name.removeprefix("model."): value for name, value in content.items()})
    return model.eval()


@torch.no_grad()
def test_the_folder_gives_the_same_logits_as_the_checkpoint_by_every_way_of_loading_it(run, out):
    assert export(run, out) == 0
    tokenizer, expected = AutoTokenizer.from_pretrained(out), kept_model(run)
    ids = torch.tensor([tokenizer(SENTENCE)["input_ids"]])
    assert tokenizer.unk_token_id not in ids
    logits = expected(ids).logits
    assert logits.std() > 0.01
    for loaded in (
        AutoModelForCausalLM.from_pretrained(out),
        TinyPolicy(weights=str(out)).model(tokenizer),
        PretrainedPolicy(str(out), dtype="float32").model(PretrainedPolicy(str(out)).tokenizer(())),
    ):
        assert torch.equal(loaded.eval()(ids).logits, logits)


def test_tokenizer_template_and_sampling_are_those_of_the_run(run, out):
    assert export(run, out) == 0
    tokenizer, generation = AutoTokenizer.from_pretrained(out), GenerationConfig.from_pretrained(out)
    messages = [{"role": "system", "content": "levers"}, {"role": "user", "content": "want=blue"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == SENTENCE
    assert generation.eos_token_id == [tokenizer.eos_token_id]
    assert (generation.do_sample, generation.temperature, generation.top_p, generation.top_k) == (True, 1.0, 1.0, 0)
    assert generation.max_new_tokens == 8
    assert {path.suffix for path in out.iterdir()} == {".safetensors", ".json", ".jinja", ".md", ".yaml"}
    assert all(path.stat().st_mode & stat.S_IRGRP for path in out.iterdir())


def test_the_cards_program_runs_and_its_card_says_that_nothing_was_measured(run, out, monkeypatch):
    assert export(run, out) == 0
    card = (out / "README.md").read_text()
    assert "**It was not evaluated**" in card
    assert "1 updates" in card
    (program,) = re.findall(r"```python\n(.*?)```", card, flags=re.S)
    monkeypatch.chdir(out)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {})
    assert printed.getvalue().strip()


def test_the_card_tells_how_the_checkpoint_was_trained_whatever_config_it_is_exported_with(run, out):
    other = ["--config", str(run / "config.yaml"), "--model.lr", "0.5", "--model.reweight", "null"]
    checkpoint = str(run / "checkpoints" / "last.ckpt")
    assert main(["export", *other, "--ckpt_path", checkpoint, "--out", str(out)]) == 0
    theirs = (out / "README.md").read_text()
    shutil.rmtree(out)
    assert export(run, out) == 0
    assert theirs == (out / "README.md").read_text()
    assert "  lr: 0.01\n" in theirs


def test_the_cards_commands_take_the_folder(run, out, capsys):
    assert export(run, out) == 0
    (block,) = re.findall(r"```bash\n(.*?)```", (out / "README.md").read_text(), flags=re.S)
    commands = [line.partition("#")[0].split()[3:] for line in block.splitlines()]
    assert [command[0] for command in commands] == ["test", "deploy", "deploy"]
    for command in commands[1:]:
        arguments = [str(out) + word.removeprefix("DIR") if word.startswith("DIR") else word for word in command]
        assert main([*arguments, "--num_tasks", "1"]) == 0
        assert "tasks in all: 1" in capsys.readouterr().out
        shutil.rmtree("agents")


def test_a_checkpoint_whose_config_is_none_is_refused_in_one_line(run, out, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "copy")
    file = tmp_path / "copy" / "checkpoints" / "last.ckpt"
    content = torch.load(file, weights_only=False)
    content["run_config"]["config"]["data"]["engine"] = "none"
    torch.save(content, file)
    assert export(tmp_path / "copy", out) == 2
    assert "a checkpoint of which a card can be written" in capsys.readouterr().err
    assert not out.exists()


def test_folders_of_this_machine_are_not_in_the_export_and_what_is_to_be_typed_can_be(run, out, capsys):
    out = out.with_name("our own")
    assert export(run, out) == 0
    assert f"hf upload OWNER/NAME '{out}' --private" in capsys.readouterr().err
    assert str(run.parent) not in (out / "run_config.yaml").read_text() + (out / "README.md").read_text()
    config = yaml.safe_load((out / "run_config.yaml").read_text())
    assert config["trainer"]["max_epochs"] == 1
    assert "warm_start" not in config


def test_what_another_export_has_put_there_meanwhile_is_kept(run, out, capsys, monkeypatch):
    def another(facts):
        out.mkdir()
        (out / "README.md").write_text("theirs")
        return ""

    monkeypatch.setattr("cod_lightning.commands.export.card.render", another)
    assert export(run, out) == 1
    assert "Directory not empty" in capsys.readouterr().err
    assert [path.name for path in out.parent.rglob("*")] == ["ours", "README.md"]


def test_a_folder_with_something_in_it_is_kept(run, out, capsys):
    out.mkdir(parents=True)
    (out / "thesis.txt").write_text("years")
    assert export(run, out) == 2
    assert "expected a new or empty folder" in capsys.readouterr().err
    assert export(run, out / "thesis.txt" / "model") == 2
    assert f"--out is {out / 'thesis.txt'}; expected a folder." in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    (out / "thesis.txt").unlink()
    assert export(run, out) == 0
    assert export(run, out) == 2
    assert os.listdir(out.parent) == ["ours"]


def test_the_run_s_folder_need_not_be_one_that_can_be_written(run, out, monkeypatch):
    monkeypatch.setattr("cod_lightning.commands.lightning_cli.check_folder", lambda *_: pytest.fail("it is not"))
    assert export(run, out) == 0


def test_an_export_that_fails_or_was_killed_leaves_nothing_behind(run, out, capsys):
    (out.parent / f"{scratch_prefix('export').rsplit('-', 2)[0]}-99999999-killed" / "policy").mkdir(parents=True)
    assert export(run, out, "--accept_changes", "true", "--model.policy.hidden_size", "32") == 2
    assert "does not fit the model" in capsys.readouterr().err
    assert os.listdir(out.parent) == []


@pytest.mark.filterwarnings("ignore")
def test_a_sharded_checkpoint_is_put_together(run, out, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / "checkpoints" / "last.ckpt").unlink()
    seal(sharded(tmp_path / "copy" / "checkpoints" / "last.ckpt", kept_model(run)), {})
    assert export(tmp_path / "copy", out) == 0
    exported = AutoModelForCausalLM.from_pretrained(out).state_dict()
    assert all(torch.equal(exported[name], value) for name, value in kept_model(run).state_dict().items())


def test_a_run_on_gpus_is_exported_without_any(run, out, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    config = tmp_path / "copy" / "config.yaml"
    content = yaml.safe_load(config.read_text())
    content["trainer"] |= {"accelerator": "gpu", "devices": 8, "strategy": "ddp", "precision": "bf16-true"}
    content["overwrite"] = True  # `fit`'s own permission
    config.write_text(yaml.safe_dump(content))
    assert export(tmp_path / "copy", out) == 0
    assert yaml.safe_load((out / "run_config.yaml").read_text())["trainer"]["strategy"] == "ddp"
    assert export(tmp_path / "copy", out) == 2


def test_a_checkpoint_in_no_run_s_folder_needs_a_config(run, out, tmp_path, capsys):
    shutil.copy(run / "checkpoints" / "last.ckpt", tmp_path / "alone.ckpt")
    for typed in (["--ckpt_path", "alone.ckpt"], ["ckpt_path=alone.ckpt"]):
        assert main(["export", *typed, "--out", str(out)]) == 2
        assert "--config is missing; expected the config of the run" in capsys.readouterr().err
    alone = ["export", "--config", str(run / "config.yaml"), "--ckpt_path", "alone.ckpt", "--out", str(out)]
    assert main(alone) == 0
    assert "alone.ckpt, 1 updates" in (out / "README.md").read_text()
