"""Reading a checkpoint by a task of its owner: for stores that neither this machine nor the master opens."""

from __future__ import annotations

import json
from collections.abc import Sequence

from detlab.client.operations.experiments import new_key
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.client.transport.verifying import BadFile
from detlab.errors import CheckpointError, StorageError
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, ReadCheckpoint, TaskKind, TaskView
from detlab.schemas.wire import CheckpointView, LogLine


def start_reading(uuid: str, paths: Sequence[str]) -> Flow[TaskView]:
    """Start the task that reads a checkpoint, and hands over these files; none: it verifies all of it."""
    with valid_request():
        reads = ReadCheckpoint(uuid=uuid, paths=list(paths))
    request = CreateTask(kind=TaskKind.COMMAND, idempotency_key=new_key(), reads=reads)
    reply: CreateTaskReply = yield Call("POST", "tasks", json=request, parse=model(CreateTaskReply))
    assert reply.task is not None
    return reply.task


def bad_files(report: bytes) -> list[BadFile]:
    """Return the files that a task has found not to be as committed."""
    return [BadFile(str(one["path"]), str(one["problem"]), str(one["detail"])) for one in json.loads(report)["bad"]]


def damaged(view: CheckpointView, bad: Sequence[BadFile]) -> CheckpointError:
    """Return the error about files that cannot be downloaded."""
    some = "; ".join(f"{file.path!r} is {file.problem}: {file.detail}" for file in bad[:3])
    return CheckpointError(
        f"{len(bad)} files of checkpoint {view.uuid} are not as committed: {some}",
        hint=f"Take another checkpoint of the trial: det trial describe {view.trial_id}",
    )


def unread(uuid: str, task: TaskView, lines: Sequence[LogLine]) -> StorageError:
    """Return the error about a task that has ended without a report."""
    said = next((line.text for line in reversed(lines) if line.text.startswith("detlab: ")), "")
    return StorageError(
        f"task {task.id}, which was to read checkpoint {uuid}, has ended ({task.state}): {said[:500] or 'no report'}",
        hint=f"det task logs {task.id}",
    )
