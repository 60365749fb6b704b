"""One real cluster for what the documentation says about clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from docs_snippets import DOCS, blocks

from testbed.cluster import Cluster, running_cluster

WARM = {"DETLAB_WARM_POOL": "1"}


@pytest.fixture(scope="package")
def docs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two slots, with the pools of the page on sharing; its trials start warm."""
    pools = blocks(DOCS / "how-to" / "share-gpus-fairly.md", "python")[0]
    with running_cluster(tmp_path_factory.mktemp("docs"), slots=2, config=pools.text, extra=WARM) as running:
        yield running
