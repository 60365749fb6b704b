"""A store whose keys only its user has: a task reads it for its owner, and the master makes no connection."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from bounds import SCOPES, api, submit, task_of
from test_stores_of_users import _uid_of

from detlab.client import Client
from detlab.errors import DetlabError
from detlab.schemas.checkpoint_ids import new_checkpoint_id
from detlab.storage import from_config
from testbed.cluster import Cluster, running_cluster
from testbed.objectstores.servers import s3_server
from testbed.waiting import until

pytestmark = pytest.mark.hub


class Recorder:
    """A way to a server on loopback that notes the uids of those who connect."""

    def __init__(self, target: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._target = target
        self.port = int(self._socket.getsockname()[1])
        self.uids: list[int] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, (_, port) = self._socket.accept()
                self.uids.append(_uid_of(port, self.port))
                far = socket.create_connection(("127.0.0.1", self._target))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_piped, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        self._socket.close()


def _piped(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One whose tasks reach this machine's loopback as their users, so that it can be seen who connects."""
    if os.geteuid() != 0:
        pytest.skip("only a cluster that root started serves several users")
    text = "c.EmbeddedCluster.extra_users = ['ada', 'mallory']\nc.EmbeddedCluster.task_network = 'host'\n"
    with tempfile.TemporaryDirectory(prefix="detlab-hostile-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with running_cluster(folder / "cluster", slots=1, config=text) as running:
            yield running


def stored(cluster: Cluster, ada: httpx.Client, behind: dict[str, Any], before: dict[str, Any], folder: Path) -> str:
    """Store a checkpoint and commit it, as a trial of ada's does; return its uuid."""
    experiment = submit(ada, checkpoint_storage=before)
    trial, token = task_of(cluster, ada, experiment)
    uuid = new_checkpoint_id(trial)
    store = from_config(behind)
    (folder / "sub").mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"weights" * 100_000)
    (folder / "sub" / "state.json").write_text("[1]")
    manifest = store.publish(uuid, {}, store.upload(folder, uuid))
    files = {path: {"size": file.size, "digest": file.digest} for path, file in manifest.files.items()}
    told = {"uuid": uuid, "steps_completed": 1, "files": files, "manifest_digest": manifest.digest}
    with api(cluster, token) as task:
        reply = task.post("task/checkpoints", json=told)
        assert reply.status_code == 200, reply.text
    ada.post(f"experiments/{experiment}/kill").raise_for_status()
    until(lambda: ada.get(f"experiments/{experiment}").json()["state"] == "CANCELED", "the experiment did not end")
    return uuid


def test_a_task_reads_for_its_owner_what_the_master_never_opens(cluster: Cluster, tmp_path: Path) -> None:
    """Such a checkpoint could be read with keys at hand alone; its keys were in the experiment's block."""
    with (
        s3_server(tmp_path) as server,
        contextlib.closing(Recorder(server.port)) as way,
        contextlib.ExitStack() as stack,
    ):
        token = cluster.make_token(*SCOPES, user="ada")
        ada = stack.enter_context(api(cluster, token))
        behind, before = server.block("ada"), server.block("ada", port=way.port)
        uuid = stored(cluster, ada, behind, before, tmp_path / "made")
        client = stack.enter_context(Client(cluster.service, token))
        found = client.get_checkpoint(uuid)
        with pytest.raises(DetlabError, match="--mode task"):
            found.download(tmp_path / "no", mode="master")
        found.delete()
        found.undelete()
        assert way.uids.count(0) == 0
        assert found.verify(mode="task") == []
        folder = found.download(tmp_path / "best", mode="task")
        assert (folder / "model.pt").read_bytes() == b"weights" * 100_000
        assert (folder / "sub" / "state.json").read_text() == "[1]"
        from_config(behind).delete_files(uuid, ["model.pt"])
        assert [(file.path, file.problem) for file in found.verify(mode="task")] == [("model.pt", "missing")]
        assert way.uids, "the tasks came by the way that is watched"
        assert 0 not in way.uids
        other = stack.enter_context(Client(cluster.service, cluster.make_token(*SCOPES, user="mallory")))
        with pytest.raises(DetlabError, match="there is no checkpoint"):
            other.get_checkpoint(uuid)
