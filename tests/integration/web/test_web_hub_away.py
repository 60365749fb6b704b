"""The master while the Hub is away: it knows whom the Hub confirmed last, for a while, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from detlab_hub.web import auth
from testbed.cluster import Cluster
from testbed.cut_proxy import CutProxy


@pytest.fixture
def way(cluster: Cluster) -> Iterator[CutProxy]:
    """The master's way to the Hub."""
    with CutProxy(int(cluster.plan["hub_port"])) as proxy:
        yield proxy


@pytest.fixture
def hub_port(way: CutProxy) -> int:
    """The near end of the way."""
    return way.port


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's last answer counts for less than its cache."""
    monkeypatch.setattr(auth, "HUB_AWAY_SECONDS", 0.5)


@pytest.fixture
def second_token(cluster: Cluster) -> Iterator[tuple[str, Callable[[], object]]]:
    """A token of the operator that may be revoked, and what revokes it."""
    tokens = f"{cluster.url}/hub/api/users/{cluster.plan['operator']}/tokens"
    with httpx.Client(headers={"Authorization": f"token {cluster.token}"}, trust_env=False, timeout=20) as hub:
        made = hub.post(tokens, json={"note": "to be revoked"}).raise_for_status().json()
        yield made["token"], lambda: hub.delete(f"{tokens}/{made['id']}").raise_for_status()


async def status(master: Any, token: str | None = None) -> int:
    """How a call is answered that the Hub's cached answers cannot help."""
    master.hub.cache.clear()
    async with master.client(token) as client:
        return int((await client.get("experiments")).status_code)


async def test_known_people_go_on_while_the_hub_is_away(master: Any, way: CutProxy) -> None:
    assert await status(master) == 200
    way.close()
    assert await status(master) == 200
    assert await status(master, "x" * 32) == 503
    way.open()
    assert await status(master, "x" * 32) == 401
    assert await status(master) == 200


async def test_a_revoked_token_is_forgotten_though_the_hub_goes_away_then(
    master: Any, way: CutProxy, second_token: tuple[str, Callable[[], object]]
) -> None:
    token, revoke = second_token
    assert await status(master, token) == 200
    revoke()
    assert await status(master, token) == 401
    way.close()
    assert await status(master, token) == 503


@pytest.mark.usefixtures("short_memory")
async def test_the_last_answer_counts_for_a_bounded_time(master: Any, way: CutProxy) -> None:
    assert await status(master) == 200
    way.close()
    async with asyncio.timeout(20):
        while await status(master) != 503:
            await asyncio.sleep(0.05)
