"""Routes of tasks that users start: notebooks, shells, commands, TensorBoards, cells, notebook runs."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from detlab.schemas.taskwire import CreateTask, CreateTaskReply, TaskKind, TaskPage, TaskView
from detlab.schemas.wire import LogLine, TrialState, Wire
from detlab.schemas.wire.projects import MoveTask
from detlab_hub.core.rights import Action
from detlab_hub.services.usertasks.task_moves import TaskMoves
from detlab_hub.services.usertasks.usertasks import UserTasks as UserTasksService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.experiments.trials import LogPage, LogsQuery
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs
from detlab_hub.web.streaming import StreamHandler


class TasksQuery(Wire):
    """Which tasks."""

    limit: int = Field(100, ge=1, le=1000)
    before: str | None = None
    """The last id of the page before."""
    kind: list[TaskKind] = Field(default_factory=list)
    state: list[TrialState] = Field(default_factory=list)
    owner: str | None = None
    workspace: str | None = Field(None, max_length=1000)
    """Only those that lie in this workspace, a name, OWNER/NAME or an id; of other members' tasks their state."""
    project: str | None = Field(None, max_length=1000)
    """Only those of this project of it: a name or an id. Without a workspace: of one's personal one."""


class FollowQuery(Wire):
    """From where."""

    after: RowId = 0
    """Only lines with a larger id."""


@route("tasks", relayed=True)
class UserTasks(Guarded):
    """All of them."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: TasksQuery) -> TaskPage:
        """List user tasks, newest first: one's own, or those of a workspace."""
        return await self.services[UserTasksService].list(
            self.person,
            limit=query.limit,
            before=query.before,
            kinds=[kind.value for kind in query.kind],
            states=[state.value for state in query.state],
            owner=query.owner,
            workspace=query.workspace,
            project=query.project,
        )

    @needs("write", cross_site="xsrf", action=Action.TASK_CREATE, status=201)
    async def post(self, body: CreateTask) -> CreateTaskReply:
        """Start a task: it waits in the queue, runs, and ends by itself or is killed."""
        return await self.services.start_task(self.person, body)


@route("tasks/{task_id}", relayed=True)
class UserTask(Guarded):
    """One task."""

    @needs("read", cross_site="xsrf")
    async def get(self, task_id: str) -> TaskView:
        """Return a task with its config, secrets masked; to other members of its workspace its state alone."""
        return await self.services[UserTasksService].get(self.person, task_id)


@route("tasks/{task_id}/kill", relayed=True)
class Kill(Guarded):
    """Killing one task."""

    @needs("write", cross_site="xsrf", action=Action.TASK_KILL)
    async def post(self, task_id: str) -> TaskView:
        """End the task now."""
        return await self.services.end_task(self.person, task_id)


@route("tasks/{task_id}/move", relayed=True)
class MoveOneTask(Guarded):
    """Where a task lies."""

    @needs("write", cross_site="xsrf", action=Action.TASK_MOVE)
    async def post(self, task_id: str, body: MoveTask) -> TaskView:
        """Move a task to another project, whose workspace's members see its state from then on."""
        return await self.services[TaskMoves].move(self.person, task_id, body)


@route("tasks/{task_id}/logs", relayed=True)
class Logs(Guarded):
    """The output of a task."""

    @needs("read", cross_site="xsrf")
    async def get(self, task_id: str, query: LogsQuery) -> LogPage:
        """Return log lines in order."""
        items, edges = await self.services[UserTasksService].logs(self.person, task_id, **query.model_dump())
        return LogPage(items=items, **asdict(edges))


@route("tasks/{task_id}/logs/stream", relayed=True)
class LogStream(StreamHandler):
    """The output of a task, live."""

    @needs("read", cross_site="xsrf", streams=LogLine)
    async def get(self, task_id: str, query: FollowQuery) -> None:
        """Follow a task's output; the stream ends when the task has ended."""
        await self.stream(self.services[UserTasksService].follow_logs(self.person, task_id, query.after))
