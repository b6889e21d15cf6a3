"""The smoke training with vLLM as its engine, through the command line. Run by `make vllm`."""

import pytest

from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.engines.vllm_server.process import LocalServers, ServerProcess
from cod_lightning.rollout.transcript import load
from tests.smoke_with_vllm import assert_exact, fit, values

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, cache):
    """The run's folder."""
    folder = tmp_path_factory.mktemp("smoke")
    done = fit(cwd=folder, cache=cache)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "runs" / "smoke"


def test_the_policy_learns_to_connect_the_dots_in_an_epoch(smoke):
    assert max(values(smoke, "val/cod_gain")) >= 0.15
    assert values(smoke, "rollout/num_failed") == [0.0] * 40


def test_drift_is_zero_and_every_log_prob_gap_within_1e_4(smoke):
    assert set(values(smoke, "rollout/token_drift")) == {0.0}
    assert 0 < max(values(smoke, "train/logprob_gap")) <= 1e-4
    largest = max(values(smoke, "engine/self_test_gap"))
    print(
        f"largest self-test gap over 10 syncs: {largest:.1e}; slowest sync: {max(values(smoke, 'time/sync_s')):.3f} s"
    )
    assert 0 < largest <= 1e-4


def test_every_sampled_token_carries_the_version_of_its_rollout(smoke):
    groups = load((smoke / "lifecycles" / "train.jsonl").read_text().splitlines())
    versions = {t.policy_version for g in groups for x in g.lifecycles for e in x.episodes for t in e.turns}
    assert versions
    assert min(versions) >= 1
    for group in groups:
        turns = [turn for x in group.lifecycles for e in x.episodes for turn in e.turns]
        assert len({turn.policy_version for turn in turns}) == 1


@pytest.mark.soak  # of ranks and a server tests/engines/vllm_server/test_engine.py holds each step
def test_two_ranks_share_one_server_and_learn_with_the_tokens_of_both(smoke, tmp_path, cache, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "of a test")
    checkpoint = next(path.parent for path in cache.rglob("model.safetensors"))
    how = LocalServers(max_num_seqs=64, kv_cache_gb=0.25)
    server = ServerProcess(
        how, index=0, model=checkpoint, dtype="float32", window=96, log=tmp_path / "server.log", key="of a test"
    )
    server.start()
    try:
        server.wait(ServerClient(server.url, "of a test", 60.0).healthy)
        few = (
            "--data.rollouts_per_epoch 2 --data.packs_per_rollout 8 --data.val_packs 4 "
            f"--data.group_size 4 --data.engine.init_args.urls [{server.url}] --torch_threads 1"
        )
        ranks = ("--trainer.strategy", "ddp", "--trainer.devices", "2")
        done = fit(*ranks, *few.split(), cwd=tmp_path, cache=cache, engine="VLLMServerEngine")
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr[-3000:]
    assert_exact(tmp_path / "runs" / "smoke")
