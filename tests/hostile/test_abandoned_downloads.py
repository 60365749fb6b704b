"""Downloads whose clients have gone, and code that unpacks to more than anybody has: nobody waits for either."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from bounds import SCOPES, SLEEPER, Bystander, api, master_port, memory_of, submit, task_of

from detlab.schemas.checkpoint_ids import new_checkpoint_id
from testbed.cluster import Cluster
from testbed.waiting import until

pytestmark = pytest.mark.hub

GIB = 1024**3
MIB = 1024**2
SIZE = 200 * GIB
DIGEST = "sha256:" + "0" * 64
CLIENTS, ROUNDS = 16, 3
LEASE_TTL, LEASE_PERIOD = 15.0, 5.0


@pytest.fixture(scope="module")
def mallory(cluster: Cluster) -> str:
    return cluster.make_token(*SCOPES, user="mallory")


@pytest.fixture(scope="module")
def ada(cluster: Cluster) -> str:
    return cluster.make_token(*SCOPES, user="ada")


@pytest.fixture(scope="module")
def sparse(cluster: Cluster, mallory: str) -> str:
    """A committed checkpoint of mallory's with one file of 200 GiB that holds nothing."""
    with api(cluster, mallory) as client:
        experiment = submit(client)
        trial, token = task_of(cluster, client, experiment)
    uuid = new_checkpoint_id(trial)
    folder = cluster.folder / "checkpoints" / uuid
    folder.mkdir(mode=0o755)
    (folder / "big").touch()
    os.truncate(folder / "big", SIZE)
    uid = cluster.uids["mallory"]
    for path in (folder, folder / "big"):
        os.chown(path, uid, uid)
    with api(cluster, token) as task:
        body = {"uuid": uuid, "steps_completed": 1, "manifest_digest": DIGEST, "metadata": {}}
        wrong = task.post("task/checkpoints", json={**body, "files": {"big": {"size": SIZE - 1, "digest": DIGEST}}})
        assert wrong.status_code == 422, "a manifest with other sizes than the files have was committed"
        done = task.post("task/checkpoints", json={**body, "files": {"big": {"size": SIZE, "digest": DIGEST}}})
        assert done.status_code == 200, done.text
    return uuid


def begin(cluster: Cluster, token: str, path: str) -> socket.socket:
    """Ask for a download; nothing is read."""
    connection = socket.create_connection(("127.0.0.1", master_port(cluster)))
    head = f"GET /services/detlab/api/v1/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def head_of(connection: socket.socket) -> bytes:
    """Read the head of a reply; it comes within seconds although there is nothing to send yet."""
    connection.settimeout(10)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        one = connection.recv(1)
        assert one, f"closed after {head!r}"
        head += one
    return head


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def left_of_lease(cluster: Cluster) -> float:
    """Seconds for which the master's lease still lasts."""
    with closing(sqlite3.connect(f"file:{cluster.folder}/db/detlab.sqlite?mode=ro", uri=True)) as database:
        return float(database.execute("SELECT expires_at FROM lease").fetchone()[0]) - time.time()


def is_idle(pid: int) -> bool:
    before, began = processor_time(pid), time.monotonic()
    time.sleep(0.5)  # what is measured is what is done in this time
    return processor_time(pid) - before < 0.3 * (time.monotonic() - began)


@pytest.mark.parametrize("route", ["files", "archive"])
def test_downloads_whose_clients_have_gone_end_and_hold_nothing_up(
    cluster: Cluster, mallory: str, ada: str, sparse: str, route: str
) -> None:
    path = f"checkpoints/{sparse}/archive" if route == "archive" else f"checkpoints/{sparse}/files/{DIGEST}"
    pid = cluster.pid("master")
    assert pid is not None
    for _ in range(ROUNDS):
        connections = [begin(cluster, mallory, path) for _ in range(CLIENTS)]
        time.sleep(0.2)  # the patience of these clients
        for connection in connections:
            connection.close()
    with api(cluster, ada) as client:
        began = time.monotonic()
        experiment = submit(client)
        assert time.monotonic() - began < 1.0, "a submission waited for downloads that nobody waits for"
        end(client, [experiment])
    until(lambda: is_idle(pid), "the master still works for clients that have gone", 4)


@pytest.mark.soak
def test_patient_downloads_leave_the_lease_and_others_alone_and_one_too_many_is_refused(
    cluster: Cluster, mallory: str, ada: str, sparse: str
) -> None:
    path = f"checkpoints/{sparse}/archive"
    connections = [begin(cluster, mallory, path) for _ in range(CLIENTS)]
    submitted: list[int] = []
    try:
        with api(cluster, mallory) as client:
            for connection in connections:  # its head tells that it is let in: 200 GiB are checked before a byte comes
                assert head_of(connection).startswith(b"HTTP/1.1 200 ")
            reply = client.get(path, timeout=10)
        assert reply.status_code == 503, "one more download was let in"
        assert reply.headers["Retry-After"]
        assert f"a user may have {CLIENTS}" in reply.json()["message"]
        left: list[float] = []
        with api(cluster, ada) as client, Bystander(client).asking() as asking:
            began = time.monotonic()
            while time.monotonic() - began < 2 * LEASE_PERIOD:
                left.append(left_of_lease(cluster))
                stored = put(client, bundle_of(b"print()\n"))
                assert stored.status_code in {200, 201}, stored.text
                submitted.append(submit(client))
        assert not asking.failed
        assert max(asking.took) < 2.0
        assert min(left) > LEASE_TTL - LEASE_PERIOD - 3.0, "the lease was not renewed in time"
    finally:
        for connection in connections:
            connection.close()
        with api(cluster, ada) as client:
            end(client, submitted)


def end(client: httpx.Client, experiments: list[int]) -> None:
    """End sleepers: other tests of this cluster start tasks of the same user, who may have so many at a time."""
    for experiment in experiments:
        assert client.post(f"experiments/{experiment}/kill").status_code == 200


def bundle_of(text: bytes) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    return found.getvalue()


def put(client: httpx.Client, data: bytes) -> httpx.Response:
    return client.put(f"bundles/sha256:{hashlib.sha256(data).hexdigest()}", content=data)


def bombs() -> Iterator[tuple[str, bytes]]:
    """A GiB of zeros in a MiB: as one file, and as what tar takes for the end of the archive."""
    info = tarfile.TarInfo("train.py")
    info.size = GIB
    zeros = gzip.compress(bytes(16 * MIB)) * 64
    yield "a file", gzip.compress(info.tobuf()) + zeros
    yield "padding", bundle_of(b"print()\n") + zeros


@pytest.mark.parametrize(("kind", "bomb"), list(bombs()), ids=["file", "padding"])
def test_code_that_unpacks_to_a_gigabyte_costs_little(cluster: Cluster, mallory: str, kind: str, bomb: bytes) -> None:
    assert len(bomb) < 1.2 * MIB
    memory = memory_of(cluster)
    with api(cluster, mallory) as client:
        before = memory.reset()
        assert put(client, bomb).status_code == 201
        began = time.monotonic()
        config = {**SLEEPER, "entrypoint": "python3 train.py"}
        digest = f"sha256:{hashlib.sha256(bomb).hexdigest()}"
        reply = client.post("experiments", json={"config": config, "bundle": digest, "dry_run": True})
        took = time.monotonic() - began
    if kind == "a file":
        assert reply.status_code == 422
        assert "over 100 times its packed size" in reply.json()["message"]
    assert took < 1.0
    assert memory.peak() - before < 50 * MIB
