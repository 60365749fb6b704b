"""The master while the Hub is away: it knows whom the Hub confirmed last, for a while, and nobody else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cachetools import TTLCache

from detlab_hub.web import auth
from testbed.cluster import Cluster
from testbed.network.cut_proxy import CutProxy


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
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the master's memory of the Hub's answers takes for the time; it moves when a test moves it."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr(auth, "TTLCache", functools.partial(TTLCache, timer=lambda: found.now))
    return found


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


async def test_the_last_answer_counts_for_a_bounded_time(clock: SimpleNamespace, master: Any, way: CutProxy) -> None:
    assert await status(master) == 200
    way.close()
    clock.now += auth.HUB_AWAY_SECONDS - 1
    assert await status(master) == 200
    clock.now += 2
    assert await status(master) == 503
