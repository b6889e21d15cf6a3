"""Network namespaces of this machine train as two nodes and serve on a third; `robustness/two_nodes.py` does more."""

import sys

import pytest

from examples.studies.robustness.two_nodes import BLIND, SERVED, UPDATES, Cluster, kill_server, num_updates
from tests import namespaces, stand_in_vllm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.soak
def test_a_job_that_loses_a_node_ends_and_goes_on_when_it_is_queued_again(tmp_path):
    if reason := namespaces.unavailable():
        pytest.skip(f"no network namespaces: {reason}")
    with namespaces.nodes(2) as nodes:
        cluster, root = Cluster(nodes, tmp_path, sys.executable), tmp_path / "run"
        job = cluster.launch(root, "--config", "smoke", "strategy=fsdp2", "--nodes", "2")
        job.until(3)
        namespaces.kill(cluster.names[1])
        assert job.end() < 60
        assert 3 <= num_updates(root) < UPDATES
        cluster.again(root).end()
        assert num_updates(root) == UPDATES


@pytest.mark.soak
def test_a_job_waits_for_a_server_that_died_and_ends_with_the_servers_node_and_goes_on_when_it_is_queued_again(
    tmp_path,
):
    if reason := namespaces.unavailable():
        pytest.skip(f"no network namespaces: {reason}")
    with namespaces.nodes(3) as nodes:
        cluster = Cluster(nodes, tmp_path / "jobs", sys.executable, [stand_in_vllm.install(tmp_path / "path")])
        root, third = tmp_path / "run", cluster.names[2]
        more = ("--trainer.strategy", "ddp", "--trainer.callbacks", BLIND, "--nodes", "3", "--servers", "1")
        job = cluster.launch(root, *SERVED, *more)
        job.until(1)
        kill_server(third)
        job.until(3)
        namespaces.kill(third)
        job.end()
        assert "the servers ended before the training did" in job.said()
        assert 3 <= num_updates(root) < UPDATES
        cluster.again(root).end()
        assert num_updates(root) == UPDATES
