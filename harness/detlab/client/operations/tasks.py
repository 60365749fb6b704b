"""Operations on user tasks, the queue and the cluster's administration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from detlab.client.operations.experiments import log_lines, new_key, one, pages, upload
from detlab.client.ordering import known_state
from detlab.client.transport.calls import Call, Flow, Progress, field_of, model, raw, valid_request
from detlab.schemas.taskwire import (
    AuditItem,
    CreateTask,
    CreateTaskReply,
    OutputView,
    QueueItem,
    TaskKind,
    TaskSource,
    TaskView,
    TokenView,
    UsageView,
)
from detlab.schemas.wire import LogLine, TrialState
from detlab.schemas.wire.projects import MoveTask

if TYPE_CHECKING:
    from detlab.client.bundling.bundle import Bundle


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe=":") for part in parts)


# --- tasks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskSubmission:
    """A user task to be requested.

    Attributes:
        kind: The kind of task.
        config: The task config (`detlab.schemas.taskconf`) as a mapping, or its YAML text.
        name: Display name; None: the config's, or a made-up one.
        bundle: The code, or None.
        experiment_ids: What a TensorBoard shows.
        trial_ids: Single trials that a TensorBoard shows.
        dry_run: Only validate it.
        key: Requests of one user with the same key create one task.
        source: Where it comes from, for people: fields of `TaskSource`.
        progress: Called with (bytes sent, bytes in all) while the bundle is uploaded.
        template: A template of the master that is laid under the config.
    """

    kind: TaskKind
    config: Mapping[str, Any] | str = field(default_factory=dict)
    name: str | None = None
    bundle: Bundle | None = None
    experiment_ids: tuple[int, ...] = ()
    trial_ids: tuple[int, ...] = ()
    dry_run: bool = False
    key: str = field(default_factory=new_key)
    source: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = None
    template: str | None = None

    def request(self) -> CreateTask:
        """Return the body of the POST."""
        with valid_request():
            return CreateTask(
                kind=self.kind,
                name=self.name,
                config=None if isinstance(self.config, str) else dict(self.config),
                config_yaml=self.config if isinstance(self.config, str) else None,
                bundle=self.bundle.digest if self.bundle else None,
                idempotency_key=self.key,
                dry_run=self.dry_run,
                experiment_ids=list(self.experiment_ids),
                trial_ids=list(self.trial_ids),
                source=TaskSource.model_validate(dict(self.source)),
                template=self.template,
            )


def create_task(submission: TaskSubmission) -> Flow[CreateTaskReply]:
    """Upload the code if the master lacks it, then request the task; repeating this creates nothing twice."""
    if submission.bundle is not None:
        yield from upload(submission.bundle, submission.progress)
    return (yield Call("POST", "tasks", json=submission.request(), parse=model(CreateTaskReply)))


def tasks(
    *,
    limit: int | None = None,
    kind: str | None = None,
    state: str | None = None,
    owner: str | None = None,
    workspace: str | int | None = None,
    project: str | int | None = None,
) -> Flow[list[TaskView]]:
    """List user tasks, newest first, fetching as many pages as needed."""
    params = {"kind": kind, "state": known_state(state, TrialState), "owner": owner}
    return pages("tasks", TaskView, "before", limit, {**params, "workspace": workspace, "project": project})


def task(task_id: str) -> Flow[TaskView]:
    """Fetch one user task, with its resolved config."""
    return one(Call("GET", _path("tasks", task_id), parse=model(TaskView)))


def kill_task(task_id: str) -> Flow[TaskView]:
    """End a user task, whether it waits or runs."""
    return one(Call("POST", _path("tasks", task_id, "kill"), parse=model(TaskView)))


def move_task(task_id: str, workspace: str | int = "", project: str | int = "") -> Flow[TaskView]:
    """Move a user task to another project; the members of its workspace see its state from then on."""
    with valid_request():
        wanted = MoveTask(workspace=str(workspace), project=str(project))
    return one(Call("POST", _path("tasks", task_id, "move"), json=wanted, parse=model(TaskView)))


def task_logs(
    task_id: str,
    *,
    after: int | None = None,
    limit: int | None = None,
    tail: int | None = None,
    rank: int | None = None,
    search: str | None = None,
    **more: Any,
) -> Flow[tuple[list[LogLine], int | None]]:
    """Fetch one page of log lines, and the id after which the next page begins."""
    params = {"after": after, "limit": limit, "tail": tail, "rank": rank, "search": search, **more}
    return log_lines(_path("tasks", task_id, "logs"), params)


def task_outputs(task_id: str) -> Flow[list[OutputView]]:
    """List the files that a task has handed over."""
    return pages(_path("tasks", task_id, "outputs"), OutputView, "skip", None)


def task_output(task_id: str, digest: str) -> Flow[bytes]:
    """Fetch the content of a task's output by its digest."""
    return one(Call("GET", _path("tasks", task_id, "outputs", digest), parse=raw))


def stream_cursor() -> Flow[int]:
    """Fetch the current cursor, from which `stream` continues."""
    return one(Call("GET", "overview", parse=field_of("cursor", int)))


def queue() -> Flow[list[QueueItem]]:
    """List what waits for slots, in the order in which the scheduler considers it."""
    return pages("queue", QueueItem, "skip", None)


# --- what an administrator looks after --------------------------------------------------------------------


def usage(first: str | None = None, last: str | None = None) -> Flow[UsageView]:
    """Slot hours by user and day (UTC, `2030-01-31`)."""
    return one(Call("GET", "usage", params={"first": first, "last": last}, parse=model(UsageView)))


def audit(*, limit: int | None = None, actor: str | None = None, action: str | None = None) -> Flow[list[AuditItem]]:
    """List who did what, newest first."""
    return pages("audit", AuditItem, "before", limit, {"actor": actor, "action": action})


def tokens() -> Flow[list[TokenView]]:
    """List the tokens that detlab itself has issued."""
    return one(Call("GET", "tokens", parse=field_of("items", list[TokenView])))


def revoke_token(token_id: str) -> Flow[int]:
    """Revoke a token."""
    return one(Call("DELETE", _path("tokens", token_id), again=False))
