"""Bodies: limits, streaming uploads, malformed requests; and files on their way out."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from typing import Any

import httpx
import pytest

from testbed.waiting import soon

pytestmark = pytest.mark.hub


def packed(size: int = 2000) -> bytes:
    """A tar.gz with one incompressible file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("data.bin")
        info.size = size
        tar.addfile(info, io.BytesIO(os.urandom(size)))
    return out.getvalue()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def test_a_bundle_is_stored_once_and_found(master: Any) -> None:
    data = packed()
    async with master.client() as client:
        assert (await client.head(f"bundles/{digest_of(data)}")).status_code == 404
        first = await client.put(f"bundles/{digest_of(data)}", content=data)
        assert (first.status_code, first.json()["created"]) == (201, True)
        again = await client.put(f"bundles/{digest_of(data)}", content=data)
        assert (again.status_code, again.json()["created"]) == (200, False)
        assert (await client.head(f"bundles/{digest_of(data)}")).status_code == 200
    assert leftovers(master) == []


async def test_a_bundle_with_another_digest_is_refused_and_removed(master: Any) -> None:
    async with master.client() as client:
        reply = await client.put(f"bundles/{digest_of(b'other')}", content=packed())
    assert reply.status_code == 422
    assert reply.json()["code"] == "bundle.invalid"
    assert leftovers(master) == []


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_bundle_over_the_cap_is_413_with_the_cap(master: Any, chunked: bool) -> None:
    data = packed(400_000)

    async def pieces():
        for start in range(0, len(data), 50_000):
            yield data[start : start + 50_000]

    async with master.client() as client:
        reply = await client.put(f"bundles/{digest_of(data)}", content=pieces() if chunked else data)
    assert reply.status_code == 413
    assert reply.json()["code"] == "bundle.too_large"
    assert leftovers(master) == []


async def test_a_body_far_over_the_cap_is_read_and_told(master: Any) -> None:
    """Its connection was closed without a word, and a task sent the file again and again for ten minutes."""
    async with master.client() as client:
        reply = await client.put(f"bundles/{digest_of(b'')}", content=bytes(40_000_000))
    assert reply.status_code == 413
    assert reply.json()["code"] == "bundle.too_large"
    assert leftovers(master) == []


async def test_an_upload_that_breaks_off_leaves_nothing(master: Any) -> None:
    data = packed(100_000)

    async def pieces():
        yield data[:50_000]
        raise ConnectionError("the laptop was closed")

    async with master.client() as client:
        with pytest.raises(ConnectionError):
            await client.put(f"bundles/{digest_of(data)}", content=pieces())
        await client.get("me")
    await soon(lambda: leftovers(master) == [])


async def test_an_anonymous_body_is_never_kept(master: Any) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.put(f"{master.base}api/v1/bundles/sha256:{'0' * 64}", content=packed())
    assert reply.status_code == 401
    assert leftovers(master) == []


async def test_a_json_body_over_the_limit_is_413(master: Any) -> None:
    async with master.client() as client:
        body = json.dumps({"config_yaml": "#" * (6 * 1024 * 1024)})
        reply = await client.post("experiments", content=body)
    assert reply.status_code == 413
    assert reply.json()["code"] == "request.too_large"


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff\xfe", b'{"config": 3}', b'{"dry_run": "maybe"}'])
async def test_malformed_bodies_are_422(master: Any, body: bytes) -> None:
    async with master.client() as client:
        reply = await client.post("experiments", content=body)
    assert reply.status_code == 422
    assert reply.json()["code"] in {"request.invalid", "config.invalid"}


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=1001", "before=9e9"])
async def test_malformed_queries_are_422_and_name_the_field(master: Any, query: str) -> None:
    async with master.client() as client:
        reply = await client.get(f"experiments?{query}")
    assert reply.status_code == 422
    assert reply.json()["problems"][0]["path"] == query.partition("=")[0]


async def test_huge_ids_are_not_found_not_errors(master: Any) -> None:
    async with master.client() as client:
        assert (await client.get(f"experiments/{'9' * 18}")).status_code == 404
        assert (await client.get(f"experiments/{'9' * 40}")).status_code == 404


async def test_all_mistakes_of_a_config_come_back(master: Any) -> None:
    async with master.client() as client:
        reply = await client.post("experiments", json={"config": {"nmae": "x", "searcher": {"name": "single"}}})
    assert reply.status_code == 422
    body = reply.json()
    assert body["code"] == "config.invalid"
    assert len(body["problems"]) >= 2


def leftovers(master: Any) -> list[str]:
    """Temporary files of uploads."""
    folder = master.services.settings.bundles_dir
    return [path.name for path in folder.glob(".upload-*")] if folder.exists() else []


@pytest.mark.parametrize(
    "path",
    [
        "experiments?before=9223372036854775808",
        "experiments?before=-1",
        "experiments/1/trials?after=1000000000000000000000",
        "trials/1/logs?after=9223372036854775808",
        "trials/1/logs?rank=1000000000000000000000",
        "trials/1/logs/stream?after=9223372036854775808",
        "stream?after=-1",
    ],
)
async def test_a_number_that_no_database_holds_is_422(master: Any, path: str) -> None:
    """They came back from the database as an OverflowError: 500, and a traceback in the log for each."""
    async with master.client() as client:
        reply = await client.get(path)
    assert reply.status_code == 422


@pytest.mark.parametrize("where", ["a%00b<1", "lr=%00", "lr%0a=1"])
async def test_a_condition_with_control_characters_is_422(master: Any, where: str) -> None:
    async with master.client() as client:
        reply = await client.get(f"experiments/1/trials?where={where}")
    assert reply.status_code == 422
    assert reply.json()["code"] != "internal"
