"""Servers with drawn names whose tasks ended by themselves do not stay listed at the Hub."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.errors import Conflict, Unavailable
from detlab.schemas.taskwire import SpawnRequest, TaskKind
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.usertasks.ended_servers import GRACE_SECONDS, PER_SWEEP
from detlab_hub.services.usertasks.hub_client import ServerOfHub
from detlab_hub.services.usertasks.servers import Servers
from detlab_hub.services.usertasks.spawns import Spawns

HUB = HubCaller()
SHELL = "shell-f2cc6db6"


class ListingHub:
    """A Hub that lists what it was not told to forget."""

    def __init__(self) -> None:
        self.listed: set[ServerOfHub] = set()
        self.calls: list[tuple[str, str, bool]] = []
        self.trouble: Exception | None = None

    async def running(self) -> set[ServerOfHub]:
        return set(self.listed)

    async def stop(self, owner: str, name: str, *, remove: bool = False) -> None:
        self.calls.append((owner, name, remove))
        if self.trouble is not None:
            raise self.trouble
        if remove:
            self.listed.discard(ServerOfHub(owner, name))


def ends_at_once(launch: Any) -> Any:
    yield ("exit", 0)


def _wait(launch: Any) -> Any:
    while True:
        yield ("wait",)


async def make(make_world: Any, script: Any = ends_at_once) -> tuple[Any, ListingHub]:
    world = await make_world(script)
    await world.add_agent()
    hub = ListingHub()
    world.services[Servers]._hub = hub
    return world, hub


async def served(world: Any, hub: ListingHub, name: str, key: str = "k") -> str:
    """A server that was started, and has ended if its script says so."""
    request = SpawnRequest(owner="alice", server_name=name, key=key * 16, kind=TaskKind.SHELL, base_url="/user/alice/")
    view = await world.services[Spawns].post(HUB, request)
    hub.listed.add(ServerOfHub("alice", name))
    await world.steps(4)
    return str(view.task_id)


async def test_an_ended_server_is_forgotten_once_after_a_moment(make_world: Any) -> None:
    world, hub = await make(make_world)
    await served(world, hub, SHELL)
    reconcile = world.services[Servers].reconcile
    await reconcile()
    assert hub.calls == []
    world.now += GRACE_SECONDS
    await reconcile()
    await reconcile()
    assert hub.calls == [("alice", SHELL, True)]
    assert hub.listed == set()


async def test_what_users_named_and_default_servers_stay(make_world: Any) -> None:
    world, hub = await make(make_world)
    for number, name in enumerate(("", "my-work", "shell-xyz")):
        await served(world, hub, name, key=str(number))
    world.now += GRACE_SECONDS
    await world.services[Servers].reconcile()
    assert hub.calls == []


async def test_one_that_runs_or_runs_again_stays(make_world: Any) -> None:
    world, hub = await make(make_world, _wait)
    first = await served(world, hub, SHELL)
    world.now += GRACE_SECONDS
    await world.services[Servers].reconcile()
    await world.services[Spawns].delete(HUB, first)
    await world.steps(4)
    second = await served(world, hub, SHELL, key="l")
    world.now += GRACE_SECONDS
    await world.services[Servers].reconcile()
    assert hub.calls == []
    await world.services[Spawns].delete(HUB, second)
    await world.steps(4)
    world.now += GRACE_SECONDS
    await world.services[Servers].reconcile()
    assert set(hub.calls) == {("alice", SHELL, True)}


@pytest.mark.parametrize("trouble", [Unavailable("away"), Conflict("it is stopping")])
async def test_a_hub_that_cannot_now_is_asked_again_also_by_the_next_master(make_world: Any, trouble: Any) -> None:
    world, hub = await make(make_world)
    await served(world, hub, SHELL)
    world.now += GRACE_SECONDS
    hub.trouble = trouble
    await world.services[Servers].reconcile()
    assert hub.listed
    hub.trouble = None
    await world.reboot()
    world.services[Servers]._hub = hub
    await world.services[Servers].reconcile()
    assert hub.listed == set()


async def test_a_sweep_is_bounded(make_world: Any) -> None:
    world, hub = await make(make_world)
    for number in range(PER_SWEEP + 3):
        request = SpawnRequest(owner="alice", server_name=f"shell-{number:08x}", key=f"key-{number:08}")
        await world.services[Spawns].delete(HUB, (await world.services[Spawns].post(HUB, request)).task_id)
    world.now += GRACE_SECONDS
    await world.services[Servers].reconcile()
    assert len(hub.calls) == PER_SWEEP
    await world.services[Servers].reconcile()
    assert len(set(hub.calls)) == PER_SWEEP + 3
