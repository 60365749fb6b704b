"""One suite for the fake API server and the real one: what the agent relies on is the same on both."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.kubernetes import images
from testbed.kubernetes.fake.cluster import FakeCluster
from testbed.kubernetes.sites import FakeSite, RealSite, Site

BOTH = ["fake", pytest.param("real", marks=pytest.mark.kubernetes)]


@pytest.fixture(scope="package")
def fake() -> Iterator[FakeCluster]:
    """One fake cluster for all."""
    directory = Path(tempfile.mkdtemp(prefix="detlab-fake-"))
    directory.chmod(0o711)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        cluster = stack.enter_context(
            FakeCluster(directory, images={images.PYTHON: {}, images.BARE: {"PATH": "/opt/none"}})
        )
        cluster.add_node("real-1", runs=True, gpus=2, cpu="8", memory="32Gi")
        yield cluster


@pytest.fixture(params=BOTH)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """An API server with nodes, once fake and once real."""
    if request.param == "fake":
        found: Site = FakeSite(request.getfixturevalue("fake"))
    else:
        request.getfixturevalue("node")
        found = RealSite(request.getfixturevalue("plane"))
    try:
        yield found
    finally:
        found.end()
        found.admin.http.close()
