"""`det login --user`: a real Hub makes a token for a password, which is kept nowhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from testbed.cluster import Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("password"), slots=1) as started:
        yield started


def login(cluster: Cluster, file: Path, *more: str, url: str = "") -> tuple[int, str]:
    words = ("login", url or cluster.url, "--user", cluster.user, "--password-file", str(file), *more)
    done = cluster.det(*words)
    return done.returncode, done.stdout + done.stderr


def test_a_password_becomes_a_token_of_a_week_and_is_kept_nowhere(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{cluster.password}\n")
    status, told = login(cluster, file, "--json")
    assert status == 0, told
    kept = Path(json.loads(told)["file"])
    assert kept.stat().st_mode & 0o077 == 0
    text = kept.read_text(encoding="utf-8")
    assert cluster.password not in text
    token = json.loads(text)["clusters"][cluster.service]["token"]
    assert token != cluster.token
    with cluster.client(token) as client:
        assert client.get("experiments").status_code == 200
    with cluster.hub() as hub:
        tokens = hub.get(f"users/{cluster.user}/tokens").json()["api_tokens"]
    (made,) = (item for item in tokens if item["note"].startswith("det login on "))
    left = datetime.fromisoformat(made["expires_at"].replace("Z", "+00:00")).timestamp() - time.time()
    assert 6.9 * 86400 < left < 7.1 * 86400
    for name in ("hub.log", "master.log", "proxy.log"):
        for log in cluster.folder.rglob(name):
            assert cluster.password not in log.read_text(encoding="utf-8", errors="replace"), log


def test_a_wrong_password_is_refused_and_not_repeated(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("open sesame")
    status, told = login(cluster, file)
    assert status == 1
    assert "the Hub refuses this user name and password" in told
    assert "/hub/token" in told
    assert "sesame" not in told


def test_a_password_is_not_sent_in_the_clear_to_another_machine(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("open sesame")
    status, told = login(cluster, file, url="http://192.0.2.1:8642")
    assert status == 1
    assert "plain http: the password would be readable on the way" in told
