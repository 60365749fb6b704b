"""Event files that a trial uploaded to an object store, shown by a TensorBoard of the same user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from detlab.core.metrics.tensorboard import TensorboardManager, TensorboardMode
from detlab.run.stored_events import StoredEvents, open_objects
from detlab.run.tensorboard import Feeder
from detlab.storage import from_config
from detlab.storage.objects.client import Objects
from detlab.testing.storage_faults import files_of
from testbed.objectstores import faultproxy
from testbed.objectstores.faultproxy import FaultProxy
from testbed.objectstores.servers import ObjectServer

NAME = "tensorboard-c1-3-7"
FILE = "events.out.tfevents.1.node.0"


@pytest.fixture
def proxy(s3_proxy: FaultProxy) -> Iterator[FaultProxy]:
    s3_proxy.reset()
    yield s3_proxy
    s3_proxy.reset()


@pytest.fixture
def block(s3_server: ObjectServer, proxy: FaultProxy, prefix: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """As the master shows it, on a node that has credentials of its own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("JUPYTERHUB_USER", "alice")
    return s3_server.block(prefix, port=proxy.port, access_key="********", secret_key="********")


@pytest.fixture
def objects(block: dict[str, Any]) -> Objects:
    found = open_objects(block)
    assert found is not None
    return found


def grown(folder: Path, objects: Objects, block: dict[str, Any], data: bytes, name: str = FILE) -> None:
    """Let a trial write more, and upload it as the trainer does."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("ab") as file:
        file.write(data)
    store = from_config({**block, "access_key": "key", "secret_key": "secret"})
    TensorboardManager(folder, TensorboardMode.MANUAL, 0, store, NAME).sync()


def test_only_what_is_new_is_fetched(
    objects: Objects, block: dict[str, Any], proxy: FaultProxy, tmp_path: Path
) -> None:
    events = StoredEvents(objects, 1 << 20)
    grown(tmp_path / "in", objects, block, b"a" * 1000)
    grown(tmp_path / "in", objects, block, b"rank", f"rank1/{FILE}")
    grown(tmp_path / "in", objects, block, b"no event file", "trace.json")
    events.copy(NAME, tmp_path / "out")
    assert files_of(tmp_path / "out") == {FILE: b"a" * 1000, f"rank1/{FILE}": b"rank"}
    grown(tmp_path / "in", objects, block, b"b" * 10)
    proxy.reset()
    events.copy(NAME, tmp_path / "out")
    assert (tmp_path / "out" / FILE).read_bytes() == b"a" * 1000 + b"b" * 10
    ranges = [asked.headers.get("range") for asked in proxy.seen if asked.path.partition("?")[0].endswith(FILE)]
    assert ranges == ["bytes=1000-1009"]
    proxy.reset()
    events.copy(NAME, tmp_path / "out")
    assert [asked.method for asked in proxy.seen] == ["GET"], "the list alone"


def test_a_file_that_became_shorter_stays_as_it_was(objects: Objects, block: dict[str, Any], tmp_path: Path) -> None:
    events = StoredEvents(objects, 1 << 20)
    grown(tmp_path / "in", objects, block, b"a" * 1000)
    events.copy(NAME, tmp_path / "out")
    objects.put(f"{NAME}/{FILE}", b"b" * 10)
    events.copy(NAME, tmp_path / "out")
    assert files_of(tmp_path / "out") == {FILE: b"a" * 1000}


def test_too_much_is_not_fetched_and_told_once(
    objects: Objects, block: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = StoredEvents(objects, 1000)
    grown(tmp_path / "in", objects, block, b"a" * 600)
    grown(tmp_path / "in", objects, block, b"b" * 600, "z.tfevents")
    for _ in range(2):
        events.copy(NAME, tmp_path / "out")
    assert files_of(tmp_path / "out") == {FILE: b"a" * 600}
    assert caplog.text.count("z.tfevents and later files are not shown") == 1


class _Hostile:
    """A store whose list names files elsewhere."""

    def list(self, prefix: str) -> Iterator[Any]:
        for name in ("../x.tfevents", "/x.tfevents", "a/../../x.tfevents", ""):
            yield SimpleNamespace(key=prefix + name, size=5)

    def get_range(self, *_: object) -> memoryview:
        raise AssertionError("nothing of it is fetched")


def test_names_that_lead_elsewhere_are_left_out(tmp_path: Path) -> None:
    StoredEvents(cast("Any", _Hostile()), 1000).copy(NAME, tmp_path / "out")
    assert files_of(tmp_path) == {}


def shown(block: dict[str, Any], folder: Path, owner: str = "alice") -> dict[str, bytes]:
    """What the feeder of alice's TensorBoard fetches of trial 7 of experiment 3, which has ended."""
    view = SimpleNamespace(config={"checkpoint_storage": block}, owner=owner)
    experiment = SimpleNamespace(id=3, view=view, state=SimpleNamespace(terminal=True))
    Feeder(cast("Any", None), folder, "c1")._copy(cast("Any", experiment), cast("Any", SimpleNamespace(trials={7})))
    return files_of(folder)


def test_a_tensorboard_shows_event_files_of_an_object_store(
    objects: Objects, block: dict[str, Any], tmp_path: Path
) -> None:
    grown(tmp_path / "in", objects, block, b"events")
    assert shown(block, tmp_path / "board") == {f"exp3/trial7/uploaded/{FILE}": b"events"}


def test_the_credentials_of_a_tensorboard_are_not_sent_where_another_users_block_says(
    block: dict[str, Any], proxy: FaultProxy, tmp_path: Path
) -> None:
    assert shown(block, tmp_path / "board", owner="mallory") == {}
    assert proxy.seen == []


def test_a_store_that_refuses_is_told_and_not_asked_again(
    block: dict[str, Any], proxy: FaultProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with proxy.failing(before=faultproxy.refusing(403, "AccessDenied", "not yours")):
        assert shown(block, tmp_path / "board") == {}
    assert "event files of experiment 3 are not shown" in caplog.text
    assert "not yours" in caplog.text
