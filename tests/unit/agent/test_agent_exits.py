"""How often an agent tells the master how a task ended: until it is acknowledged, and no sooner again than needed."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from detlab.schemas import wire
from detlab_agent.runtimes.base import RefusedTask, TaskExit
from detlab_agent.runtimes.records import TaskElsewhere
from detlab_agent.runtimes.slurm.answers import JobEnd
from detlab_agent.runtimes.slurm.ends import exit_of, of_ranks
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


REPORTS = [
    json.dumps({"exit_code": 1, "message": "half of a character: \ud800", "reason": "\udfff"}),
    json.dumps({"exit_code": 10**400, "rank": -(10**400)}),
    json.dumps({"exit_code": 1, "message": "a" * 10**5 + "\0"}),
    json.dumps({"exit_code": 1, "ended_at": 10**400}),
    '{"exit_code": ' + "9" * 5000 + "}",
    "[" * 20_000,
    '{"message":' + "[" * 5000,
    '{"exit_code": true, "rank": NaN, "message": [1], "reason": {"a": "\\ud800"}}',
]


@pytest.mark.parametrize("report", REPORTS, ids=range(len(REPORTS)))
def test_whatever_a_task_reports_of_its_end_can_be_sent(report: str) -> None:
    """Half of a character could not: it ended each new connection of an agent, and cut off the tasks of all users."""
    end = JobEnd("FAILED", 1)
    decides = of_ranks([report, json.dumps({"exit_code": 3, "ended_at": 1.0})], end)
    ends = [
        TaskElsewhere.exit_of(1, report),
        exit_of("7", end, report, "", killed=False),
        exit_of("7", end, decides, "", killed=True),
        TaskExit(message=report),
    ]
    for one in ends:
        told = wire.TaskExited(
            allocation_id="a", run=1, exit_code=one.exit_code, rank=one.rank, reason=one.reason, message=one.message
        )
        assert wire.TaskExited.model_validate_json(told.model_dump_json()) == told
        assert len(told.message) <= 8000
        assert -(2**31) < (told.exit_code or 0) < 2**31
