"""`det checkpoint download --mode direct`, `verify` and `copy` from a user's own machine, on a real object store."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from detlab.cli.root import det
from detlab.client.client import Client
from detlab.client.transport.copying import store_of
from detlab.errors import CheckpointError, StorageError
from detlab.schemas.wire import CheckpointView
from detlab.storage import Manifest, from_config
from detlab.storage.objects.aws_profiles import profile_credentials, profile_region
from detlab.storage.objects.obstores import ObstoreObjects
from detlab.testing.storage_faults import files_of
from testbed.fake_master.api import FakeMaster
from testbed.objectstores import faultproxy
from testbed.objectstores.faultproxy import Answer, Asked, Cut, FaultProxy
from testbed.objectstores.servers import BUCKET, ObjectServer

BIG = bytes(range(256)) * (9 * 1024 * 4)
FILES = {"big.safetensors": BIG, "config.json": b'{"a": 1}', "optimizer/m.bin": b"x" * 1000, "empty": b""}
METADATA = {"steps_completed": 3}
MASK = "********"


@pytest.fixture
def proxy(s3_proxy: FaultProxy) -> Iterator[FaultProxy]:
    s3_proxy.reset()
    yield s3_proxy
    s3_proxy.reset()


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    with FakeMaster() as running:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            monkeypatch.setenv(name, str(tmp_path / name))
        monkeypatch.setenv("DET_URL", running.url)
        monkeypatch.setenv("DET_TOKEN", running.token)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.chdir(tmp_path)
        running.add_trial(running.add_experiment().id)
        yield running


@pytest.fixture
def client(master: FakeMaster) -> Iterator[Client]:
    with Client(master.url, master.token) as made:
        yield made


@pytest.fixture
def view(master: FakeMaster, s3_server: ObjectServer, proxy: FaultProxy, prefix: str, tmp_path: Path) -> CheckpointView:
    """Of a checkpoint that lies in the store, as the master shows it: without the secrets of its block."""
    block = s3_server.block(prefix, port=proxy.port)
    made = master.add_checkpoint(1, {**FILES, "metadata.json": json.dumps(METADATA, indent=2).encode()})
    manifest = stored(from_config(block), made.uuid, tmp_path / "source")
    facts = {
        "storage": {**block, "access_key": MASK, "secret_key": MASK},
        "manifest_digest": manifest.digest,
        "files": dict(manifest.files),
        "metadata": METADATA,
    }
    master.checkpoints[made.uuid] = found = made.model_copy(update=facts)
    proxy.reset()
    return found


def stored(store: Any, uuid: str, folder: Path, files: dict[str, bytes] = FILES) -> Manifest:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    manifest: Manifest = store.publish(uuid, METADATA, store.upload(folder, uuid))
    return manifest


def wanted() -> dict[str, bytes]:
    return {**FILES, "metadata.json": json.dumps(METADATA, indent=2).encode()}


def fetched(master: FakeMaster) -> list[Any]:
    return [asked for asked in master.requests if "/files/" in str(asked)]


def objects_of(proxy: FaultProxy, uuid: str) -> list[str]:
    """Return the names of the checkpoint's files that were asked for."""
    paths = {asked.path.partition("?")[0] for asked in proxy.seen if asked.method == "GET"}
    return sorted(path.partition(f"/{uuid}/")[2] for path in paths if f"/{uuid}/" in path)


def away(_: Asked) -> Answer | None:
    raise Cut


# --- download


def test_all_is_downloaded_past_the_master(
    master: FakeMaster, client: Client, view: CheckpointView, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    target = client.get_checkpoint(view.uuid).download(
        tmp_path / "best", "direct", progress=lambda *now: told.append(now)
    )
    assert files_of(target) == wanted()
    assert fetched(master) == []
    assert told[-1][0] == told[-1][1]


def test_a_part_is_downloaded_past_the_master_and_nothing_else_is_read(
    master: FakeMaster, client: Client, view: CheckpointView, proxy: FaultProxy, tmp_path: Path
) -> None:
    item = client.get_checkpoint(view.uuid)
    target = item.download(tmp_path / "part", "direct", globs=["*.json", "optimizer/"])
    assert sorted(files_of(target)) == ["config.json", "metadata.json", "optimizer/m.bin"]
    assert objects_of(proxy, view.uuid) == ["config.json", "manifest.json", "metadata.json", "optimizer/m.bin"]
    assert files_of(item.download(target, "direct")) == wanted(), "an unchanged part is replaced by the whole"


def test_an_interrupted_direct_download_goes_on(
    client: Client, view: CheckpointView, proxy: FaultProxy, tmp_path: Path
) -> None:
    item = client.get_checkpoint(view.uuid)
    denied = faultproxy.refusing(403, "AccessDenied", "not now")
    with (
        proxy.failing(before=lambda asked: denied(asked) if "/optimizer/" in asked.path else None),
        pytest.raises(StorageError, match="not now"),
    ):
        item.download(tmp_path / "best", "direct")
    assert not (tmp_path / "best").exists()
    assert files_of(item.download(tmp_path / "best", "direct")) == wanted()
    assert objects_of(proxy, view.uuid) == ["manifest.json", "metadata.json", "optimizer/m.bin"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".best") and path.is_dir()] == []


def test_a_bit_that_flips_on_its_way_is_fetched_again_and_one_in_the_store_is_told(
    client: Client, view: CheckpointView, proxy: FaultProxy, tmp_path: Path
) -> None:
    item = client.get_checkpoint(view.uuid)
    with proxy.failing(after=faultproxy.flipping("big.safetensors", 1)):
        assert files_of(item.download(tmp_path / "best", "direct")) == wanted()
    with (
        proxy.failing(after=faultproxy.flipping("big.safetensors", 1000)),
        pytest.raises(CheckpointError, match=r"big\.safetensors"),
    ):
        item.download(tmp_path / "worse", "direct")
    assert not (tmp_path / "worse").exists()


@pytest.mark.soak
def test_a_store_that_does_not_answer_is_left_for_the_master(
    master: FakeMaster, client: Client, view: CheckpointView, proxy: FaultProxy, tmp_path: Path, monkeypatch: Any
) -> None:
    """A laptop has credentials, and no way to the store: nobody waits for an hour."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    item = client.get_checkpoint(view.uuid)
    with proxy.failing(before=away):
        began = time.monotonic()
        assert files_of(item.download(tmp_path / "best")) == wanted()
        assert time.monotonic() - began < 40
        assert proxy.seen, "it was tried"
    assert fetched(master)


def test_what_the_master_did_not_commit_is_refused(
    master: FakeMaster, client: Client, view: CheckpointView, tmp_path: Path
) -> None:
    master.checkpoints[view.uuid] = view.model_copy(update={"manifest_digest": "sha256:" + "0" * 64})
    with pytest.raises(CheckpointError, match=r"manifest\.json .* is not the one that was committed"):
        client.get_checkpoint(view.uuid).download(tmp_path / "best", "direct")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_address_of_the_environment_is_taken_with_the_bucket_in_the_path(
    master: FakeMaster,
    client: Client,
    view: CheckpointView,
    proxy: FaultProxy,
    monkeypatch: Any,
    tmp_path: Path,
    name: str,
) -> None:
    """A block without endpoint_url, on a machine whose AWS_ENDPOINT_URL names a MinIO."""
    block = {key: value for key, value in view.storage.items() if key != "endpoint_url"}
    master.checkpoints[view.uuid] = view.model_copy(update={"storage": block})
    monkeypatch.setenv(name, proxy.url)
    assert files_of(client.get_checkpoint(view.uuid).download(tmp_path / "best")) == wanted()
    assert fetched(master) == []


@pytest.mark.parametrize("profile", ["", "lab"])
def test_keys_of_the_aws_command_are_this_machines_credentials(
    view: CheckpointView,
    client: Client,
    s3_server: ObjectServer,
    proxy: FaultProxy,
    monkeypatch: Any,
    tmp_path: Path,
    profile: str,
) -> None:
    """As `aws configure` writes them, which is what most people have; obstore itself does not read these files."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    keys = "aws_access_key_id = AKIAFILE{0}\naws_secret_access_key = s%cret{0}\naws_session_token = t\n"
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(f"[default]\n{keys.format(0)}[lab]\n{keys.format(1)}")
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-north-1\n[profile lab]\nregion = eu-south-2\n")
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    assert files_of(client.get_checkpoint(view.uuid).download(tmp_path / "best")) == wanted()
    signed = {asked.headers["authorization"].partition("Credential=")[2].partition(",")[0] for asked in proxy.seen}
    who, where = ("AKIAFILE1", "eu-south-2") if profile else ("AKIAFILE0", "eu-north-1")
    assert {tuple(one.split("/")[::2]) for one in signed} == {(who, where, "aws4_request")}
    assert all(asked.headers.get("x-amz-security-token") == "t" for asked in proxy.seen)


def test_keys_of_a_profiles_program_are_read_by_boto3(
    view: CheckpointView, client: Client, proxy: FaultProxy, monkeypatch: Any, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    keys = {"Version": 1, "AccessKeyId": "AKIAPROGRAM", "SecretAccessKey": "s"}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    (tmp_path / "config").write_text(f"[profile lab]\ncredential_process = cat {tmp_path}/keys.json\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    assert files_of(client.get_checkpoint(view.uuid).download(tmp_path / "best")) == wanted()
    assert proxy.seen
    assert all("=AKIAPROGRAM/" in asked.headers["authorization"] for asked in proxy.seen)


def test_a_profile_that_gives_no_keys_says_so(monkeypatch: Any, tmp_path: Path, own_node: None) -> None:
    (tmp_path / "config").write_text("[profile lab]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = gone\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    with pytest.raises(StorageError, match="the AWS profile 'lab' gives no keys"):
        from_config({"type": "s3", "bucket": "b"})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    from_config({"type": "s3", "bucket": "b"})


@pytest.mark.parametrize(
    "text", ["", "[default]\nregion", "no section", "\x00[default", "[default]\naws_access_key_id = x"]
)
def test_files_that_are_not_ours_to_read_are_left_alone(monkeypatch: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    assert profile_credentials() is None
    assert profile_region() is None


# --- verify


def test_every_byte_is_verified_past_the_master(
    master: FakeMaster, client: Client, view: CheckpointView, proxy: FaultProxy
) -> None:
    told: list[int] = []
    assert client.get_checkpoint(view.uuid).verify("direct", progress=lambda done, _: told.append(done)) == []
    assert told[-1] == sum(map(len, wanted().values()))
    assert objects_of(proxy, view.uuid) == sorted([*(name for name, data in wanted().items() if data), "manifest.json"])
    assert fetched(master) == []


def test_what_was_altered_or_removed_in_the_store_is_named(
    client: Client, view: CheckpointView, proxy: FaultProxy
) -> None:
    raw = boto3.client("s3", endpoint_url=proxy.url, region_name="us-east-1")
    root = f"{view.storage['prefix']}/{view.uuid}"
    raw.put_object(Bucket=BUCKET, Key=f"{root}/config.json", Body=b'{"a": 2}')
    raw.put_object(Bucket=BUCKET, Key=f"{root}/empty", Body=b"!")
    raw.put_object(Bucket=BUCKET, Key=f"{root}/big.safetensors", Body=BIG[:-1])
    raw.delete_object(Bucket=BUCKET, Key=f"{root}/optimizer/m.bin")
    found = {bad.path: (bad.problem, bad.detail) for bad in client.get_checkpoint(view.uuid).verify("direct")}
    assert {path: problem for path, (problem, _) in found.items()} == {
        "big.safetensors": "altered",
        "config.json": "altered",
        "empty": "altered",
        "optimizer/m.bin": "missing",
    }
    assert found["big.safetensors"][1] == f"{len(BIG) - 1} bytes, {len(BIG)} were stored"


def test_det_checkpoint_verify_says_so_and_fails(view: CheckpointView, proxy: FaultProxy) -> None:
    with proxy.failing(after=faultproxy.flipping("config.json", 1)):
        result = run("checkpoint", "verify", view.uuid, "--mode", "direct")
    assert result.exit_code == 1
    assert "1 of 5 files not as committed" in result.output
    assert "config.json" in result.output
    result = run("checkpoint", "verify", view.uuid, "--mode", "direct")
    assert result.exit_code == 0, result.output
    assert "all as committed" in result.output


def run(*words: str) -> Result:
    return CliRunner().invoke(det, words)


# --- copy


@pytest.fixture
def other(view: CheckpointView, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address in the store that the environment names."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    return f"s3://{BUCKET}/{view.storage['prefix']}-copies"


@pytest.mark.parametrize("mode", ["direct", "master"])
def test_det_checkpoint_copy_to_an_address(view: CheckpointView, other: str, mode: str, tmp_path: Path) -> None:
    for _ in range(2):
        result = run("checkpoint", "copy", view.uuid, "--to", other, "--mode", mode)
        assert result.exit_code == 0, result.output
        assert f"Copied checkpoint {view.uuid}" in result.output
    there = store_of(other)
    assert there.manifest(view.uuid).digest == view.manifest_digest
    there.download(view.uuid, tmp_path / "again", there.manifest(view.uuid))
    assert files_of(tmp_path / "again") == wanted()


def test_a_copy_that_was_killed_goes_on(
    client: Client, view: CheckpointView, other: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed leaves a claim on a large file; the next copy has the same bytes and must get past it."""
    item = client.get_checkpoint(view.uuid)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ObstoreObjects, "put_parts", killed)
        with pytest.raises(KeyboardInterrupt):
            item.copy(other, "direct")
    assert any("/.writing/" in name for name in names_in(proxy, view)), "the claim is there"
    assert item.copy(other, "direct") == view.manifest_digest
    assert names_in(proxy, view) == {f"{view.uuid}/{name}" for name in (*wanted(), "manifest.json")}


def test_a_copy_that_cannot_be_written_says_why_and_leaves_nothing(
    client: Client, view: CheckpointView, other: str, proxy: FaultProxy
) -> None:
    item = client.get_checkpoint(view.uuid)
    denied = faultproxy.refusing(403, "AccessDenied", "not yours")
    with (
        proxy.failing(before=lambda asked: denied(asked) if asked.method in {"PUT", "POST"} else None),
        pytest.raises(StorageError, match="not yours"),
    ):
        item.copy(other, "direct")
    assert names_in(proxy, view) == set()


def names_in(proxy: FaultProxy, view: CheckpointView) -> set[str]:
    """Return the keys below the prefix of the copies."""
    raw = boto3.client("s3", endpoint_url=proxy.url, region_name="us-east-1")
    prefix = f"{view.storage['prefix']}-copies/"
    found = raw.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return {entry["Key"].removeprefix(prefix) for entry in found}
