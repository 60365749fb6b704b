"""Storage settings that can never work are refused at submit, with the right spelling; they failed in the trial."""

from __future__ import annotations

from typing import Any

import pytest
from schemas_problems import GOOD

from detlab.schemas.expconf import check, errors_of

S3, GCS, AZURE = {"type": "s3"}, {"type": "gcs"}, {"type": "azure", "connection_string": "AccountName=a"}
B = {**S3, "bucket": "b"}
FS = {"type": "shared_fs"}


def said(storage: dict[str, Any]) -> dict[str, tuple[str, str | None, str]]:
    found = check({**GOOD, "checkpoint_storage": storage}, complete=True)
    return {one.path.removeprefix("checkpoint_storage."): (one.message, one.hint, one.level) for one in found}


@pytest.mark.parametrize(
    ("storage", "key", "hint"),
    [
        ({**S3, "bucket": "s3://b/p/"}, "bucket", "type: s3, bucket: b, prefix: p"),
        ({**S3, "bucket": "s3://b"}, "bucket", "type: s3, bucket: b"),
        ({**S3, "bucket": "gs://b/p/q"}, "bucket", "type: gcs, bucket: b, prefix: p/q"),
        ({**GCS, "bucket": "GS://b/p"}, "bucket", "type: gcs, bucket: b, prefix: p"),
        ({**GCS, "bucket": "b/"}, "bucket", "bucket: b"),
        ({**GCS, "bucket": "/b/p//q"}, "bucket", "bucket: b, prefix: p/q"),
        ({**S3, "bucket": " b"}, "bucket", "bucket: b"),
        ({**S3, "bucket": "b\n"}, "bucket", "bucket: b"),
        ({**S3, "bucket": "my bucket"}, "bucket", "give the name alone; folders go into prefix"),
        ({**S3, "bucket": "b?x=1"}, "bucket", "give the name alone; folders go into prefix"),
        ({**S3, "bucket": "a..b"}, "bucket", "give the name alone; folders go into prefix"),
        ({**S3, "bucket": "~/ckpt"}, "bucket", None),
        ({"bucket": "s3://b/p"}, "bucket", "type: s3, bucket: b, prefix: p"),
        ({**AZURE, "container": "az://c/p"}, "container", "type: azure, container: c, prefix: p"),
        ({**AZURE, "container": "Models"}, "container", "container: models"),
        ({**AZURE, "container": "c/"}, "container", "container: c"),
        ({**B, "endpoint_url": "minio:9000"}, "endpoint_url", "endpoint_url: http://minio:9000 (https:// where"),
        ({**B, "endpoint_url": "127.0.0.1:9000/"}, "endpoint_url", "endpoint_url: http://127.0.0.1:9000/ (https"),
        ({**B, "endpoint_url": "[::1]:9000"}, "endpoint_url", "endpoint_url: http://[::1]:9000 (https"),
        ({**B, "endpoint_url": "s3.example.org"}, "endpoint_url", "endpoint_url: https://s3.example.org"),
        ({**B, "endpoint_url": "s3.example.org:443"}, "endpoint_url", "endpoint_url: https://s3.example.org:443"),
        ({**B, "endpoint_url": " http://minio:9000"}, "endpoint_url", "endpoint_url: http://minio:9000"),
        ({**B, "endpoint_url": "s3://b"}, "endpoint_url", "such as endpoint_url: https://minio.example.org:9000"),
        ({**B, "endpoint_url": "http://"}, "endpoint_url", None),
        ({**B, "endpoint_url": "http:/minio:9000"}, "endpoint_url", None),
        ({**B, "endpoint_url": "http://minio:port"}, "endpoint_url", None),
        ({**B, "endpoint_url": "http://minio:99999"}, "endpoint_url", None),
        ({**B, "endpoint_url": "http://[::1"}, "endpoint_url", None),
        ({**B, "endpoint_url": "http://minio:9000/?x=1"}, "endpoint_url", None),
        ({**GCS, "bucket": "b", "endpoint_url": "localhost:4443"}, "endpoint_url", None),
        ({"type": "azure", "container": "c", "account_url": "lab"}, "account_url", "https://lab.blob.core.windows.net"),
        ({**B, "prefix": "s3://b/p"}, "prefix", "such as prefix: team/checkpoints"),
        ({**B, "prefix": "a/../b"}, "prefix", None),
        ({**B, "prefix": "/../b"}, "prefix", None),
        ({**B, "prefix": "a//b"}, "prefix", "prefix: a/b"),
        ({**B, "prefix": "./a"}, "prefix", "prefix: a"),
        ({**B, "prefix": "a "}, "prefix", "prefix: a"),
        ({**B, "prefix": "~/a"}, "prefix", "prefix: team/checkpoints"),
        ({**B, "region": "eu central"}, "region", "such as region: eu-central-1"),
        ({**B, "ca_file": "~/lab.pem"}, "ca_file", "ca_file: /etc/ssl/certs/lab.pem"),
        ({**FS, "host_path": "~/ckpt"}, "host_path", "write the path out, such as host_path: /home/YOU/ckpt"),
        ({**FS, "host_path": "~ada/ckpt"}, "host_path", "write the path out, such as host_path: /home/YOU/ckpt"),
        ({**FS, "host_path": "$HOME/ckpt"}, "host_path", "write out host_path"),
        ({**FS, "host_path": "/home/${USER}"}, "host_path", "write out host_path"),
        ({**FS, "host_path": "ckpt/a"}, "host_path", "such as host_path: /ckpt/a"),
        ({**FS, "host_path": "./ckpt"}, "host_path", "such as host_path: /ckpt"),
        ({**FS, "host_path": "/data/ckpt "}, "host_path", "host_path: /data/ckpt"),
        ({**FS, "host_path": "/data/../ckpt"}, "host_path", "host_path: /ckpt"),
        ({**FS, "host_path": "s3://b/p"}, "host_path", "type: s3, bucket: b, prefix: p"),
        ({**FS, "host_path": "file:///data"}, "host_path", "such as host_path: /data"),
        ({**FS, "host_path": "/data", "storage_path": "~/a"}, "storage_path", None),
        ({"type": "directory", "container_path": "~/ckpt"}, "container_path", None),
        ({"type": "directory", "container_path": "ckpt"}, "container_path", "such as container_path: /ckpt"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_with_the_right_spelling(
    storage: dict[str, Any], key: str, hint: str | None
) -> None:
    found = said(storage)
    assert set(found) == {key}
    assert found[key][2] == "error"
    if hint is not None:
        assert hint in (found[key][1] or "")


@pytest.mark.parametrize(
    "storage",
    [
        {**S3, "bucket": "my.bucket-1_x"},
        {**B, "endpoint_url": "http://minio:9000"},
        {**B, "endpoint_url": "https://minio.example.org:9000/base/"},
        {**B, "prefix": "team/check points/é/"},
        {**GCS, "bucket": "b", "credential": '{"type": "service_account"}\n'},
        {**AZURE, "container": "$root"},
        {"type": "azure", "container": "c", "account_url": "http://127.0.0.1:10000/devstoreaccount1"},
        {"type": "azure", "container": "c", "account_url": "https://a.blob.core.windows.net?sv=1&sig=x"},
        {**FS, "host_path": "/data/check points/"},
        {"type": "fsspec", "url": "sftp://host/folder"},
    ],
)
def test_a_setting_that_works_is_taken(storage: dict[str, Any]) -> None:
    assert said(storage) == {}


def test_a_leading_slash_of_a_prefix_is_said_to_be_left_out() -> None:
    assert said({**B, "prefix": "/team/a"})["prefix"][1:] == ("prefix: team/a", "warning")


@pytest.mark.parametrize("key", ["secret_key", "session_token"])
def test_a_key_with_a_line_end_is_refused_and_never_shown(key: str) -> None:
    storage = {**B, "access_key": "AKIA", "secret_key": "x", key: "hunter2hunter2\n"}
    found = said(storage)
    assert set(found) == {key}
    assert "hunter2" not in str(found)
    assert "hunter2" not in str(said({**B, "endpoint_url": "https://me:hunter2@minio:9000"}))


def test_all_mistakes_are_told_at_once_and_none_of_a_foreign_type() -> None:
    assert set(said({**S3, "bucket": "b/", "endpoint_url": "minio:9000", "prefix": "a//b"})) == {
        "bucket",
        "endpoint_url",
        "prefix",
    }
    assert not errors_of(check({**GOOD, "checkpoint_storage": {"type": "s3", "bucket": "b"}}, complete=True))
