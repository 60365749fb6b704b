"""Names that a file system hardly takes: refused when they are stored, or there again after a download."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from detlab.errors import CheckpointError, StorageError
from detlab.storage import DirectoryStorage, StorageManager, files, from_config
from detlab.storage.objects.client import StoreRefused
from detlab.storage.objects.words import error_of
from detlab.testing.storage import METADATA, UUID


@pytest.fixture(params=["directory", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StorageManager:
    """Files, and the code of object stores."""
    blocks: dict[str, dict[str, Any]] = {
        "directory": {"type": "directory", "container_path": str(tmp_path / "root")},
        "fsspec": {"type": "fsspec", "url": f"file://{tmp_path}/objects"},
    }
    return from_config(blocks[request.param])


NAMES = [
    *("a" * length for length in (1, 200, 247, 248, 252, 254, 255)),
    "é" * 127,
    "猫" * 85,
    ".hidden",
    "a.partial",
    "d" * 255 + "/" + "e" * 255,
    " leading and trailing ",
    "%0A and %25",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{len(name.encode())}-{name[:6]!r}")
def test_every_name_that_is_stored_comes_back(store: StorageManager, tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    (source / name).parent.mkdir(parents=True)
    (source / name).write_bytes(b"x")
    store.upload(source, UUID)
    store.publish(UUID, METADATA, None)
    target = tmp_path / "target"
    store.download(UUID, target, store.manifest(UUID))
    assert (target / name).read_bytes() == b"x"
    assert sorted(path.name for path in (target / name).parent.iterdir() if path.name.endswith(".partial")) == (
        [name] if name.endswith(".partial") else []
    )


def test_names_that_differ_in_case_or_spelling_stay_two(store: StorageManager, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    names = ["a", "A", "é", "e\u0301", "ß", "ss"]
    for name in names:
        (source / name).write_text(name)
    store.upload(source, UUID)
    store.publish(UUID, METADATA, None)
    store.download(UUID, tmp_path / "target", store.manifest(UUID))
    assert [(tmp_path / "target" / name).read_text() for name in names] == names


@pytest.mark.parametrize("pair", [("a", "A"), ("é", "e\u0301"), ("ﬁ/x", "FI/x"), ("Straße", "STRASSE")])
def test_a_file_system_that_takes_two_names_for_one_is_told(tmp_path: Path, pair: tuple[str, str]) -> None:
    for name in pair:
        (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / pair[0]).write_text("x")
    (tmp_path / pair[1]).hardlink_to(tmp_path / pair[0])  # as such a file system shows it
    with pytest.raises(CheckpointError, match="one name on the file system"):
        files.check_apart(tmp_path, [*pair, pair[0]])


def test_what_cannot_come_back_is_refused_before_the_upload(store: StorageManager, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    deep = os.open(source, os.O_RDONLY)
    for _ in range(5):  # 5 x 250 characters of three bytes each
        os.mkdir("猫" * 80, dir_fd=deep)
        inner = os.open("猫" * 80, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    for _ in range(10):
        os.mkdir("猫" * 80, dir_fd=deep)
        inner = os.open("猫" * 80, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)
    with pytest.raises(CheckpointError, match=r"has over 1024 characters or 3072 bytes"):
        store.upload(source, UUID)


def test_a_name_that_is_no_utf8_is_refused(store: StorageManager, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / os.fsdecode(b"bad\xff")).write_bytes(b"x")
    with pytest.raises(CheckpointError, match="not valid UTF-8"):
        store.upload(source, UUID)


def test_a_target_whose_path_is_too_long_is_named(tmp_path: Path) -> None:
    store = DirectoryStorage(tmp_path / "root")
    source = tmp_path / "source"
    name = "/".join(["d" * 200] * 5)
    (source / name).parent.mkdir(parents=True)
    (source / name).write_bytes(b"x")
    store.upload(source, UUID)
    store.publish(UUID, METADATA, None)
    target = tmp_path / "/".join(["t" * 200] * 16)
    with pytest.raises(StorageError, match="bytes, too many for this system") as refused:
        store.download(UUID, target, store.manifest(UUID))
    assert "shorter path" in str(refused.value.hint)


@pytest.mark.parametrize("text", ['{"mine": 1}', "[1]", "no JSON", "", '{"steps_completed": "x"}', "[" * 100_000])
def test_a_metadata_json_of_the_user_s_own_is_never_lost_silently(
    store: StorageManager, tmp_path: Path, text: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "metadata.json").write_text(text)
    (source / "model.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="yours would be lost"):
        store.upload(source, UUID)
    (store.stage(UUID) / "metadata.json").write_text(text)
    with pytest.raises(CheckpointError, match="yours would be lost"):
        store.seal(UUID)


def test_a_folder_of_it_and_that_of_a_restored_checkpoint_are_stored(store: StorageManager, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "metadata.json").write_text("mine")
    (source / "metadata.json").write_text('{"steps_completed": 3, "of": "before"}')
    store.upload(source, UUID)
    store.publish(UUID, {"steps_completed": 4}, None)
    assert store.manifest(UUID).metadata == {"steps_completed": 4}
    store.download(UUID, tmp_path / "target", store.manifest(UUID))
    assert (tmp_path / "target" / "inner" / "metadata.json").read_text() == "mine"


ANSWER = "Server returned non-2xx status code: {}: <Error><Code>{}</Code><Message>{}</Message></Error>"


@pytest.mark.parametrize(
    ("status", "code", "message", "hint"),
    [
        ("403", "QuotaExceeded", "x", "the keys are right"),
        ("507", "XMinioStorageFull", "x", "the keys are right"),
        ("403", "XMinioAdminBucketQuotaExceeded", "x", "quota"),
        ("507 Insufficient Storage", "Whatever", "x", "quota"),
        ("403", "RequestTimeTooSkewed", "The difference between the request time is too large", "clock"),
        ("403", "AuthenticationFailed", "Request date header too old: 'x'", "clock"),
        ("404", "NoSuchBucket", "x", "make the bucket"),
        ("301", "PermanentRedirect", "x", "region"),
        ("400", "AuthorizationHeaderMalformed", "x", "region"),
        ("400", "ExpiredToken", "x", "expired"),
        ("403", "AccessDenied", "x", "may not do this"),
        ("403", "AuthorizationPermissionMismatch", "x", "may not do this"),
        ("403", "InvalidAccessKeyId", "x", "does not know the access key"),
        ("403", "SignatureDoesNotMatch", "x", "secret does not belong"),
        ("401", "Unauthorized", "x", "check the keys"),
    ],
)
@pytest.mark.parametrize("quoting", [True, False])
def test_what_to_do_is_said_by_what_is_wrong(status: str, code: str, message: str, hint: str, quoting: bool) -> None:
    error = error_of(ANSWER.format(status, code, message), "write", "s3://b/k", quoting=quoting)
    assert hint in str(error.hint)
    if hint in {"the keys are right", "quota"}:
        assert not isinstance(error, StoreRefused)
