"""Two network namespaces of this machine train as two nodes; `tests/soak/two_nodes.py` does more of it."""

import sys

import pytest

from tests import namespaces
from tests.soak.two_nodes import UPDATES, Cluster, num_updates

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
