"""One real cluster for the tests of this folder that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detlab.client.client import Client
from testbed.cluster import Cluster, running_cluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two slots; tests kill its master, and leave nothing that runs."""
    with running_cluster(tmp_path_factory.mktemp("client"), slots=2) as running:
        yield running


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """The blocking client of its operator."""
    with Client(cluster.url, cluster.token) as made:
        yield made
