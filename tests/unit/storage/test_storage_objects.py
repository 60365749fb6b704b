"""Object storages without a server: blocks, addresses, names, what is said of errors, waiting."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detlab.errors import StorageError
from detlab.schemas.expconf.raw.secret_keys import holds_secret
from detlab.storage import from_config, from_string
from detlab.storage.objects import kinds
from detlab.storage.objects.client import ObjectExists, ObjectMissing, StoreAway, StoreRefused
from detlab.storage.objects.obstores import _azure_settings
from detlab.storage.objects.store import ObjectStorage, _key
from detlab.storage.objects.transfers import Patience
from detlab.storage.objects.words import error_of
from detlab_hub.services.base.masking import masked_config, masked_storage, secrets_of

S3_ANSWER = (
    "Generic S3 error: Error performing list request: Error performing GET "
    "http://127.0.0.1:1/b?list-type=2&X-Amz-Signature=abc123 in 2ms - Server returned non-2xx status code: {status}: "
    "<Error><Code>{code}</Code><Message>{message}</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>\n\n"
    "Debug source:\nGeneric {{ secret: 'x' }}"
)


def said(status: str, code: str, message: str = "words", **how: bool) -> StorageError:
    return error_of(S3_ANSWER.format(status=status, code=code, message=message), "read", "s3://b/k", **how)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        ("403 Forbidden", "AccessDenied", StoreRefused),
        ("403 Forbidden", "SignatureDoesNotMatch", StoreRefused),
        ("400 Bad Request", "ExpiredToken", StoreRefused),
        ("503 Slow Down", "SlowDown", StoreAway),
        ("500 Internal Server Error", "InternalError", StoreAway),
        ("429 Too Many Requests", "TooManyRequests", StoreAway),
        ("404 Not Found", "NoSuchKey", ObjectMissing),
    ],
)
def test_an_answer_of_the_store_becomes_one_of_our_errors_in_its_own_words(
    status: str, code: str, kind: type[StorageError]
) -> None:
    error = said(status, code)
    assert type(error) is kind
    assert error.message == f"cannot read s3://b/k: {code}: words"


def test_a_bucket_that_does_not_exist_is_no_missing_object() -> None:
    error = said("404 Not Found", "NoSuchBucket", "The specified bucket does not exist", missing=True)
    assert type(error) is StorageError
    assert "NoSuchBucket: The specified bucket does not exist" in error.message
    assert "make the bucket" in str(error.hint)


@pytest.mark.parametrize("code", ["PermanentRedirect", "AuthorizationHeaderMalformed"])
def test_another_region_is_told(code: str) -> None:
    error = said("400 Bad Request", code)
    assert "region" in str(error.hint)
    assert not isinstance(error, StoreRefused | StoreAway)


def test_what_exists_is_told() -> None:
    assert isinstance(said("412 Precondition Failed", "PreconditionFailed", exists=True), ObjectExists)


def test_no_connection_is_a_store_that_is_away() -> None:
    text = "Generic S3 error: Error performing PUT http://h/b?sig=SECRET in 3s - HTTP error: error sending request"
    error = error_of(text, "write", "s3://b/k")
    assert isinstance(error, StoreAway)
    assert "SECRET" not in str(error)


def test_nothing_but_code_and_words_is_told() -> None:
    error = str(said("403 Forbidden", "AccessDenied"))
    assert not any(part in error for part in ("abc123", "AKIA", "secret:", "Debug"))
    answer = 'status code: 403 Forbidden: {"error": {"code": 403, "message": "no access", "status": "FORBIDDEN"}}'
    assert "FORBIDDEN: no access" in str(error_of(answer, "read", "gs://b"))


def test_google_without_credentials_is_told() -> None:
    text = "Generic GCS error: Error performing token request: Error performing GET http://metadata in 1ms"
    assert isinstance(error_of(text, "read", "gs://b"), StoreRefused)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"type": "s3"}, "bucket is missing"),
        ({"type": "gcs", "bucket": ""}, "bucket is missing"),
        ({"type": "azure"}, "container is missing"),
        ({"type": "azure", "container": "c"}, "neither connection_string nor account_url"),
        ({"type": "s3", "bucket": "s3://b/x"}, "not the name"),
        ({"type": "s3", "bucket": "b\nc"}, "not the name"),
        ({"type": "s3", "bucket": "b", "prefix": "a/../../other"}, "prefix"),
        ({"type": "s3", "bucket": "b", "prefix": "a//b"}, "prefix"),
        ({"type": "s3", "bucket": "b", "prefix": "a\x07b"}, "prefix"),
        ({"type": "s3", "bucket": "b", "access_key": "AKIA"}, "no secret_key"),
        ({"type": "s3", "bucket": "b", "ca_file": "/nowhere/ca.pem"}, "ca_file cannot be read"),
        ({"type": "s3", "bucket": "b", "ca_file": "/nowhere/\0"}, "ca_file cannot be read"),
        ({"type": "s3", "bucket": "b", "ca_file": "/dev/zero"}, "no file of at most"),
    ],
)
def test_a_block_that_cannot_be_used_is_refused_before_the_first_request(config: dict[str, Any], message: str) -> None:
    with pytest.raises(StorageError) as caught:
        from_config(config)
    assert message in str(caught.value)


def test_a_pipe_in_place_of_certificates_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="no file of at most"):
        from_config({"type": "s3", "bucket": "b", "ca_file": str(tmp_path / "pipe")})


MINIO = {"type": "s3", "bucket": "b", "endpoint_url": "https://minio.example.org"}
AZURE = {"type": "azure", "container": "c"}


def test_what_opens_a_store_in_its_address_is_masked() -> None:
    token = "sv=2024&sig=hunter2%3D"
    block = AZURE | {"account_url": f"https://a.blob.core.windows.net?{token}"}
    proxied = MINIO | {"endpoint_url": "https://user:hunter2@minio.example.org"}
    for one in (block, proxied):
        assert "hunter2" not in str(masked_storage(one))
        assert "hunter2" not in str(masked_config({"checkpoint_storage": one}))
    assert masked_storage(block)["account_url"].startswith("https://a.blob.core.windows.net?")
    assert masked_storage(MINIO) == MINIO
    assert secrets_of({"checkpoint_storage": block}) == [token]
    assert secrets_of({"checkpoint_storage": proxied}) == ["user:hunter2"]


@pytest.mark.parametrize("key", ["access_key", "secret_key", "session_token", "connection_string", "credential"])
def test_keys_with_secrets_are_masked(key: str) -> None:
    assert holds_secret(("checkpoint_storage", key))


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/A", "s3://bucket/A"),
        ("ms://account/container/a", "az://container/a"),
        ("az://container/a", "az://container/a"),
    ],
)
def test_addresses(address: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    found = from_string(address)
    assert isinstance(found, ObjectStorage)
    assert found.objects.where == where


@pytest.mark.parametrize("address", ["s3://bucket/a?access_key=A&secret_key=SECRET", "gs://bucket#SECRET"])
def test_an_address_with_a_query_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(StorageError, match="a query, which an address cannot have") as caught:
        from_string(address)
    assert "SECRET" not in str(caught.value)


def test_an_azure_address_without_an_account_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageError, match="which account"):
        from_string("az://container/a")


def test_connection_strings_and_accounts() -> None:
    text = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=k==;EndpointSuffix=core.windows.net"
    full = {"account_name": "a", "account_key": "k==", "endpoint": "https://a.blob.core.windows.net"}
    assert _azure_settings({"connection_string": text}) == full
    local = "AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:10000/a;"
    assert _azure_settings({"connection_string": local})["endpoint"] == "http://127.0.0.1:10000/a"
    url = "https://a.blob.core.windows.net"
    assert _azure_settings({"account_url": url, "credential": "k=="}) == full
    assert _azure_settings({"account_url": url, "credential": "?sv=1&sig=x"})["sas_key"] == "sv=1&sig=x"
    assert _azure_settings({"account_url": f"{url}?sv=1&sig=x"})["sas_key"] == "sv=1&sig=x"
    assert _azure_settings({"account_url": url}) == {"account_name": "a", "endpoint": url}


def test_clients_are_shared_by_block_and_bounded() -> None:
    first, again, other = (from_config({"type": "s3", "bucket": name}) for name in ("b", "b", "c"))
    assert isinstance(first, ObjectStorage)
    assert isinstance(again, ObjectStorage)
    assert isinstance(other, ObjectStorage)
    assert first.objects is again.objects
    assert first.objects is not other.objects
    for number in range(kinds._CLIENTS + 3):
        from_config({"type": "s3", "bucket": f"b{number}", "secret_key": "hidden"})
    assert len(kinds._clients._found) == kinds._CLIENTS
    assert "hidden" not in repr(kinds._clients._found.keys())


def test_new_credentials_of_the_environment_make_a_new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "1")
    first = from_config({"type": "s3", "bucket": "b"})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "2")
    second = from_config({"type": "s3", "bucket": "b"})
    assert isinstance(first, ObjectStorage)
    assert isinstance(second, ObjectStorage)
    assert first.objects is not second.objects


def test_keys_are_names_and_no_two_names_have_one_key() -> None:
    assert _key("größe 重み/a b%2e?x") == "größe 重み/a b%2e?x"
    names = ["a\nb", "a%0Ab", "a%250Ab", "a%25250Ab", "a%0ab", "a%", "a%25", "a\x7f", "a%7F"]
    keys = [_key(name) for name in names]
    assert len(set(keys)) == len(names)
    assert all(key.isprintable() for key in keys)


def test_a_path_that_no_store_takes_is_refused_before_it_is_sent() -> None:
    with pytest.raises(StorageError, match="1024"):
        _key("重" * 400)


class Clock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def failing(times: int, error: StorageError) -> Callable[[], str]:
    left = [times]

    def step() -> str:
        if left[0]:
            left[0] -= 1
            raise error
        return "done"

    return step


def test_a_store_that_is_away_is_waited_for_and_given_up_in_the_end() -> None:
    clock = Clock()
    patience = Patience(600.0, clock, clock.sleep)
    assert patience.until_done(failing(20, StoreAway("away")), "the upload") == "done"
    assert 100 < clock.now < 600
    with pytest.raises(StoreAway):
        patience.until_done(failing(1000, StoreAway("away")), "the upload")
    assert clock.now < 1300


def test_what_is_refused_is_not_tried_again_but_for_credentials_that_expired() -> None:
    clock = Clock()
    patience = Patience(600.0, clock, clock.sleep)
    with pytest.raises(StoreRefused):
        patience.until_done(failing(1, StoreRefused("AccessDenied: no")), "the upload")
    assert patience.until_done(failing(1, StoreRefused("ExpiredToken: old")), "the upload") == "done"
    with pytest.raises(StoreRefused):
        patience.until_done(failing(2, StoreRefused("ExpiredToken: old")), "the upload")
