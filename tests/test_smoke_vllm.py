"""The smoke training with vLLM as its engine, through the command line. Run by `make vllm`."""

import re
import socket

import pytest

from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.engines.vllm_server.process import LocalServers, ServerProcess
from cod_lightning.rollout.transcript import load
from tests.command_line import cod, rows

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
SHORT = ("--trainer.max_epochs", "2", "--data.suites", "null")


def fit(*arguments, cwd, cache, engine="VLLMEngine"):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VLLM_LOGGING_LEVEL", raising=False)  # an engine within this process has set it
        line = ("fit", "--config", "smoke", f"engine={engine}", *SHORT, *arguments)
        return cod(*line, cwd=cwd, cache=cache, fresh=True, timeout=550)


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


def values(run, key):
    return [float(row[key]) for row in rows(run) if row.get(key)]


def assert_exact(run):
    assert set(values(run, "rollout/num_failed")) == set(values(run, "rollout/token_drift")) == {0.0}
    for key in ("train/max_logprob_gap", "engine/self_test_gap"):
        assert 0 < max(values(run, key)) <= 1e-4


def test_the_policy_learns_to_connect_the_dots_in_two_epochs(smoke):
    assert max(values(smoke, "val/cod_gain")) >= 0.2
    assert values(smoke, "rollout/num_failed") == [0.0] * 80


def test_drift_is_zero_and_every_log_prob_gap_within_1e_4(smoke):
    assert set(values(smoke, "rollout/token_drift")) == {0.0}
    assert 0 < max(values(smoke, "train/logprob_gap")) <= 1e-4
    largest = max(values(smoke, "engine/self_test_gap"))
    print(
        f"largest self-test gap over 20 syncs: {largest:.1e}; slowest sync: {max(values(smoke, 'time/sync_s')):.3f} s"
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


def test_a_gap_beyond_the_tolerance_stops_the_run_with_one_line(tmp_path, cache):
    strict = '[{"class_path": "cod_lightning.callbacks.WeightSync", "init_args": {"self_test": {"tolerance": 1e-12}}}]'
    done = fit("--trainer.callbacks", strict, cwd=tmp_path, cache=cache)
    assert done.returncode == 1
    assert (
        "error: EngineMismatch: after sync 1 VLLMEngine does not sample from the policy that is trained" in done.stderr
    )


def test_a_server_in_a_process_of_its_own_serves_whole_steps_and_goes_with_the_run(tmp_path, cache):
    few = ("--trainer.max_epochs", "1", "--data.rollouts_per_epoch", "2", "--data.packs_per_rollout", "4")
    weights = tmp_path / "weights"
    few += ("--data.val_packs", "8", "--data.engine.init_args.weights_folder", str(weights))
    done = fit(*few, cwd=tmp_path, cache=cache, engine="VLLMServerEngine")
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "runs" / "smoke"
    assert_exact(run)
    log = (run / "vllm_server_0.log").read_text()
    port = re.search(r"'port': (\d+)", log)
    assert port is not None
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(port[1])), timeout=1)
    assert not list(weights.iterdir())


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
            "--trainer.max_epochs 1 --data.rollouts_per_epoch 2 --data.packs_per_rollout 8 --data.val_packs 4 "
            f"--data.group_size 4 --data.engine.init_args.urls [{server.url}] --torch_threads 1"
        )
        ranks = ("--trainer.strategy", "ddp", "--trainer.devices", "2")
        done = fit(*ranks, *few.split(), cwd=tmp_path, cache=cache, engine="VLLMServerEngine")
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr[-3000:]
    assert_exact(tmp_path / "runs" / "smoke")
