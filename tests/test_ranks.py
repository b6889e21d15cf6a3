"""The command line on two ranks: runs resume exactly, their checkpoints are read in one process, evaluations are the same."""

import json
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.cli import main
from tests.command_line import by_strategy
from tests.forked import on_ranks
from tests.forked_fit import assert_alike, metrics, with_a_teacher
from tests.ranks import SMALL, STOPPED_AT, exported, run, weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:.*load in a single process.*"),
]
SUITE = (
    '[{"name": "held_out", "num_packs": 7, "reference_packs": 5, "controls": ["shuffled_context", "random", "oracle"]}]'
)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """Arguments for the distance from a policy that another run exported."""
    return with_a_teacher(exported(tmp_path_factory.mktemp("teacher")))


@pytest.fixture(scope="module")
def one(teacher, tmp_path_factory):
    """A run on one rank, with its evaluation."""
    folder = tmp_path_factory.mktemp("one") / "run"
    run(folder, None, "--data.suites", SUITE, *teacher)
    return folder


@pytest.fixture(scope="module", params=["ddp", "fsdp2"])
def two(request, teacher, tmp_path_factory):
    """The same run on two."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    run(folder, request.param, "--data.suites", SUITE, *teacher)
    return request.param, folder


def test_two_ranks_log_what_one_does(one, two):
    for teacher_of in ("teacher", "privileged"):
        assert any(float(row[f"train/divergence_{teacher_of}"] or 0) > 0 for row in metrics(one))
    assert_alike(metrics(one), metrics(two[1]))


def test_two_ranks_evaluate_as_one_does(one, two):
    ours, theirs = (json.loads((folder / "evaluation.json").read_text())["suites"] for folder in (one, two[1]))
    assert ours == theirs


def turns(folder, name):
    """Action ids of every training turn, by step, pack, sibling, episode and number."""
    found = {}
    for line in (folder / "lifecycles" / name).read_text().splitlines():
        record = json.loads(line)
        for e, episode in enumerate(record["episodes"]):
            for t, turn in enumerate(episode["turns"]):
                found[record["step"], record["pack"]["id"], record["sibling"], e, t] = turn["action_ids"]
    return found


def test_two_ranks_sample_from_the_same_packs_what_one_does(one, two):
    ours = turns(one, "train.jsonl")
    shares = [turns(two[1], name) for name in ("train.jsonl", "train.rank1.jsonl")]
    packs = [{key[:2] for key in share} for share in shares]
    assert not packs[0] & packs[1]
    assert packs[0] | packs[1] == {key[:2] for key in ours}
    theirs = shares[0] | shares[1]
    differ = sum(theirs.get(key) != ids for key, ids in ours.items())
    print(f"{two[0]}: {differ} of {len(ours)} turns differ")
    assert differ <= 0.02 * len(ours)  # float noise may turn a token, and with it the rest of a lifecycle


def test_what_all_ranks_held_out_is_in_one_file_and_what_they_trained_on_in_one_for_each(two):
    names = {path.name for path in (two[1] / "lifecycles").glob("*.jsonl")}
    assert {name for name in names if ".rank" in name} == {"train.rank1.jsonl", "train_logprobs.rank1.jsonl"}
    lines = (two[1] / "lifecycles" / "validation.jsonl").read_text().splitlines()
    assert len(lines) == 3


SHARDED = pytest.mark.parametrize("two", ["fsdp2"], indirect=True)
"""DDP's checkpoint is that of one rank; tests/test_killed_with.py goes on from it on two."""


@SHARDED
def test_stopped_in_the_middle_of_a_rollout_it_goes_on_bit_for_bit(two, teacher, tmp_path):
    strategy, whole = two
    folder = tmp_path / "run"
    run(folder, strategy, "--data.suites", "null", *teacher, killed=True)
    assert read_checkpoint(folder / "checkpoints" / "last.ckpt").global_step == STOPPED_AT
    run(folder, strategy, "--data.suites", "null", *teacher, "--ckpt_path", "last")
    assert metrics(folder) == metrics(whole)
    ours, theirs = weights(folder), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_warm_start_on_two_ranks_is_that_of_one(tmp_path):
    def warm(ranks, strategy):
        argv = ["warm_start", "--config", "smoke", "--torch_threads", "1", "--warm_start.num_updates", "6"]
        argv += ["--warm_start.warmup_updates", "2", "--trainer.default_root_dir", str(tmp_path / f"{strategy}{ranks}")]
        if ranks > 1:  # three packs an update: one rank has two of them, the other one
            argv += ["--trainer.devices", str(ranks), *by_strategy(strategy)]
        return main(argv)

    assert on_ranks(1, partial(warm, 1, "alone"), tmp_path / "out1") == [0]
    expected = load_file(tmp_path / "alone1" / "policy" / "model.safetensors")
    for strategy in ("ddp", "fsdp2"):
        assert on_ranks(2, partial(warm, 2, strategy), tmp_path / strategy) == [0, 0]
        found = load_file(tmp_path / f"{strategy}2" / "policy" / "model.safetensors")
        for name, weight in expected.items():
            torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-4)


@SHARDED
def test_its_checkpoint_is_tested_and_exported_in_one_process(two, tmp_path):
    checkpoint = str(two[1] / "checkpoints" / "last.ckpt")

    def read():
        test = ["test", *SMALL, "--data.suites", SUITE, "--trainer.default_root_dir", str(tmp_path / "tested")]
        code = main([*test, "--ckpt_path", checkpoint])
        return code or main(["export", "--ckpt_path", checkpoint, "--out", str(tmp_path / "exported")])

    assert on_ranks(1, read, tmp_path / "out") == [0]
    tested, fitted = (
        json.loads((f / "evaluation.json").read_text())["suites"]["held_out"] for f in (tmp_path / "tested", two[1])
    )
    assert tested["positions"] == fitted["positions"]
    assert tested["controls"] == fitted["controls"]
    assert (tmp_path / "exported" / "model.safetensors").is_file()
