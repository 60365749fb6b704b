"""Comparing storages with what the master knows, by a task of their user."""

from __future__ import annotations

from detlab.client.operations.experiments import new_key
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.taskwire import CheckStorage, CreateTask, CreateTaskReply, TaskKind, TaskView


def start_check(experiment_id: int | None, *, repair: bool) -> Flow[TaskView]:
    """Start the task that compares the storages of the caller's experiments, or of one of them."""
    with valid_request():
        checks = CheckStorage(experiment_id=experiment_id, repair=repair)
    request = CreateTask(kind=TaskKind.COMMAND, idempotency_key=new_key(), checks=checks)
    reply: CreateTaskReply = yield Call("POST", "tasks", json=request, parse=model(CreateTaskReply))
    assert reply.task is not None
    return reply.task
