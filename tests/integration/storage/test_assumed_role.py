"""Credentials of an assumed role (AWS STS, as moto has it), and a task that stores with what the master gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from detlab.core.task_storage import open_storage
from detlab.storage import from_config
from detlab_hub.storage_credentials import AssumeRole, _policy, _session_name
from testbed.objectstores.servers import BUCKET, ObjectServer

ROLE = "arn:aws:iam::123456789012:role/detlab"
UUID = "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f"


@pytest.fixture
def role(s3_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> AssumeRole:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "masters")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    url = f"http://127.0.0.1:{s3_server.port}"
    return AssumeRole(ROLE, bucket=BUCKET, prefix="users/{owner}", region="us-east-1", endpoint_url=url)


def block(**more: Any) -> dict[str, Any]:
    return {"type": "s3", "bucket": BUCKET, "prefix": "users/alice", **more}


def test_a_role_is_assumed_for_the_owner(role: AssumeRole) -> None:
    found = role("alice", block())
    assert found is not None
    assert found.keys() == {"access_key_id", "secret_access_key", "token", "expires_at"}
    assert found["access_key_id"].startswith("ASIA")
    assert found["expires_at"].tzinfo is not None
    assert role("alice", block(prefix="users/alice/deep")) is not None


@pytest.mark.parametrize(
    ("owner", "asked"),
    [
        ("bob", block()),
        ("alice", block(prefix="users/alice2")),
        ("alice", block(prefix="users/alice/../bob")),
        ("alice", block(prefix="users")),
        ("alice", block(prefix=None)),
        ("alice", block(bucket="another")),
        ("alice", block(endpoint_url="https://evil.example")),
        ("alice", {"type": "gcs", "bucket": BUCKET, "prefix": "users/alice"}),
        ("*", block(prefix="users/*")),
        ("", block(prefix="users/")),
        ("..", block(prefix="users/..")),
        ("a/b", block(prefix="users/a/b")),
    ],
)
def test_another_place_gets_nothing(role: AssumeRole, owner: str, asked: dict[str, Any]) -> None:
    assert role(owner, asked) is None


def test_the_policy_leaves_one_prefix() -> None:
    text = json.dumps(_policy("b", "users/alice"))
    assert '"arn:aws:s3:::b/users/alice/*"' in text
    assert '"arn:aws:s3:::b/*"' not in text
    assert '"users/alice/*"' in text
    assert len(json.dumps(_policy("b" * 63, "p" * 200))) < 2048, "AWS takes no more"


def test_names_of_sessions() -> None:
    assert _session_name("alice") == "detlab-alice"
    names = [_session_name(name) for name in ("a b", "a-b", "ü" * 200, "ö" * 200, "x" * 80)]
    assert len(set(names)) == len(names)
    assert all(2 <= len(name) <= 64 and name.isascii() for name in names)


def test_a_task_stores_with_what_the_master_gives(role: AssumeRole, s3_server: ObjectServer, tmp_path: Path) -> None:
    class Session:
        """Of a master that answers as ours does."""

        asked = 0

        def get(self, _path: str, *, limit: float = 0.0) -> Any:
            Session.asked += 1
            found = role("alice", block())
            assert found is not None
            expires = found["expires_at"].timestamp()
            return {"values": {key: found[key] for key in found if key != "expires_at"}, "expires_at": expires}

    place = block(endpoint_url=f"http://127.0.0.1:{s3_server.port}", region="us-east-1")
    store = open_storage(place, Session())
    store.check()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "state").write_bytes(b"x" * 1000)
    manifest = store.publish(UUID, {"steps_completed": 1}, store.upload(tmp_path / "in", UUID))
    assert Session.asked <= 2
    client = boto3.client("s3", endpoint_url=place["endpoint_url"], region_name="us-east-1")
    keys = {item["Key"] for item in client.list_objects_v2(Bucket=BUCKET, Prefix="users/alice/")["Contents"]}
    assert f"users/alice/{UUID}/manifest.json" in keys
    assert not [key for key in keys if ".detlab-check" in key], "the probe is gone"
    assert from_config({**place, "access_key": "a", "secret_key": "b"}).manifest(UUID) == manifest
    store.delete(UUID)
