"""`python -m detlab_hub` as a process: both databases, a kill and a restart, a clean stop, clear refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from detlab.testing.ports import free_port
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub


class Process:
    """The master as a process of its own, beside the cluster's; it asks the cluster's Hub."""

    def __init__(self, cluster: Cluster, root: Path, url: str, port: int, more: Sequence[str] = ()) -> None:
        self.base = f"http://127.0.0.1:{port}/services/detlab/"
        self.log = root / "master.log"
        argv = [
            *(sys.executable, "-m", "detlab_hub"),
            f"--DetHub.state_dir={root}",
            f"--DetHub.db_url={url}",
            f"--DetHub.port={port}",
            f"--DetHub.hub_api_url=http://127.0.0.1:{cluster.plan['hub_port']}/hub/api",
            f"--DetHub.service_token_file={cluster.folder / 'secrets' / 'service_token'}",
            *more,
        ]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ})

    def wait_healthy(self, timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if httpx.get(f"{self.base}health", trust_env=False).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not healthy\n{self.log.read_text()}")


@contextmanager
def master(cluster: Cluster, root: Path, url: str, port: int | None = None) -> Iterator[Process]:
    running = Process(cluster, root, url, port or free_port())
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()


def test_a_killed_master_starts_again_at_once_with_what_it_acknowledged(
    cluster: Cluster, tmp_path: Path, empty_db_url: str
) -> None:
    headers = {"Authorization": f"Bearer {cluster.token}"}
    config = {"name": "kept", "entrypoint": ["true"], "searcher": {"name": "single", "metric": "x", "max_length": 1}}
    port = free_port()
    with master(cluster, tmp_path, empty_db_url, port) as first:
        first.wait_healthy()
        body = {"config": {**config, "resources": {"slots_per_trial": 0}}, "idempotency_key": "k"}
        made = httpx.post(f"{first.base}api/v1/experiments", json=body, headers=headers, trust_env=False, timeout=20)
        assert made.status_code == 200, made.text
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    began = time.monotonic()
    with master(cluster, tmp_path, empty_db_url, port) as second:
        second.wait_healthy()
        assert time.monotonic() - began < 15, "the lease of a dead master is not waited for"
        again = httpx.post(f"{second.base}api/v1/experiments", json=body, headers=headers, trust_env=False, timeout=20)
        assert again.json()["experiment"]["id"] == made.json()["experiment"]["id"]
        assert again.json()["created"] is False
        second.process.terminate()
        assert second.process.wait(20) == 0
        assert "Traceback" not in second.log.read_text()


def test_a_second_master_on_the_same_database_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detlab.sqlite"
    with master(cluster, tmp_path, url) as first:
        first.wait_healthy()
        other = tmp_path / "other"
        other.mkdir()
        with master(cluster, other, url) as second:
            assert second.process.wait(60) == 1
            log = second.log.read_text()
        assert "Traceback" not in log
        assert "lease" in log or "held" in log
        first.wait_healthy()


def test_without_a_token_for_the_hub_it_says_so(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTERHUB_")}
    done = subprocess.run(
        [sys.executable, "-m", "detlab_hub", f"--DetHub.state_dir={tmp_path}", f"--DetHub.port={free_port()}"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 1
    assert "no token for the Hub" in done.stderr
    assert "Traceback" not in done.stderr
