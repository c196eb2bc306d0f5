"""A real Ray cluster of several nodes on this machine, small in memory, for tests and for bench/cluster.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STORE = 150 * 2**20  # bytes of a node's object store
# A node that is killed is noticed within two seconds instead of fifteen.
NOTICE = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@contextmanager
def cluster(nodes: int, cpus: int = 1) -> Iterator[Any]:
    """Nodes of so many CPUs each; the head has none, so that any of them may be killed."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "_system_config": NOTICE}
    started: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            started.add_node(num_cpus=cpus, object_store_memory=STORE)
        started.wait_for_nodes()
        yield started
    finally:
        started.shutdown()
