"""What the commands say when something is wrong: what, where, likely cause, next command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from spine_lab import TRIALS, Lab, single

from detlab.testing.ports import free_port
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub


def det(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `det` in a folder where nobody has ever been, with these variables only."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    (folder / "home").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", "from detlab.cli import main; main()", *arguments],
        cwd=folder,
        env={**kept, "HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def says(done: subprocess.CompletedProcess[str], *parts: str) -> str:
    """It failed, in one block without a traceback, that has all of these parts; return the block."""
    assert done.returncode not in (0, 130), done.stdout
    assert done.stderr.startswith("Error: "), done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 12
    for part in parts:
        assert part in done.stderr, f"{part!r} is missing in:\n{done.stderr}"
    return done.stderr


def test_a_wrong_token_what_where_cause_and_next_command(cluster: Cluster, lab: Lab, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(single("toy.py")))
    wrong = {"DET_URL": cluster.url, "DET_TOKEN": "not-a-token"}
    for arguments in (("e", "list"), ("e", "create", str(config), str(TRIALS)), ("e", "wait", "1"), ("a", "list")):
        said = says(det(tmp_path, *arguments, **wrong), "token", "det login")
        assert "not-a-token" not in said
        assert cluster.url in said or "DET_TOKEN" in said, f"where: {said}"
    as_json = det(tmp_path, "e", "list", "--json", **wrong)
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["code"] == "auth.denied"


def test_no_cluster_at_all(tmp_path: Path) -> None:
    for arguments in (("e", "list"), ("user", "whoami"), ("t", "logs", "1")):
        says(det(tmp_path, *arguments), "no cluster found", "DET_URL", ".detlab", str(tmp_path), "det up", "det login")


def test_a_url_without_a_token(cluster: Cluster, tmp_path: Path) -> None:
    says(det(tmp_path, "e", "list", DET_URL=cluster.url), "token", cluster.url, "det login")


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    says(det(tmp_path, "e", "list", DET_URL=url, DET_TOKEN="x"), url, "DET_URL", "refused", "det up")


def test_something_else_answers(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as other:
        try:
            assert other.stdout is not None
            port = other.stdout.readline().split(" port ")[1].split()[0]
            done = det(tmp_path, "e", "list", DET_URL=f"http://127.0.0.1:{port}", DET_TOKEN="x")
            says(done, "not detlab", "404")
        finally:
            other.terminate()


def test_a_cluster_that_was_shut_down(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / ".detlab"
    folder.mkdir(mode=0o700)
    (folder / "secrets").mkdir(mode=0o700)
    said = says(det(tmp_path, "e", "list"), "not running", str(folder), f"det up --dir {folder}")
    assert "DET_URL" in said
    # its record is still there: somebody killed everything
    for name in ("cluster.json", "secrets/user_token"):
        shutil.copy(cluster.folder / name, folder / name)
    record = json.loads((folder / "cluster.json").read_text())
    gone = f"http://127.0.0.1:{free_port()}"
    record |= {"url": gone, "service_url": f"{gone}/services/detlab/"}
    (folder / "cluster.json").write_text(json.dumps(record))
    says(det(tmp_path, "e", "list"), gone, str(folder), f"det up --dir {folder}")


def test_det_status_when_down_says_how_to_start_it(tmp_path: Path) -> None:
    down = det(tmp_path, "status", "--dir", str(tmp_path / "nowhere"))
    assert down.returncode == 1
    assert "no cluster runs on" in down.stdout
    assert str(tmp_path / "nowhere") in down.stdout
    assert "det up --dir" in down.stdout
    as_json = det(tmp_path, "status", "--dir", str(tmp_path / "nowhere"), "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["healthy"] is False
    assert not (tmp_path / "nowhere").exists(), "looking makes nothing"
    assert det(tmp_path, "down", "--dir", str(tmp_path / "nowhere")).returncode == 0


def test_det_up_twice_is_harmless_and_a_taken_port_is_named_with_its_owner(cluster: Cluster, tmp_path: Path) -> None:
    before = {part: cluster.pid(part) for part in ("supervisor", "proxy", "hub", "master", "agent")}
    again = cluster.up()
    assert again.returncode == 0, again.stderr
    assert "up already" in again.stdout
    assert {part: cluster.pid(part) for part in before} == before
    other = det(tmp_path, "up", "--dir", str(tmp_path / "other"), "--port", str(cluster.port))
    says(other, f"port {cluster.port}", "taken by", f"pid {before['proxy']}", "det up --port")
    assert {part: cluster.pid(part) for part in before} == before


def test_things_that_do_not_exist_are_named_with_the_command_that_lists_them(lab: Lab) -> None:
    for arguments, advice in (
        (("e", "describe", "999999"), "det experiment list"),
        (("e", "wait", "999999"), "det experiment list"),
        (("t", "logs", "999999"), "det "),
        (("c", "download", "00000000-0000-0000-0000-000000000000"), "det "),
    ):
        says(lab.cluster.det(*arguments), arguments[2], advice)
