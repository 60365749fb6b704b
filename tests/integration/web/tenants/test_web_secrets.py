"""What must be told by nothing: secrets of configs by no command and no reply, tokens by no log and no database."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from detlab.schemas.expconf.raw.secret_keys import MASK
from testbed.cluster import Cluster
from testbed.people import callers
from testbed.waiting import until

pytestmark = pytest.mark.hub

DATA, REGISTRY = "the-datas-own-secret", "the-registrys-own-secret"
CONFIG = f"""
name: quiet
entrypoint: ["sh", "-c", "echo ran"]
data: {{secrets: {{key: {DATA}}}}}
environment: {{registry_auth: {{username: puller, password: {REGISTRY}}}}}
searcher: {{name: single, metric: x, max_length: 1}}
max_restarts: 0
"""
TASK = f"environment: {{registry_auth: {{username: puller, password: {REGISTRY}}}}}\nresources: {{slots: 0}}\n"
OWN_TOKEN = re.compile(r"dt[a-z]+_[A-Za-z0-9_-]{20,}")
MAY_HOLD = ("agent/key.json", "agent/tasks/")
"""An agent's own key and each task's own token, at 0600, have to be somewhere."""


def test_no_command_prints_a_secret_of_a_config(cluster: Cluster) -> None:
    code = cluster.root / "quiet"
    code.mkdir()
    (code / "quiet.yaml").write_text(CONFIG)
    (cluster.root / "task.yaml").write_text(TASK)
    made = cluster.det("e", "create", "quiet/quiet.yaml", "quiet", "--json", check=True)
    experiment = str(json.loads(made.stdout)["experiment"]["id"])
    ran = cluster.det("cmd", "run", "--config-file", "task.yaml", "--json", "--detach", "--", "true", check=True)
    task = re.search(r"command-[0-9a-f]{12}", ran.stdout)
    assert task is not None, ran.stdout
    with cluster.client() as client:
        until(lambda: client.get(f"experiments/{experiment}").json()["ended_at"], cluster.logs)
    said = {
        " ".join(words): cluster.det(*words)
        for words in (
            ("e", "create", "quiet/quiet.yaml", "quiet", "--dry-run"),
            ("e", "config", experiment),
            ("e", "describe", experiment, "--json"),
            ("e", "list", "--json"),
            ("e", "list-trials", experiment, "--json"),
            ("e", "logs", experiment),
            ("cmd", "describe", task[0], "--json"),
            ("cmd", "list", "--json"),
        )
    } | {"created": made, "ran": ran}
    failed = {words: one.stderr for words, one in said.items() if one.returncode}
    assert not failed
    told = [words for words, one in said.items() if {DATA, REGISTRY} & set(_found(one.stdout + one.stderr))]
    assert not told
    for words in (f"e config {experiment}", f"cmd describe {task[0]} --json", "created"):
        assert MASK in said[words].stdout, words


def _found(text: str) -> list[str]:
    return [secret for secret in (DATA, REGISTRY) if secret in text]


def test_no_token_is_in_a_log_or_a_database(cluster: Cluster) -> None:
    with callers.bearers(cluster) as bearers:
        secrets = {kind: bearers[kind].split()[1] for kind in bearers if kind not in callers.NO_TOKENS}
        for folder in (cluster.folder / "secrets").iterdir():
            secrets[folder.name] = folder.read_text(errors="replace").strip()
        _use(cluster, bearers, secrets["read"])
        wanted = {part: kind for kind, text in secrets.items() for part in {text, *OWN_TOKEN.findall(text)}}
        wanted = {part: kind for part, kind in wanted.items() if len(part) >= 16}
        assert len(wanted) >= 12
        found = [
            f"{kind} in {path.relative_to(cluster.folder)}"
            for path in _files(cluster.folder)
            for kind in {kind for part, kind in wanted.items() if part.encode() in path.read_bytes()}
        ]
    assert not found


def _use(cluster: Cluster, bearers: dict[str, str], token: str) -> None:
    """Have everybody ask something, refused and not; one, against all advice, with the token in the address."""
    for header in bearers.values():
        for path in ("me", "experiments", "task/preempt?timeout_seconds=0", "bundles/x", "nowhere"):
            httpx.get(f"{cluster.service}api/v1/{path}", headers={"Authorization": header}, trust_env=False)
    httpx.get(f"{cluster.service}api/v1/me", params={"token": token}, trust_env=False)
    log = cluster.folder / "logs" / "master.log"
    until(lambda: "/nowhere" in log.read_text(errors="replace"), cluster.logs)


def _files(folder: Path) -> list[Path]:
    """Logs, databases and whatever else there is, except where secrets belong."""
    found = []
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).as_posix()
        if inside.startswith("secrets/") or not path.is_file() or path.is_symlink():
            continue
        if inside == MAY_HOLD[0] or (inside.startswith(MAY_HOLD[1]) and path.name == "token"):
            assert path.stat().st_mode & 0o077 == 0, inside
            continue
        found.append(path)
    assert any(path.suffix == ".log" for path in found)
    return found
