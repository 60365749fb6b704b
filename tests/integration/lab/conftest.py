"""A real cluster and a real Jupyter server with the extension, in a folder with code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from testbed.cluster import Cluster, running_cluster
from testbed.front.lab import Server, jupyter, write_notebook

EXTENSION = ("--ServerApp.jpserver_extensions={'detlab_server': True}",)
TRAIN = """import helper, detlab as det
with det.core.init() as core:
    core.train.report_validation_metrics(1, {"loss": helper.LOSS})
"""


@pytest.fixture(scope="package")
def lab_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An embedded cluster with one slot."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), slots=1) as running:
        yield running


@pytest.fixture(scope="package")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a project with a script, what it imports and what it does not, a config and a notebook."""
    folder = tmp_path_factory.mktemp("code")
    project = folder / "my project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "helper.py").write_text("LOSS = 0.25\n")
    (project / "unrelated.py").write_text("raise SystemExit\n")
    (folder.parent / "outside.py").write_text("print(1)\n")
    write_notebook(project / "report.ipynb", ["lr = 1", "print(lr)"], parameters=True)
    return folder


@pytest.fixture(scope="package")
def lab_server(code: Path, lab_cluster: Cluster) -> Iterator[Server]:
    """A Jupyter server whose user has a token of the cluster."""
    env = {**lab_cluster.environment, "DET_URL": lab_cluster.url, "DET_TOKEN": lab_cluster.token}
    with jupyter(code, env, lab=False, options=EXTENSION) as running:
        yield running


@pytest.fixture
def front(lab_server: Server) -> Iterator[httpx.Client]:
    """A front end that shows the server's token."""
    headers = {"Authorization": f"token {lab_server.token}"}
    with httpx.Client(base_url=f"{lab_server.url}detlab/", headers=headers, trust_env=False, timeout=60) as client:
        yield client
