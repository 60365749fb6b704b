"""What everybody may see of the pools: how each is scheduled, and how full it is."""

from __future__ import annotations

import pytest
from services_scripted import ROOT, config, training
from test_pools import node, wants

from detlab.schemas.poolwire import PoolView
from detlab_hub.core.scheduling import Pool, PoolConfig, Pools, Scheduler
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.queue.pools import PoolViews

POOLS = Pools(
    {
        "default": PoolConfig("default", Pool(preemption=True)),
        "fair": PoolConfig("fair", Pool(Scheduler.FAIR_SHARE), description="for all", priority=60),
        "turns": PoolConfig("turns", Pool(Scheduler.ROUND_ROBIN, preemption=True), provider={"type": "local"}),
    },
    compute="fair",
)


async def views(world) -> dict[str, PoolView]:
    return {one.name: one for one in (await world.services[PoolViews].list()).items}


async def test_pools_as_configured(make_world):
    world = await make_world(training(3), pools=POOLS)
    found = await views(world)
    assert list(found) == ["default", "fair", "turns"]
    assert [(one.scheduler, one.preemption) for one in found.values()] == [
        ("priority", True),
        ("fair_share", True),
        ("round_robin", False),
    ]
    assert [one.takes for one in found.values()] == [["no_slots"], ["slots"], []]
    assert [one.elastic for one in found.values()] == [False, False, True]
    assert (found["fair"].description, found["fair"].priority, found["fair"].agents) == ("for all", 60, 0)


@pytest.mark.parametrize("closed", [False, True])
async def test_how_full_they_are(make_world, closed):
    world = await make_world(training(30), pools=POOLS)
    await node(world, "a", 1)
    await node(world, "b", 3, pool="fair")
    for slots in (2, 2, 3):
        await world.submit(config(resources=wants(slots=slots)))
    await world.submit(config(resources=wants(resource_pool="default")))
    if closed:
        await world.services[Nodes].disable(ROOT, "b")
    await world.steps(2)
    found = await views(world)
    fair, default = found["fair"], found["default"]
    assert (default.agents, default.slots_used, default.slots_total, default.tasks_waiting) == (1, 1, 1, 0)
    assert (fair.agents, fair.agents_away, fair.agents_closed) == (1, 0, int(closed))
    if closed:
        assert (fair.slots_used, fair.tasks_running, fair.tasks_waiting, fair.slots_waiting) == (0, 0, 3, 7)
    else:
        assert (fair.slots_used, fair.tasks_running) == (2, 1)
        assert (fair.tasks_waiting, fair.slots_waiting, fair.slots_total) == (2, 5, 3)
