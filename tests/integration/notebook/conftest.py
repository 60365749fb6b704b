"""A real cluster and real kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster, running_cluster
from testbed.front.kernels import Notebook


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An embedded cluster with two slots."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), slots=2) as running:
        yield running


@pytest.fixture(scope="package")
def kernel_env(cluster: Cluster) -> dict[str, str]:
    """The environment of a kernel that may use the cluster."""
    return {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token}


@pytest.fixture
def open_notebook(tmp_path: Path, kernel_env: dict[str, str]) -> Iterator[Callable[..., Notebook]]:
    """Opens further kernels; `open_notebook(DET_TOKEN="…")` with other variables."""
    opened: list[Notebook] = []

    def start(**env: str) -> Notebook:
        opened.append(Notebook(tmp_path, {**kernel_env, **env}))
        opened[-1].run("%load_ext detlab_magics")
        return opened[-1]

    yield start
    for notebook in opened:
        notebook.close()


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory, kernel_env: dict[str, str]) -> Iterator[Notebook]:
    """A kernel for the tests of one file."""
    opened = Notebook(tmp_path_factory.mktemp("notebook"), kernel_env)
    opened.run("%load_ext detlab_magics")
    yield opened
    opened.close()
