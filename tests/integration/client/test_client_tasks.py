"""User tasks by the client, blocking and asynchronous, at a real cluster."""

import asyncio
from pathlib import Path

import pytest

from detlab.client.aclient import AsyncClient
from detlab.client.client import Client
from detlab.errors import ConfigError, NotFound
from detlab.schemas.taskwire import TaskEnd, TaskView
from detlab.schemas.wire import TrialState
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]


def test_a_command_from_start_to_its_exit_code(client: Client) -> None:
    task = client.create_task(
        "command",
        {"entrypoint": ["python3", "x.py"]},
        files={"x.py": "print('one')\nprint('two')\nraise SystemExit(5)\n"},
    )
    task.await_up(60)  # whether it is seen up or has ended by then is luck
    assert [line.text for line in task.iter_logs(follow=True) if line.stdtype == "stdout"] == ["one", "two"]
    assert task.wait(60) is TrialState.ERROR
    assert (task.exit_code, task.view.end_reason) == (5, TaskEnd.FAILED)
    assert [line.text for line in task.logs(search="two")] == ["two"]
    assert task.config is not None
    assert task in client.list_tasks(kind="command")
    assert task.outputs() == []


def test_the_same_request_makes_one_task(client: Client) -> None:
    config = {"entrypoint": "true", "resources": {"slots": 0}}
    first = client.submit_task("command", config, idempotency_key="once")
    again = client.submit_task("command", config, idempotency_key="once")
    assert first.task is not None
    assert (first.created, again.created, again.task) == (True, False, first.task)
    assert client.submit_task("command", config, dry_run=True).task is None


def test_place_and_reason_are_told_while_it_waits(client: Client) -> None:
    holder = client.create_task("command", {"entrypoint": "sleep 300", "resources": {"slots": 2}})
    assert holder.await_up(60)
    waiter = client.create_task("command", {"entrypoint": "sleep 300"})
    told: list[TaskView] = []
    with pytest.raises(TimeoutError):
        waiter.await_up(1, tell=told.append)
    assert any(item.task_id == waiter.id and item.mine for item in client.get_queue())
    with pytest.raises(TimeoutError):
        holder.wait(0.2)
    holder.kill()
    assert waiter.await_up(60, tell=told.append)
    assert any(view.pending_reason for view in told)
    waiter.kill()
    for task in (holder, waiter):
        assert task.wait(60) is TrialState.CANCELED
        task.kill()  # what is over stays as it is
        assert task.reload().state is TrialState.CANCELED


def test_mistakes_and_unknown_ids(client: Client) -> None:
    with pytest.raises(ConfigError) as caught:
        client.create_task("command", {"resources": {"slots": -1}, "idle_timeout": "soon"})
    assert {problem.path for problem in caught.value.problems} >= {"resources.slots", "idle_timeout", "entrypoint"}
    for task_id in ("command-000000000000", "../me", "x y"):
        with pytest.raises(NotFound):
            client.get_task(task_id)


def test_the_asynchronous_twin(cluster: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncClient(cluster.url, cluster.token) as client:
            task = await client.create_task("command", {"entrypoint": "echo hi", "resources": {"slots": 0}})
            await task.await_up(60)
            assert "hi" in [line.text async for line in task.iter_logs(follow=True)]
            assert await task.wait(60) is TrialState.COMPLETED
            assert [line.text for line in await task.logs(tail=1)]
            assert task in [found async for found in client.iter_tasks()]
            assert await client.get_task(task.id) == task
            assert await task.download_outputs(tmp_path) == []
            assert isinstance(await client.get_queue(), list)

    asyncio.run(story())
