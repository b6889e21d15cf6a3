"""An adapter on two ranks that share out its base (FSDP2), by the command line: trained, resumed, evaluated, written out."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.cli import main
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.levers import Levers
from tests import ranks
from tests.forked import on_ranks
from tests.forked_fit import metrics
from tests.ranks import STOPPED_AT, weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*load in a single process.*", "ignore:.*merged.*"),
]
SMALL = (
    "--config experiment/qlora_smoke --warm_start null --torch_threads 1 --model.optimizer adamw --data.updates_per_rollout 2 "
    "--data.rollouts_per_epoch 2 --data.packs_per_rollout 4 --data.group_size 4 --data.val_packs 4 --trainer.max_epochs 1"
)
SUITES = ("--data.suites", '[{"name": "held_out", "num_packs": 4}]')
LORA = "model.policy=LoRAPolicy --model.policy.dtype float32 --model.policy.rank 8 --model.policy.alpha 16"
KINDS = {"lora": LORA, "qlora": ""}


BASE_WORDS = (
    beside(Levers(protocol="compact"), Vocabulary).words() + beside(HintContext(protocol="compact"), Words).words()
)


def run(folder, kind, base, *more, **killed):
    """The run on two ranks."""
    policy = (*KINDS[kind].split(), "--model.policy.path", str(base), "--model.policy.window", "96")
    ranks.run(folder, "fsdp2", *SUITES, *policy, *more, small=SMALL.split(), **killed)
    return folder


@pytest.fixture(scope="module", params=["lora", pytest.param("qlora", marks=pytest.mark.soak)])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def sharded(kind, base, tmp_path_factory):
    return run(tmp_path_factory.mktemp(kind) / "fsdp2", kind, base)


def test_its_checkpoint_has_a_file_of_each_rank_and_of_the_adapter_alone(sharded, base):
    checkpoint = sharded / "checkpoints" / "last.ckpt"
    shards = sorted(path.name for path in checkpoint.glob("*.distcp"))
    assert [name[:3] for name in shards] == ["__0", "__1"]
    weights = read_checkpoint(checkpoint).weights()
    assert all("lora_" in name for name in weights)
    assert any(weight.abs().max() > 1e-3 for name, weight in weights.items() if "lora_B" in name), "trained"


def test_it_goes_on_from_the_middle_of_a_rollout_bit_for_bit(kind, sharded, base, tmp_path):
    folder = run(tmp_path / "run", kind, base, killed=True)
    assert read_checkpoint(folder / "checkpoints" / "last.ckpt").global_step == STOPPED_AT
    run(folder, kind, base, "--ckpt_path", "last")
    assert metrics(folder) == metrics(sharded)
    ours, theirs = weights(folder), weights(sharded)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_one_process_tests_it_and_writes_it_out_alone_and_merged(sharded, base, tmp_path):
    checkpoint = str(sharded / "checkpoints" / "last.ckpt")

    def read():
        config = ["--config", str(sharded / "config.yaml"), "--trainer.strategy", "auto", "--trainer.devices", "1"]
        code = main(
            ["test", *config, "--ckpt_path", checkpoint, "--trainer.default_root_dir", str(tmp_path / "tested")]
        )
        for name, more in {"merged": (), "alone": ("--adapter", "true")}.items():
            code |= main(["export", "--ckpt_path", checkpoint, "--out", str(tmp_path / name), *more])
        return code

    assert on_ranks(1, read, tmp_path / "out") == [0]
    tested, fitted = (
        json.loads((f / "evaluation.json").read_text())["suites"]["held_out"] for f in (tmp_path / "tested", sharded)
    )
    assert tested["positions"] == fitted["positions"]
    kept = read_checkpoint(checkpoint).weights()
    written = load_file(tmp_path / "alone" / "adapter_model.safetensors")
    for name, weight in kept.items():
        assert torch.equal(written[f"base_model.model.{name.replace('.default.', '.')}"], weight), name
    before, after = (AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32) for f in (base, tmp_path / "merged"))
    ids = torch.tensor([[7, 8, 9]])
    assert not torch.equal(before(ids).logits, after(ids).logits)
