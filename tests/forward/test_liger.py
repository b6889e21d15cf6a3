"""Fused kernels: refused where they cannot run, and asked for with what is needed; against the package itself on a GPU."""

import copy
import sys
from importlib import metadata
from types import ModuleType

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3 import modeling_qwen3

from cod_lightning.cli import main
from cod_lightning.errors import ConfigError
from cod_lightning.forward.liger import check_liger, use_liger
from cod_lightning.models import PretrainedPolicy
from tests.forward.small import SMALL


@pytest.fixture
def asked(monkeypatch):
    """What a stand-in for the package was asked for, on a machine that seems to have a GPU."""
    asked, package, patches = [], ModuleType("liger_kernel.transformers"), ModuleType("monkey_patch")

    def apply(model, **options):
        asked.append((model, options))
        modeling_qwen3.Qwen3RMSNorm = type("LigerRMSNorm", (), {})
        for layer in model.base_model.layers:
            layer.mlp.forward = lambda hidden: hidden

    package._apply_liger_kernel_to_instance = apply
    patches.MODEL_TYPE_TO_APPLY_LIGER_FN = {"qwen3": None}
    modules = {"": ModuleType("liger_kernel"), ".transformers": package, ".transformers.monkey_patch": patches}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"liger_kernel{name}", module)
    monkeypatch.setattr("cod_lightning.extras.version", lambda package: "0.8.5")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return asked


def test_the_layers_of_this_model_are_patched_and_no_others_and_no_loss_is(asked):
    model, other = Qwen3ForCausalLM(Qwen3Config(**SMALL)), Qwen3ForCausalLM(Qwen3Config(**SMALL))
    norm = modeling_qwen3.Qwen3RMSNorm
    use_liger(model)
    assert asked == [(model, {"rope": False, "cross_entropy": False, "fused_linear_cross_entropy": False})]
    assert modeling_qwen3.Qwen3RMSNorm is norm
    assert "forward" in vars(model.model.layers[0].mlp)
    assert "forward" not in vars(other.model.layers[0].mlp)


def test_an_architecture_without_kernels_is_refused_by_name(asked):
    check_liger("qwen3")
    check_liger(None)
    with pytest.raises(ConfigError, match=r"model\.policy\.kernels is liger; .* none for the architecture gpt2"):
        check_liger("gpt2")


def test_a_machine_without_a_gpu_or_without_the_package_is_refused(monkeypatch):
    if not torch.cuda.is_available():
        with pytest.raises(
            ConfigError, match=r"model\.policy\.kernels is liger; expected null, .* this process has none"
        ):
            PretrainedPolicy("", kernels="liger").check_machine()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        "cod_lightning.extras.version", lambda package: (_ for _ in ()).throw(metadata.PackageNotFoundError)
    )
    with pytest.raises(ConfigError, match=r"pip install 'liger-kernel>="):
        check_liger("qwen3")


@pytest.mark.gpu
def test_log_probs_and_gradients_are_those_of_torch_on_a_gpu():
    pytest.importorskip("liger_kernel")
    torch.manual_seed(0)
    plain = Qwen3ForCausalLM(Qwen3Config(**SMALL)).cuda()
    fused = copy.deepcopy(plain)
    use_liger(fused)
    ids = torch.randint(SMALL["vocab_size"], (3, 17), device="cuda")
    found = []
    for model in (plain, fused):
        logprobs = torch.log_softmax(model(ids).logits, dim=-1)
        logprobs[..., 1].sum().backward()
        found.append((logprobs.detach(), [weight.grad for weight in model.parameters()]))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-4)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(one.abs().max()))


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has them")
def test_a_run_on_the_cpu_is_refused_before_its_warm_start(tmp_path, capsys):
    more = ("--model.policy.kernels", "liger", "--trainer.default_root_dir", str(tmp_path))
    assert main(["fit", "--config", "experiment/qlora_smoke", *more]) == 2
    said = capsys.readouterr().err
    assert "model.policy.kernels is liger" in said
    assert "warm start" not in said
