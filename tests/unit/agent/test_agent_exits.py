"""How often an agent tells the master how a task ended: until it is acknowledged, and no sooner again than needed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from detlab.schemas import wire
from detlab_agent.runtimes.base import RefusedTask
from detlab_agent.tasks import TaskTable


class Refuses:
    """A runtime that starts nothing."""

    async def start(self, *_: Any) -> None:
        raise RefusedTask("not here")


async def deliver(_: object) -> None:
    """Nothing is left."""


async def test_an_exit_is_said_again_only_when_a_whole_heartbeat_brought_no_acknowledgement() -> None:
    """A heartbeat that came just after it repeated it: a master that was slow to answer got everything twice."""
    table, said = TaskTable(cast("Any", Refuses()), deliver), list[str]()
    info = wire.ClusterInfoWire.model_construct()
    launch = wire.Launch.model_construct(allocation_id="a", run=1, slots=["cpu0"], node="", info=info)
    table.attach(lambda message: said.append(message.type))
    table.launch(launch)
    while not said:
        await asyncio.sleep(0)
    table.repeat_exits()
    assert said == ["task_exited"], "the acknowledgement is still under way"
    table.repeat_exits()
    table.repeat_exits()
    assert said == ["task_exited"] * 3
    table.detach()
    table.attach(lambda message: said.append(message.type))
    table.repeat_exits()
    assert said == ["task_exited"] * 4, "and at once to a new connection"
    table.repeat_exits()
    assert said == ["task_exited"] * 5
    await table.acknowledged(wire.ExitAck(allocation_id="a", run=1, node=""))
    table.repeat_exits()
    table.repeat_exits()
    assert said == ["task_exited"] * 5
    await table.close()
