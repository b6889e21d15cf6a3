"""Beside learning: a smoke training with vLLM has servers of its own. Run by `make vllm`."""

import re
import socket

import pytest

from tests.smoke_with_vllm import assert_exact, fit

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def test_a_server_in_a_process_of_its_own_serves_whole_steps_and_goes_with_the_run(tmp_path):
    few = ("--data.rollouts_per_epoch", "2", "--data.packs_per_rollout", "4")
    weights = tmp_path / "weights"
    few += ("--data.val_packs", "8", "--data.engine.init_args.weights_folder", str(weights))
    done = fit("--warm_start", "null", *few, cwd=tmp_path, cache=tmp_path / "cache", engine="VLLMServerEngine")
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "runs" / "smoke"
    assert_exact(run)
    log = (run / "vllm_server_0.log").read_text()
    port = re.search(r"'port': (\d+)", log)
    assert port is not None
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(port[1])), timeout=1)
    assert not list(weights.iterdir())
