"""Which stores the master opens: file systems and the cluster's own, and of those only what the operator wrote."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.stores import (
    ACCESS,
    NamedStore,
    NotTheClusters,
    OpenStore,
    StoreOperation,
    Who,
    kind_of,
    opened_by_master,
    readable,
)

KEYS = {"access_key": "a", "secret_key": "b"}
MINIO: dict[str, Any] = {"type": "s3", "bucket": "lab", "endpoint_url": "https://minio.lab", "prefix": "runs", **KEYS}
PLAIN: dict[str, Any] = {"type": "s3", "bucket": "lab"}
AZURE: dict[str, Any] = {"type": "azure", "container": "c", "account_url": "https://a.blob.core.windows.net"}
GCS: dict[str, Any] = {"type": "gcs", "bucket": "lab", "prefix": "/a/b/"}


@pytest.mark.parametrize(
    ("block", "own"),
    [
        (MINIO, MINIO),
        (MINIO | {"save_trial_best": 3, "region": None, "ca_file": None}, MINIO),
        (MINIO | {"access_key": None, "secret_key": None}, MINIO),
        (MINIO | {"prefix": "runs/ada"}, MINIO),
        (MINIO | {"prefix": "/runs/ada/"}, MINIO),
        (PLAIN | {"prefix": "anything"}, PLAIN),
        (PLAIN | {"endpoint_url": None}, PLAIN),
        (GCS | {"prefix": "a/b/c"}, GCS),
        (AZURE, AZURE | {"credential": "k"}),
    ],
)
def test_a_block_that_names_the_operators_store_is_the_clusters_own(block: dict[str, Any], own: dict[str, Any]) -> None:
    assert kind_of(block, [own]) is NamedStore.CLUSTER
    store = readable(block, [own])
    assert dict(store.block) == {**own, "prefix": block.get("prefix")}, "all but the prefix is the operator's"


@pytest.mark.parametrize(
    ("block", "own"),
    [
        (PLAIN, {"type": "shared_fs", "host_path": "/data"}),
        (PLAIN | {"bucket": "other"}, PLAIN),
        (PLAIN | {"bucket": "lab2"}, PLAIN),
        (PLAIN | KEYS, PLAIN),
        (PLAIN | {"endpoint_url": "http://127.0.0.1:9"}, PLAIN),
        (PLAIN | {"region": "evil.example.org/"}, PLAIN),
        (PLAIN | {"ca_file": "/etc/passwd"}, PLAIN),
        (PLAIN | {"path_style": True}, PLAIN),
        (PLAIN | {"anything": "new"}, PLAIN),
        ({"type": "gcs", "bucket": "lab"}, PLAIN),
        (MINIO | {"endpoint_url": None}, MINIO),
        (MINIO | {"endpoint_url": "https://minio.lab.evil.org"}, MINIO),
        (MINIO | {"endpoint_url": "https://minio.lab/x"}, MINIO),
        (MINIO | {"secret_key": "c"}, MINIO),
        (MINIO | {"session_token": "t"}, MINIO),
        (MINIO | {"prefix": "runs-evil"}, MINIO),
        (MINIO | {"prefix": "run"}, MINIO),
        (MINIO | {"prefix": None}, MINIO),
        (MINIO | {"prefix": "runs/../other"}, MINIO),
        (MINIO | {"prefix": "runs//x"}, MINIO),
        (MINIO | {"prefix": "other/runs"}, MINIO),
        (MINIO | {"prefix": ["runs"]}, MINIO),
        (AZURE | {"account_url": "https://b.blob.core.windows.net"}, AZURE),
        (AZURE | {"account_url": "https://a.blob.core.windows.net?sig=x"}, AZURE),
        (AZURE | {"connection_string": "BlobEndpoint=http://127.0.0.1:9"}, AZURE),
        (AZURE | {"credential": "k2"}, AZURE | {"credential": "k"}),
        ({"type": "somebodys", "x": 1}, {"type": "somebodys", "x": 1}),
        ({}, {}),
    ],
)
def test_a_store_that_only_a_user_names_is_not_opened(block: dict[str, Any], own: dict[str, Any]) -> None:
    assert kind_of(block, [own]) is NamedStore.USERS
    assert [one for one in StoreOperation if opened_by_master(one, block, [own]) is not None] == []
    with pytest.raises(NotTheClusters, match="one of the cluster's own") as caught:
        readable(block, [own])
    assert "--mode direct" in str(caught.value)


def test_fsspec_is_never_opened_not_even_the_operators() -> None:
    block = {"type": "fsspec", "url": "file:///etc"}
    assert kind_of(block, [block]) is NamedStore.FSSPEC
    assert [one for one in StoreOperation if opened_by_master(one, block, [block]) is not None] == []


def test_further_stores_of_the_operators_are_the_clusters_own() -> None:
    assert kind_of(GCS, [MINIO, PLAIN, GCS]) is NamedStore.CLUSTER
    assert kind_of(GCS, [MINIO, PLAIN]) is NamedStore.USERS


def test_each_operation_says_of_each_store_who_opens_it() -> None:
    for operation in StoreOperation:
        assert ACCESS[operation].keys() == set(NamedStore)
        for store in (NamedStore.USERS, NamedStore.FSSPEC):
            assert ACCESS[operation][store] is not Who.MASTER, f"{operation} x {store}"


def test_words_of_a_store_are_repeated_to_nobody() -> None:
    """Of the operator's own store, too: what a proxy before it, or the store, says of others is not for everybody."""
    words = b"<Error><Code>%s</Code><Message>what-an-inner-service-says</Message></Error>"
    said = []
    for code in (b"Hidden-code", b"AccessDenied"):
        body = words % code
        with answering(b"HTTP/1.1 403 x\r\nContent-Length: %d\r\n\r\n" % len(body) + body) as port:
            store = OpenStore(MINIO | {"endpoint_url": f"http://127.0.0.1:{port}"})
            failure = files.remove(store, "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f", ["a"], None, None)
        assert "inner-service" not in failure
        assert "Hidden" not in failure
        said.append(failure.partition(": ")[2])
    assert said == ["the store answered with status 403", "the store answered with status 403 (AccessDenied)"]


@contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """A server that says the same to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
