"""Users and their tokens, by the commands of the command line and a real Hub."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from detlab.cli.root import det
from testbed.cluster import Cluster
from testbed.front.browsing import enter, log_in
from testbed.waiting import until

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


def _is_administrators(browser: httpx.Client, cluster: Cluster) -> bool:
    """Return what the hub page takes the person for."""
    page = browser.get(cluster.service).text
    found = re.search(r'name="detlab-admin" content="(\w+)"', page)
    assert found, page
    return found.group(1) == "yes"


def test_an_administrator_of_the_hub_administers_detlab_too(run: Any, cluster: Cluster) -> None:
    """Promised by `det user edit --admin`; the Hub's own role of administrators cannot hold detlab's permission."""

    def of(user: str) -> tuple[bool, bool]:
        (found,) = (one for one in json.loads(run("user", "list", "--json")) if one["name"] == user)
        return found["admin"], found["detlab_admin"]

    def uids(code: int) -> None:
        """Ask for what only administrators see, with a new token: one is believed for half a minute."""
        said = run("user", "uids", token=cluster.make_token("inherit", user="ada"), code=code)
        assert code == 0 or "custom:detlab:admin" in said

    def restart_hub() -> None:
        before = cluster.pid("hub")
        assert before is not None
        os.kill(before, signal.SIGKILL)
        until(lambda: cluster.pid("hub") not in {None, before})

        def answers() -> bool:
            with cluster.hub() as hub, suppress(httpx.HTTPError):
                return hub.get("users/ada").status_code == 200
            return False

        until(answers)

    assert of(cluster.user) == (True, True)
    assert of("ada") == (False, False)
    uids(1)
    with cluster.hub() as hub:
        assert hub.patch("users/ada", json={"admin": True}).status_code == 200
    assert "of the Hub alone" in run("user", "list")
    uids(1)
    password = (cluster.folder / "secrets" / "password-ada").read_text().strip()
    with log_in(cluster, "ada", password) as browser:
        assert not _is_administrators(browser, cluster)
        assert "logged out and in" in run("user", "edit", "ada", "--admin")
        browser.get(f"{cluster.url}/hub/logout")
        enter(browser, cluster, "ada", password)
        assert _is_administrators(browser, cluster)
    assert of("ada") == (True, True)
    uids(0)
    assert of("ada") == (True, True), "a login takes nothing away"

    restart_hub()
    assert of("ada") == (True, True)
    uids(0)

    ada = cluster.make_token("inherit", user="ada")
    said = run("user", "edit", cluster.user, "--no-admin", token=ada)
    assert "still administers detlab" in said, "the operator does by name"
    run("user", "edit", cluster.user, "--admin", token=ada)
    assert of(cluster.user) == (True, True)

    assert "half a minute" in run("user", "edit", "ada", "--no-admin")
    assert of("ada") == (False, False)
    uids(1)
    with log_in(cluster, "ada", password) as browser:
        assert not _is_administrators(browser, cluster)

    # the Hub makes them its own administrator, and the group is not there or administers nothing
    with cluster.hub() as hub:
        assert hub.delete("groups/detlab-admins").status_code == 204
        half = run("user", "create", "grace", "--admin", code=1)
        assert "administrator of the Hub now, but not of detlab" in half
        assert "det user edit grace --admin" in half
        assert hub.post("groups/detlab-admins").status_code == 201
        assert "has no role" in run("user", "edit", "grace", "--admin", code=1)
    assert of("grace") == (True, False)
    restart_hub()
    run("user", "edit", "grace", "--admin")
    assert of("grace") == (True, True)
    # who takes their own right away is not left with detlab's
    run("user", "edit", "grace", "--no-admin", token=cluster.make_token("inherit", user="grace"))
    assert of("grace") == (False, False)
    run("user", "edit", "grace", "--admin")
    run("user", "edit", "grace", "--name", "grace2")
    assert of("grace2") == (True, True)
    run("user", "remove", "grace2", "--yes")
    run("user", "create", "grace2")
    assert of("grace2") == (False, False), "somebody else of that name"
    run("user", "remove", "grace2", "--yes")
