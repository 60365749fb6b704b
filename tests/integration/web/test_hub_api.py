"""Users and their tokens, by the commands of the command line and a real Hub."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from detlab.cli.root import det
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DET_URL", cluster.url)

    def run(*words: str, token: str | None = None, code: int = 0) -> str:
        monkeypatch.setenv("DET_TOKEN", token or cluster.token)
        result = CliRunner().invoke(det, list(words), catch_exceptions=True)
        assert result.exit_code == code, result.output
        return result.output

    return run


def test_a_token_of_ones_own(run: Any, cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "dashboard.token"
    said = json.loads(run("token", "create", "--read-only", "--expires", "1h", "-o", str(path), "--json"))
    assert set(said) == {"id", "expires_at", "file"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text().strip()
    assert json.loads(run("user", "whoami", "--json", token=token))["scopes"] == ["custom:detlab:read"]
    assert "custom:detlab:admin" in run("agent", "disable", "nobody", token=token, code=1)
    assert "permissions" in run("token", "create", token=token, code=1)
    assert "is there already" in run("token", "create", "-o", str(path), code=1)
    assert path.read_text().strip() == token
    assert said["id"] in [one["id"] for one in json.loads(run("token", "list", "--mine", "--json"))]
    assert token not in run("token", "list", "--mine", "--json")
    run("token", "revoke", "--mine", said["id"])
    assert "may have been revoked" in run("token", "list", "--mine", token=token, code=1)
    bare = run("token", "create", "--expires", "10m").strip()
    assert json.loads(run("user", "whoami", "--json", token=bare))["admin"]


def test_users_of_the_hub(run: Any, cluster: Cluster) -> None:
    run("user", "create", "newcomer")
    assert "already exists" in run("user", "create", "newcomer", code=1)
    run("user", "edit", "newcomer", "--admin")
    listed = {one["name"]: one["admin"] for one in json.loads(run("user", "list", "--json"))}
    assert not re.search(r"\d{4}-\d\d-\d\dT", run("user", "list")), "times are those of all tables"
    assert listed["newcomer"] is True
    ben = cluster.make_token("custom:detlab:write", user="ben")
    for words in (("list",), ("create", "another"), ("edit", "ben", "--admin"), ("remove", "newcomer", "--yes")):
        run("user", *words, token=ben, code=1)
    assert "--admin, --no-admin or --name" in run("user", "edit", "newcomer", code=2)
    assert "add --yes" in run("user", "remove", "newcomer", code=2)
    run("user", "remove", "newcomer", "--yes")
    assert "newcomer" not in run("user", "list", "--json")
    run("user", "remove", "newcomer", "--yes", code=1)
