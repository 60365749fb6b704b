"""One real cluster for most tests of the spine, with three users; those that kill parts start their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spine_lab import Lab, lab_of
from testbed.cluster import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A whole cluster, `det up` to `det down`; its operator and two more users."""
    config = "c.EmbeddedCluster.extra_users = ['ada', 'ben']\n"
    with running_cluster(tmp_path_factory.mktemp("spine"), slots=4, config=config) as running:
        yield running


@pytest.fixture(scope="session")
def lab(cluster: Cluster) -> Iterator[Lab]:
    """The operator at that cluster."""
    with lab_of(cluster) as found:
        yield found
