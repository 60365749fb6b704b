"""Object stores that are away, busy, slow, wrong or lie: S3 at a proxy that fails on demand."""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detlab.errors import CheckpointError, CheckpointMissing, StorageDenied, StorageError
from detlab.storage import from_config
from detlab.storage.objects.client import StoreAway
from detlab.storage.objects.obstores import ObstoreObjects, s3_objects
from detlab.storage.objects.store import ObjectStorage
from detlab.testing.storage import METADATA, UUID
from testbed.objectstores import faultproxy, servers
from testbed.objectstores.faultproxy import Answer, Asked, Cut, FaultProxy
from testbed.objectstores.servers import ObjectServer

BIG = 20 * 1024 * 1024
QUICK = {"quick": 2, "patient": 2}


@pytest.fixture
def proxy(s3_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """Without faults to begin with."""
    s3_proxy.reset()
    yield s3_proxy
    s3_proxy.reset()


@pytest.fixture
def block(s3_server: ObjectServer, proxy: FaultProxy, prefix: str) -> dict[str, Any]:
    """By way of the proxy."""
    return s3_server.block(prefix, port=proxy.port)


@pytest.fixture
def store(block: dict[str, Any]) -> ObjectStorage:
    """One whose client gives up after two seconds, so that what is above it has something to do."""
    return ObjectStorage(s3_objects(block, seconds=QUICK), patience=30.0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small file and one of several parts."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "small").write_bytes(b"s" * 1000)
    with (folder / "big").open("wb") as file:
        for number in range(BIG // 65536):
            file.write(number.to_bytes(4, "big") * 16384)
    return folder


def stored(store: ObjectStorage, source: Path, uuid: str = UUID) -> Any:
    return store.publish(uuid, METADATA, store.upload(source, uuid))


def _outcome(store: ObjectStorage, source: Path, uuid: str) -> object:
    try:
        return stored(store, source, uuid)
    except StorageError as error:
        return error


def same(store: ObjectStorage, source: Path, target: Path) -> bool:
    store.download(UUID, target, store.manifest(UUID))
    return all((target / name).read_bytes() == (source / name).read_bytes() for name in ("small", "big"))


# --- not now


def test_uploads_and_downloads_go_on_after_the_store_was_away(
    store: ObjectStorage, proxy: FaultProxy, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        proxy.failing(faultproxy.away_until(lambda: "goes on when it does" in caplog.text)),
    ):
        stored(store, source)
    assert "goes on when it does" in caplog.text
    with proxy.failing(faultproxy.away(3.0)):
        assert same(store, source, tmp_path / "target")


def test_a_store_that_stays_away_is_given_up_and_nothing_is_published(
    block: dict[str, Any], proxy: FaultProxy, source: Path
) -> None:
    store = ObjectStorage(s3_objects(block, seconds={"quick": 0, "patient": 0}), patience=1.0)
    with proxy.failing(faultproxy.away(600.0)), pytest.raises(StoreAway, match="cannot"):
        stored(store, source)
    assert store.uuids() == []


@pytest.mark.parametrize("status", [503, 429, 500])
def test_a_busy_store_is_asked_again(
    store: ObjectStorage, proxy: FaultProxy, source: Path, tmp_path: Path, status: int
) -> None:
    with proxy.failing(faultproxy.busy(6, status)):
        stored(store, source)
    with proxy.failing(faultproxy.busy(4, status)):
        assert same(store, source, tmp_path / "target")


def test_a_busy_store_says_so_in_its_own_words(block: dict[str, Any], proxy: FaultProxy) -> None:
    objects = s3_objects(block, seconds={"quick": 0, "patient": 0})
    with proxy.failing(faultproxy.busy(100)), pytest.raises(StoreAway, match="SlowDown: Please reduce"):
        objects.get("x")


def test_a_slow_link_takes_its_time(store: ObjectStorage, proxy: FaultProxy, source: Path, tmp_path: Path) -> None:
    proxy.rate = 8 * 1024 * 1024
    stored(store, source)
    assert same(store, source, tmp_path / "target")


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_an_answer_that_is_lost_does_not_look_like_another_writer(
    store: ObjectStorage, proxy: FaultProxy, source: Path, tmp_path: Path, method: str
) -> None:
    """Each object is created; asked again, the store finds it there."""
    lost: set[str] = set()

    def after(asked: Asked, answer: Answer) -> Answer:
        if asked.method == method and asked.path not in lost and "uploads" not in asked.path:
            lost.add(asked.path)
            raise Cut
        return answer

    with proxy.failing(after=after):
        stored(store, source)
    assert lost
    assert same(store, source, tmp_path / "target")


# --- credentials


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """moto that checks signatures and knows nobody, after it has made the bucket."""
    with servers.s3_server(tmp_path_factory.mktemp("strict"), INITIAL_NO_AUTH_ACTION_COUNT="1") as server:
        yield server


def test_wrong_keys_are_told_in_the_words_of_the_store(strict_server: ObjectServer, source: Path, prefix: str) -> None:
    store = from_config(strict_server.block(prefix, secret_key="mine-alone"))
    assert isinstance(store, ObjectStorage)
    for call in (store.check, lambda: stored(store, source), lambda: store.manifest(UUID), store.uuids):
        with pytest.raises(StorageDenied, match="InvalidAccessKeyId: The AWS Access Key Id you provided") as caught:
            call()
        assert "mine-alone" not in str(caught.value)
        assert "check the keys" in str(caught.value)


def test_keys_that_are_not_allowed_to_are_told(block: dict[str, Any], proxy: FaultProxy, source: Path) -> None:
    denied = faultproxy.refusing(403, "AccessDenied", "User is not authorized to perform: s3:PutObject")
    with proxy.failing(denied), pytest.raises(StorageDenied, match="AccessDenied: User is not authorized"):
        stored(ObjectStorage(s3_objects(block)), source)


def _checking(valid: list[str]) -> faultproxy.Before:
    def before(asked: Asked) -> Answer | None:
        if f"Credential={valid[0]}/" in asked.headers.get("authorization", asked.headers.get("Authorization", "")):
            return None
        return faultproxy.refusing(400, "ExpiredToken", "The provided token has expired.")(asked)

    return before


def test_credentials_that_expire_during_an_upload_are_renewed(
    block: dict[str, Any], proxy: FaultProxy, source: Path, tmp_path: Path
) -> None:
    """Short-lived ones come from a provider; each lives for half a second here."""
    given: list[str] = []
    valid = ["none"]

    def provide() -> dict[str, Any]:
        given.append(f"KEY{len(given)}")
        valid[0] = given[-1]
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.5)
        return {"access_key_id": given[-1], "secret_access_key": "s", "token": "t", "expires_at": expires}

    store = ObjectStorage(s3_objects(block, credentials=provide), patience=30.0)
    with proxy.failing(_checking(valid)):
        proxy.rate = 16 * 1024 * 1024
        stored(store, source)
        assert same(store, source, tmp_path / "target")
    assert len(given) > 2


def test_fixed_credentials_that_have_expired_are_told(block: dict[str, Any], proxy: FaultProxy, source: Path) -> None:
    with proxy.failing(_checking(["new"])), pytest.raises(StorageDenied, match="ExpiredToken") as caught:
        stored(ObjectStorage(s3_objects(block), patience=30.0), source)
    assert "get new ones" in str(caught.value)


# --- what is not as it was stored


def test_a_byte_that_flips_on_its_way_is_found_and_fetched_again(
    store: ObjectStorage, proxy: FaultProxy, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored(store, source)
    with proxy.failing(after=faultproxy.flipping("/big", 1)):
        assert same(store, source, tmp_path / "target")
    assert "big of checkpoint" in caplog.text
    with (
        proxy.failing(after=faultproxy.flipping("/big", 100)),
        pytest.raises(CheckpointError, match=r"big of checkpoint .* is altered"),
    ):
        store.download(UUID, tmp_path / "other", store.manifest(UUID))
    assert not (tmp_path / "other" / "big").exists()


def test_an_object_that_is_missing_is_named_before_and_after_the_publication(
    store: ObjectStorage, source: Path, tmp_path: Path
) -> None:
    part = store.upload(source, UUID)
    store.objects.delete([f"{UUID}/big"])
    with pytest.raises(CheckpointError, match=f"big of checkpoint {UUID} was stored by a rank"):
        store.publish(UUID, METADATA, part)
    assert store.uuids() == []
    store.discard(UUID)
    manifest = stored(store, source)
    store.objects.delete([f"{UUID}/big"])
    with pytest.raises(CheckpointMissing, match="big"):
        store.download(UUID, tmp_path / "target", manifest)


def test_a_download_goes_on_where_it_was_interrupted(
    store: ObjectStorage, proxy: FaultProxy, source: Path, tmp_path: Path
) -> None:
    manifest = stored(store, source)
    store.download(UUID, tmp_path / "target", manifest, selector=lambda name: name == "big")
    with proxy.failing():
        store.download(UUID, tmp_path / "target", manifest)
        assert not [asked for asked in proxy.seen if "/big" in asked.path]


def test_a_list_that_lags_behind_hides_nothing(
    store: ObjectStorage, proxy: FaultProxy, source: Path, tmp_path: Path
) -> None:
    """What is not listed is looked at by its key; and it is removed, because the manifest names it."""
    with proxy.failing(after=faultproxy.empty_lists):
        manifest = stored(store, source)
        assert store.file_sizes(UUID, manifest.files) == {name: entry.size for name, entry in manifest.files.items()}
        assert same(store, source, tmp_path / "target")
        store.delete(UUID)
    assert [info.key for info in store.objects.list(f"{UUID}/")] == []


# --- two at once


@pytest.mark.parametrize(("files", "size"), [(6, 300), (1, 9 * 1024 * 1024)], ids=["small", "in parts"])
def test_of_two_writers_of_one_uuid_one_publishes_and_the_other_is_told(
    block: dict[str, Any], tmp_path: Path, files: int, size: int
) -> None:
    """Whoever is first at a file keeps it; what is listed is one writer's, whole."""
    folders = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(files):
            (tmp_path / name / f"shard{number}").write_text(name * (size // 3))
        folders.append(tmp_path / name)
    for round_ in range(5):
        uuid = f"{UUID[:-1]}{round_}"
        outcomes: list[object] = []

        def write(folder: Path, uuid: str = uuid, outcomes: list[object] = outcomes) -> None:
            outcomes.append(_outcome(ObjectStorage(s3_objects(block)), folder, uuid))

        threads = [threading.Thread(target=write, args=(folder,)) for folder in folders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        reader = ObjectStorage(s3_objects(block))
        errors = [outcome for outcome in outcomes if isinstance(outcome, StorageError)]
        assert errors, "both have published"
        assert all("another process" in error.message for error in errors)
        if len(errors) == 1:
            reader.download(uuid, tmp_path / uuid, reader.manifest(uuid))
            found = {path.read_text() for path in (tmp_path / uuid).glob("shard*")}
            assert found in [{name * (size // 3)} for name in ("one", "two")]
        else:
            assert uuid not in reader.uuids()


def test_a_second_publisher_of_the_same_files_does_not_replace_the_metadata(
    block: dict[str, Any], source: Path
) -> None:
    first, second = (ObjectStorage(s3_objects(block)) for _ in range(2))
    parts = first.upload(source, UUID), second.upload(source, UUID)
    manifest = first.publish(UUID, {"steps_completed": 1}, parts[0])
    with pytest.raises(StorageError, match="already"):
        second.publish(UUID, {"steps_completed": 2}, parts[1])
    assert second.manifest(UUID) == manifest
    assert second.publish(UUID, {"steps_completed": 1}, parts[1]) == manifest, "as if an answer had been lost"


def test_a_late_writer_does_not_replace_what_is_sent_in_parts_and_published(
    block: dict[str, Any], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before the other one published, and goes on after that."""
    first, late = (ObjectStorage(s3_objects(block)) for _ in range(2))
    late._begin(UUID)
    manifest = stored(first, source)
    monkeypatch.setattr(late, "_begin", lambda uuid: None)
    (source / "big").write_bytes(b"another" * (BIG // 7))
    with pytest.raises(StorageError, match="another"):
        late.upload(source, UUID)
    with first.restore_path(UUID, manifest):
        pass


# --- places that are none


def test_a_bucket_that_does_not_exist_is_told(s3_server: ObjectServer, source: Path, prefix: str) -> None:
    store = from_config({**s3_server.block(prefix), "bucket": "nowhere"})
    assert isinstance(store, ObjectStorage)
    calls = (store.check, lambda: store.upload(source, UUID), lambda: store.manifest(UUID), store.uuids)
    for call in (*calls, lambda: store.delete(UUID)):
        with pytest.raises(StorageError, match="NoSuchBucket: The specified bucket does not exist") as caught:
            call()
        assert not isinstance(caught.value, CheckpointMissing)


def test_a_container_that_does_not_exist_is_told(azure_server: ObjectServer, source: Path, prefix: str) -> None:
    store = from_config({**azure_server.block(prefix), "container": "nowhere"})
    assert isinstance(store, ObjectStorage)
    for call in (store.check, lambda: store.upload(source, UUID), lambda: store.manifest(UUID)):
        with pytest.raises(StorageError, match="container does not exist"):
            call()


def test_a_wrong_azure_key_is_told(azure_server: ObjectServer, prefix: str) -> None:
    store = from_config({**azure_server.block(prefix), "credential": "d3Jvbmc="})
    assert isinstance(store, ObjectStorage)
    with pytest.raises(StorageDenied, match=r"Authorization|Authentication") as caught:
        store.check()
    assert "d3Jvbmc=" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code"), [(301, "PermanentRedirect"), (400, "AuthorizationHeaderMalformed")], ids=["moved", "signed"]
)
def test_a_bucket_of_another_region_is_told(block: dict[str, Any], proxy: FaultProxy, status: int, code: str) -> None:
    """moto has all regions in one place, so that the proxy says what S3 does."""
    words = "the region 'us-east-1' is wrong; expecting 'eu-central-1'"
    with proxy.failing(faultproxy.refusing(status, code, words)), pytest.raises(StorageError) as caught:
        ObjectStorage(s3_objects(block)).check()
    assert ("redirect" if status == 301 else words) in str(caught.value)
    assert "checkpoint_storage.region" in str(caught.value)


# --- what nobody finishes


def test_what_a_dead_writer_left_is_swept_when_it_is_old(store: ObjectStorage, source: Path) -> None:
    """Marked or not, and only if nothing was published."""
    other, third = (f"{UUID[:-1]}{number}" for number in (1, 2))
    store.mark(UUID, "c1-7", 1)
    store.upload(source, UUID)
    store.upload(source, other)
    stored(store, source, third)
    later = time.time() + 8 * 86400
    assert store.sweep(7 * 86400.0) == []
    again = ObjectStorage(store.objects)
    assert again.sweep(7 * 86400.0, clock=lambda: later) == sorted([UUID, other])
    left = {info.key.split("/")[0] for info in store.objects.list("")}
    assert left == {third}


def test_an_upload_that_fails_leaves_no_parts_behind(
    store: ObjectStorage, s3_server: ObjectServer, proxy: FaultProxy, source: Path, prefix: str
) -> None:
    def before(asked: Asked) -> Answer | None:
        if "partNumber=2" in asked.path:
            return faultproxy.refusing(403, "AccessDenied", "no")(asked)
        return None

    with proxy.failing(before), pytest.raises(StorageDenied):
        store.upload(source, UUID)
    _, body = servers.ask(
        s3_server.port, "GET", f"/{servers.BUCKET}?uploads", {"Authorization": servers._KEYS.format("k")}
    )
    assert f"{prefix}/{UUID}".encode() not in body


def test_the_last_part_of_a_checkpoint_is_read_without_the_rest(
    store: ObjectStorage, proxy: FaultProxy, source: Path
) -> None:
    """As the master looks into a file: little is fetched, from any position."""
    stored(store, source)
    with proxy.failing():
        with store.open_file(UUID, "big") as file:
            assert file.seek(-8, 2) == BIG - 8
            assert file.read() == (source / "big").read_bytes()[-8:]
            file.seek(1_000_000)
            assert file.read(1000) == (source / "big").read_bytes()[1_000_000:1_001_000]
        assert isinstance(store.objects, ObstoreObjects)
        assert len([asked for asked in proxy.seen if asked.method == "GET"]) <= 3
    with store.open_file(UUID, "big") as file:
        assert file.read() == (source / "big").read_bytes()
