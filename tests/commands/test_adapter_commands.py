"""An adapter through the command line: planned, trained, tested, deployed, written out merged and alone."""

import contextlib
import io

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from cod_lightning.cli import main
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.results import read_results

pytestmark = pytest.mark.slow
SMALL = (
    *("--config", "experiment/qlora_smoke", "--warm_start", "null", "--torch_threads", "1"),
    *("--data.rollouts_per_epoch", "1", "--data.packs_per_rollout", "4", "--data.group_size", "2"),
    *("--data.val_packs", "4", "--trainer.max_epochs", "1"),
)


BASE_WORDS = (
    beside(Levers(protocol="compact"), Vocabulary).words() + beside(HintContext(protocol="compact"), Words).words()
)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    """The folder of a run, with what it printed in `said.txt`."""
    root = tmp_path_factory.mktemp("run") / "run"
    suites = '[{"name": "held_out", "num_packs": 4}]'
    arguments = ("--trainer.default_root_dir", str(root), "--model.policy.path", str(base), "--data.suites", suites)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(["fit", *SMALL, *arguments]) == 0
    (root / "said.txt").write_text(said.getvalue())
    return root


def checkpoint(trained):
    return str(trained / "checkpoints" / "last.ckpt")


def test_a_tested_checkpoint_has_the_figures_of_the_runs_end(trained, capsys):
    before = read_results(trained / "evaluation.json")["suites"]["held_out"]["positions"]
    assert main(["test", "--config", str(trained / "config.yaml"), "--ckpt_path", checkpoint(trained)]) == 0
    assert read_results(trained / "evaluation.json")["suites"]["held_out"]["positions"] == before


@pytest.mark.filterwarnings("ignore:.*merged.*")
def test_an_adapter_is_written_merged_and_says_so_or_alone(trained, base, tmp_path, capsys):
    argv = ["export", "--ckpt_path", checkpoint(trained)]
    assert main([*argv, "--out", str(tmp_path / "merged")]) == 0
    assert "the adapter merged into its 4-bit base, dequantised, in bfloat16" in capsys.readouterr().out
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert plain.dtype == torch.bfloat16
    assert "quantization_config" not in plain.config.to_dict()
    assert main([*argv, "--out", str(tmp_path / "alone"), "--adapter", "true"]) == 0
    names = {path.name for path in (tmp_path / "alone").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= names
    assert "model.safetensors" not in names
    kept = torch.load(checkpoint(trained), weights_only=True)["state_dict"]
    written = load_file(tmp_path / "alone" / "adapter_model.safetensors")
    for name, weight in kept.items():
        own = name.removeprefix("model.").replace(".default.", ".")
        assert torch.equal(written[f"base_model.model.{own}"], weight), name
    assert any(weight.any() for name, weight in kept.items() if "lora_B" in name)
    with torch.no_grad():
        model, ids = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), torch.tensor([[7, 8, 9]])
        before = model(ids).logits
        assert not torch.equal(before, PeftModel.from_pretrained(model, tmp_path / "alone")(ids).logits)


def test_the_adapter_of_a_checkpoint_lives_on(trained, tmp_path, capsys):
    argv = ["deploy", "--ckpt_path", checkpoint(trained), "--state", str(tmp_path / "state"), "--num_tasks", "2"]
    assert main(argv) == 0
    assert "task 1" in capsys.readouterr().out


def test_an_adapter_is_asked_of_a_policy_that_has_none(trained, tmp_path, capsys):
    argv = ["export", "--ckpt_path", checkpoint(trained), "--config", "smoke", "--out", str(tmp_path / "x")]
    assert main([*argv, "--adapter", "true", "--warm_start", "null", "--accept_changes", "true"]) == 2
    assert "--adapter is true; expected false" in capsys.readouterr().err
