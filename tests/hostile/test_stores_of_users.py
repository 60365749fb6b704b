"""Stores and addresses of a user's choice: the master connects to none, and nobody waits for one that never answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from bounds import SCOPES, SLEEPER, Bystander, api, submit, task_of

from detlab.schemas.checkpoint_ids import new_checkpoint_id
from testbed.cluster import Cluster
from testbed.waiting import until

pytestmark = pytest.mark.hub

DIGEST = f"sha256:{'0' * 64}"
SECRET = b"<Error><Code>Hidden</Code><Message>what-an-inner-service-says</Message></Error>"
SAVER = """
import json, time
import detlab as det
with det.core.init() as core:
    for step in range(1, 5):
        time.sleep(1)
        core.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0 / step})
    with core.checkpoint.store_path({"steps_completed": 4}) as (path, uuid):
        (path / "state.json").write_text(json.dumps({"step": 4}))
"""
SECONDS_OF_A_TRIAL = 60.0
"""For one of 4 s, on a busy machine; behind a store that never answers it took 18 minutes."""
PROMPT = 10.0


class Listener:
    """A server on loopback that answers with a redirect, with words, or never, and notes who has connected."""

    def __init__(self, reply: bytes | None = None) -> None:
        self._reply = reply
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._socket.getsockname()[1])
        self._held: list[socket.socket] = []
        self.uids: list[int] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def block(self, **more: Any) -> dict[str, Any]:
        """A `checkpoint_storage` block that names it, with keys of the attacker's own."""
        keys = {"access_key": "AKIA", "secret_key": "x", "region": "us-east-1"}
        return {"type": "s3", "bucket": "b", "endpoint_url": f"http://127.0.0.1:{self.port}", **keys, **more}

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, (_, port) = self._socket.accept()
                self.uids.append(_uid_of(port, self.port))
                self._held.append(connection)
                if self._reply is not None:
                    with contextlib.suppress(OSError):
                        connection.recv(65536)
                        connection.sendall(self._reply)

    @property
    def of_master(self) -> int:
        """Connections of root's processes; tasks have their user's uid."""
        return self.uids.count(0)

    def close(self) -> None:
        for one in [self._socket, *self._held]:
            one.close()


def _uid_of(port: int, remote: int) -> int:
    """The uid of the process at the other end of a connection on loopback; 0 if it cannot be told."""
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, local, other, *rest = line.split()
        if int(local.split(":")[1], 16) == port and int(other.split(":")[1], 16) == remote:
            return int(rest[4])
    return 0


@contextlib.contextmanager
def listening(reply: bytes | None = None) -> Iterator[Listener]:
    here = Listener(reply)
    try:
        yield here
    finally:
        here.close()


@pytest.fixture(scope="module")
def mallory(cluster: Cluster) -> Iterator[httpx.Client]:
    with api(cluster, cluster.make_token(*SCOPES, user="mallory"), timeout=400.0) as client:
        yield client


@pytest.fixture(scope="module")
def ada(cluster: Cluster) -> Iterator[httpx.Client]:
    with api(cluster, cluster.make_token(*SCOPES, user="ada")) as client:
        yield client


def commit(task: httpx.Client, trial: int, steps: int = 1) -> httpx.Response:
    """Commit what was never stored, as a trial does."""
    files = {"model.pt": {"size": 7, "digest": DIGEST}}
    told = {"uuid": new_checkpoint_id(trial), "steps_completed": steps, "files": files, "manifest_digest": DIGEST}
    return task.post("task/checkpoints", json=told)


def attacked(cluster: Cluster, mallory: httpx.Client, block: dict[str, Any], here: Listener) -> list[str]:
    """Do all that a user can have done about checkpoints in a store, which sees nothing of it; return the answers."""
    experiment = submit(mallory, checkpoint_storage=block)
    trial, token = task_of(cluster, mallory, experiment)
    with api(cluster, token) as task:
        made = [commit(task, trial)]
        assert here.of_master == 0
        made += [commit(task, trial, step) for step in (2, 3)]
    uuids = [reply.json()["uuid"] for reply in made if reply.status_code == 200]
    replies = [*made]
    for uuid in uuids[:1]:
        replies += [
            mallory.get(f"checkpoints/{uuid}/files/{DIGEST}"),
            mallory.get(f"checkpoints/{uuid}/archive"),
            mallory.delete(f"checkpoints/{uuid}"),
            mallory.post(f"checkpoints/{uuid}/undelete"),
            mallory.post(f"checkpoints/{uuid}/remove-files", json={"globs": ["*"]}),
            mallory.delete(f"checkpoints/{uuid}", params={"now": "true"}),
        ]
    replies.append(mallory.post(f"experiments/{experiment}/kill"))
    until(
        lambda: mallory.get(f"experiments/{experiment}").json()["state"] in {"CANCELED", "ERROR", "COMPLETED"},
        "the experiment did not end",
    )
    replies += [
        mallory.post(f"experiments/{experiment}/gc", json={"now": True, "purge": True}),
        mallory.delete(f"experiments/{experiment}/tensorboard-files"),
        mallory.delete(f"experiments/{experiment}"),
    ]
    assert uuids, [reply.text for reply in made]
    return [reply.text for reply in replies]


@pytest.mark.parametrize("how", ["silent", "words", "redirect"])
def test_the_master_connects_to_no_store_that_only_a_user_names(
    cluster: Cluster, mallory: httpx.Client, how: str
) -> None:
    """It connected to any address on its loopback, followed redirects, and repeated 400 characters of the answer."""
    words = b"HTTP/1.1 403 x\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(SECRET) + SECRET
    with listening(words) as inner:
        moved = f"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:{inner.port}/x\r\nContent-Length: 0\r\n\r\n".encode()
        with listening({"silent": None, "words": words, "redirect": moved}[how]) as outer:
            began = time.monotonic()
            said = attacked(cluster, mallory, outer.block(), outer)
            assert time.monotonic() - began < SECONDS_OF_A_TRIAL
            assert outer.of_master == 0
            assert inner.of_master == 0
    assert not any("what-an-inner-service-says" in text for text in said)
    assert any("storage.not_the_clusters" in text for text in said)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "gcs", "bucket": "b"},
        {"type": "azure", "container": "c", "credential": "a2V5"},
        {"type": "azure", "container": "c", "account_url": "http://127.0.0.1:1"},
    ],
    ids=["gcs", "azure", "connection string"],
)
def test_nor_by_another_kind_of_store(cluster: Cluster, mallory: httpx.Client, block: dict[str, Any]) -> None:
    with listening() as here:
        url = f"http://127.0.0.1:{here.port}"
        match block:
            case {"account_url": _}:
                text = f"BlobEndpoint={url}/a;AccountName=a;AccountKey=a2V5"
                block = {"type": "azure", "container": "c", "connection_string": text}
            case {"type": "azure"}:
                block = {**block, "account_url": f"{url}/a"}
            case _:
                block = {**block, "endpoint_url": url}
        attacked(cluster, mallory, block, here)
        assert here.of_master == 0


def test_a_store_that_never_answers_delays_nobody_elses_trial_or_delete(
    cluster: Cluster, mallory: httpx.Client, ada: httpx.Client
) -> None:
    with listening() as silent:
        experiments = [submit(mallory, name=f"s{n}", checkpoint_storage=silent.block()) for n in range(3)]
        running = [task_of(cluster, mallory, one) for one in experiments]
        over = threading.Event()

        def flood(trial: int, token: str) -> None:
            with api(cluster, token, timeout=5.0) as task:
                while not over.is_set():
                    with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
                        uuid = commit(task, trial).json()["uuid"]
                        mallory.delete(f"checkpoints/{uuid}")
                        mallory.post(f"checkpoints/{uuid}/undelete")

        threads = [threading.Thread(target=flood, args=one) for one in running]
        for thread in threads:
            thread.start()
        try:
            with Bystander(ada).asking() as bystander:
                began = time.monotonic()
                uuid = _trains(cluster, ada)
                assert time.monotonic() - began < SECONDS_OF_A_TRIAL
                began = time.monotonic()
                ada.delete(f"checkpoints/{uuid}").raise_for_status()
                ada.post(f"checkpoints/{uuid}/undelete").raise_for_status()
                assert time.monotonic() - began < PROMPT
            assert bystander.failed == []
        finally:
            over.set()
            for thread in threads:
                thread.join()
            for one in experiments:
                mallory.post(f"experiments/{one}/kill")
        assert silent.of_master == 0


def _trains(cluster: Cluster, ada: httpx.Client) -> str:
    """Run ada's trial of 4 s, which saves; return its checkpoint."""
    config = {**SLEEPER, "name": "saver", "entrypoint": ["python3", "-c", SAVER]}
    made = submit(ada, **config)

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = ada.get(f"experiments/{made}").json()
        return found if found["state"] in {"COMPLETED", "ERROR", "CANCELED"} else None

    view = until(ended, "the trial did not end", 2 * SECONDS_OF_A_TRIAL)
    assert view["state"] == "COMPLETED", cluster.logs()
    (found,) = ada.get(f"experiments/{made}/checkpoints").json()["items"]
    return str(found["uuid"])
