"""One real cluster for what the documentation says about clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.cluster import Cluster, running_cluster


@pytest.fixture(scope="package")
def docs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two slots, as the tutorial starts it."""
    with running_cluster(tmp_path_factory.mktemp("docs"), slots=2) as running:
        yield running
