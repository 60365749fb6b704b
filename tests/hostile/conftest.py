"""One cluster, started by root, with somebody who attacks and somebody who is attacked."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster, running_cluster


@pytest.fixture(scope="package")
def open_folder() -> Iterator[Path]:
    """A folder that every user of this machine may enter, so that permissions alone keep tenants apart."""
    folder = Path(tempfile.mkdtemp(prefix="detlab-hostile-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="package")
def cluster(open_folder: Path) -> Iterator[Cluster]:
    """A cluster of four slots with the users `ada` and `mallory`, each with a uid of their own."""
    if os.geteuid() != 0:
        pytest.skip("only a cluster that root started serves several users")
    root = open_folder / "cluster"
    root.mkdir(mode=0o755)
    with running_cluster(root, slots=4, config="c.EmbeddedCluster.extra_users = ['ada', 'mallory']\n") as running:
        yield running
