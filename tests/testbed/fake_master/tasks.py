"""The fake master's user tasks, queue and administration (see `testbed.fake_master.api`).

with FakeMaster() as master:
    master.on_create = lambda view: master.update_task(view.id, state="COMPLETED", exit_code=3)
    Client(master.url, master.token).create_task("command", {"entrypoint": "false"}).wait()
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from detlab.schemas import taskconf
from detlab.schemas.elasticwire import ElasticPoolView
from detlab.schemas.expconf.checks.check import errors_of
from detlab.schemas.jobwire import JobView, JobWhy, QuotaView, StorageQuotaView
from detlab.schemas.poolwire import PoolView
from detlab.schemas.taskwire import (
    AuditItem,
    CreateTask,
    CreateTaskReply,
    IdleGpuView,
    OutputView,
    QueueItem,
    TaskEnd,
    TaskKind,
    TaskView,
    TokenView,
    UsageRow,
    UsageView,
)
from detlab.schemas.wire import AgentView, LogLine, ProblemView, TrialState
from detlab.schemas.wire.notebooks.schedules import CreateSchedule, ScheduleView
from detlab.schemas.wire.storage import StorageUsage
from testbed.fake_master.requests import Route
from testbed.fake_master.state import ErrorReply, MasterState


@dataclass
class FakeUserTasks(MasterState):
    """What the fake master holds beside experiments: user tasks; the test says what happens to them.

    Attributes:
        on_create: Called with each new task, before its reply is sent.
        asked: The bodies of all requests for tasks.
        drained: The bodies of all requests to drain an agent.
    """

    tasks: dict[str, TaskView] = field(default_factory=dict)
    outputs: dict[str, list[OutputView]] = field(default_factory=dict)
    queue: list[QueueItem] = field(default_factory=list)
    jobs: list[JobView] = field(default_factory=list)
    whys: dict[str, JobWhy] = field(default_factory=dict)
    quotas: dict[tuple[str, str], QuotaView] = field(default_factory=dict)
    storage_quotas: dict[tuple[str, str], StorageQuotaView] = field(default_factory=dict)
    schedules: dict[int, ScheduleView] = field(default_factory=dict)
    scheduled: list[CreateSchedule] = field(default_factory=list)
    """The bodies of all requests for schedules."""
    storage_usage: dict[str, StorageUsage] = field(default_factory=dict)
    """By what it is asked by."""
    elastic_pools: list[ElasticPoolView] = field(default_factory=list)
    pools: list[PoolView] = field(default_factory=list)
    audit: list[AuditItem] = field(default_factory=list)
    usage: list[UsageRow] = field(default_factory=list)
    idle: list[IdleGpuView] = field(default_factory=list)
    task_tokens: dict[str, TokenView] = field(default_factory=dict)
    asked: list[CreateTask] = field(default_factory=list)
    drained: list[dict[str, Any]] = field(default_factory=list)
    task_keys: dict[str, str] = field(default_factory=dict)
    on_create: Callable[[TaskView], object] = lambda view: None

    # --- what the test makes happen -----------------------------------------------------------------------

    def publish_task(self, view: TaskView) -> None:
        """Tell the streams how a task stands."""
        self.publish("task", None, view.model_copy(update={"config": None}), task_id=view.id)

    def add_task(self, kind: TaskKind | str = TaskKind.COMMAND, name: str = "brave-otter", **facts: Any) -> TaskView:
        """Make a task."""
        with self.changed:
            sort = TaskKind(kind)
            number = len(self.tasks) + 1
            task_id = f"{sort.value}-{number:04x}"
            given: dict[str, Any] = {
                "owner": "alice",
                "state": TrialState.ACTIVE,
                "display_state": "QUEUED",
                "created_at": time.time(),
                "server_name": task_id if sort.served_by_hub else None,
                **facts,
            }
            view = TaskView.model_validate({"id": task_id, "kind": sort, "name": name, **given})
            self.tasks[task_id] = view
            self.publish_task(view)
            return view

    def update_task(self, task_id: str, **facts: Any) -> TaskView:
        """Change a task and tell the streams; those of its output end when it has ended."""
        with self.changed:
            view = TaskView.model_validate({**self.tasks[task_id].model_dump(), **facts})
            self.tasks[task_id] = view
            self.publish_task(view)
            return view

    def bring_up(self, task_id: str) -> TaskView:
        """Let a task run; a server of the Hub gets its address."""
        view = self.tasks[task_id]
        url = f"/user/{view.owner}/{view.server_name}/lab" if view.server_name else None
        return self.update_task(
            task_id, allocation_state="RUNNING", display_state="RUNNING", url=url, agent_id="node1", place=None,
            pending_reason=None, started_at=time.time(),
        )  # fmt: skip

    def end_task(self, task_id: str, exit_code: int = 0, **facts: Any) -> TaskView:
        """Let a task end by itself."""
        good = exit_code == 0
        given: dict[str, Any] = {
            "state": TrialState.COMPLETED if good else TrialState.ERROR,
            "end_reason": TaskEnd.COMPLETED if good else TaskEnd.FAILED,
            "exit_code": exit_code,
            "url": None,
            "ended_at": time.time(),
            **facts,
        }
        return self.update_task(task_id, **given)

    def task_log(self, task_id: str, text: str, **facts: Any) -> None:
        """Append a line of a task's output."""
        self.log(0, text, task_id=task_id, **facts)

    def add_output(self, task_id: str, name: str, content: bytes) -> OutputView:
        """Let a task hand over a file."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest] = content
        view = OutputView(name=name, size=len(content), digest=digest, updated_at=time.time())
        self.outputs.setdefault(task_id, []).append(view)
        return view

    # --- what the routes do -------------------------------------------------------------------------------

    def task(self, task_id: str) -> TaskView:
        """Return a task.

        Raises:
            Refusal: There is no such task.
        """
        found = self.tasks.get(task_id)
        if found is None:
            raise ErrorReply(404, "not_found", f"there is no task {task_id}")
        return found

    def create_task(self, body: CreateTask) -> CreateTaskReply:
        """Create a task, once per idempotency key.

        Raises:
            Refusal: The config has mistakes, or the test has set `problems`.
        """
        with self.changed:
            self.asked.append(body)
            program: list[str] = ["python3", "-m", "detlab.run.read_checkpoint"]
            config: dict[str, Any] = body.config or ({"entrypoint": program} if body.reads else {})
            found = errors_of(taskconf.check(config, body.kind))
            problems = self.problems or [ProblemView.model_validate(problem.to_dict()) for problem in found]
            if problems:
                raise ErrorReply(422, "config.invalid", "the task config cannot be used", problems)
            key = body.idempotency_key or uuid.uuid4().hex
            created = key not in self.task_keys
            if created:
                view = self.add_task(
                    body.kind,
                    body.name or "brave-otter",
                    config=config,
                    experiment_ids=body.experiment_ids,
                    trial_ids=body.trial_ids,
                    slots_needed=(config.get("resources") or {}).get("slots") or 0,
                )
                self.task_keys[key] = view.id
                self.on_create(view)
            view = self.tasks[self.task_keys[key]]
            return CreateTaskReply(task=view, created=created, warnings=self.warnings, config=config)

    def kill_task(self, task_id: str) -> TaskView:
        """End a task.

        Raises:
            Refusal: There is no such task, or it has ended.
        """
        with self.changed:
            if self.task(task_id).state.terminal:
                raise ErrorReply(409, "conflict", f"task {task_id} is over")
            return self.end_task(task_id, 137, state=TrialState.CANCELED, end_reason=TaskEnd.KILLED)

    def task_logs_after(self, task_id: str, cursor: int) -> Iterator[list[LogLine]]:
        """Yield what is new until the task has ended."""
        return self.follow(
            lambda: (line for line in self.logs if line.task_id == task_id),
            cursor,
            lambda: self.tasks[task_id].state.terminal,
        )

    def switch(self, agent_id: str, action: str, until: float | None = None) -> AgentView:
        """Enable, disable or drain an agent.

        Raises:
            Refusal: There is no such agent.
        """
        for at, view in enumerate(self.agents):
            if view.id == agent_id:
                mode = {"enable": "enabled", "disable": "disabled"}.get(action) or (
                    "draining" if view.running else "drained"
                )
                change = {"enabled": mode == "enabled", "mode": mode, "drain_until": until}
                self.agents[at] = view.model_copy(update=change)
                return self.agents[at]
        raise ErrorReply(404, "not_found", f"there is no agent {agent_id}")

    def switch_slot(self, agent_id: str, slot_id: str, action: str) -> AgentView:
        """Enable or disable a slot of an agent.

        Raises:
            Refusal: There is no such agent or slot.
        """
        for at, view in enumerate(self.agents):
            if view.id == agent_id and slot_id in {slot.id for slot in view.slots}:
                change = {"enabled": action == "enable"}
                slots = [slot.model_copy(update=change) if slot.id == slot_id else slot for slot in view.slots]
                self.agents[at] = view.model_copy(update={"slots": slots})
                return self.agents[at]
        raise ErrorReply(404, "not_found", f"agent {agent_id} has no slot {slot_id}")


def _list(h: Any) -> None:
    found = [view.model_copy(update={"config": None}) for view in reversed(h.master.tasks.values())]
    for key in ("kind", "state", "owner"):
        if key in h.query:
            found = [view for view in found if str(getattr(view, key)) == h.query[key]]
    if "before" in h.query:
        ids = [view.id for view in found]
        found = found[ids.index(h.query["before"]) + 1 :]
    h.page(found)


def _logs(h: Any, task_id: str) -> None:
    h.master.task(task_id)
    h.page_of_lines(line for line in h.master.logs if line.task_id == task_id)


def _follow_logs(h: Any, task_id: str) -> None:
    h.master.task(task_id)
    h.stream(h.master.task_logs_after(task_id, int(h.query.get("after", 0))))


def _revoke(h: Any, token_id: str) -> None:
    if h.master.task_tokens.pop(token_id, None) is None:
        raise ErrorReply(404, "not_found", f"there is no token {token_id}")
    h.tell({})


def _drain(h: Any, agent_id: str) -> None:
    asked = json.loads(h.body)
    h.master.drained.append(asked)
    h.tell(h.master.switch(agent_id, "drain", None if asked["deadline"] is None else time.time() + asked["deadline"]))


def _remove(h: Any, agent_id: str) -> None:
    view = h.master.switch(agent_id, "disable")
    h.master.agents = [agent for agent in h.master.agents if agent.id != agent_id]
    h.tell(view)


def _audit(h: Any) -> None:
    wanted = {key: h.query[key] for key in ("actor", "action") if key in h.query}
    found = [item for item in h.master.audit if all(getattr(item, key) == value for key, value in wanted.items())]
    h.page(found)


TASK_ROUTES: list[Route] = [
    ("POST", r"tasks", lambda h: h.tell(h.master.create_task(CreateTask.model_validate_json(h.body)))),
    ("GET", r"tasks", _list),
    ("GET", r"tasks/([^/]+)", lambda h, n: h.tell(h.master.task(n))),
    ("POST", r"tasks/([^/]+)/kill", lambda h, n: h.tell(h.master.kill_task(n))),
    ("GET", r"tasks/([^/]+)/logs", _logs),
    ("GET", r"tasks/([^/]+)/logs/stream", _follow_logs),
    ("GET", r"tasks/([^/]+)/outputs", lambda h, n: h.tell({"items": h.master.outputs.get(h.master.task(n).id, [])})),
    ("GET", r"tasks/([^/]+)/outputs/(.+)", lambda h, n, d: h.send_bytes(h.master.blobs[d])),
    ("GET", r"overview", lambda h: h.tell({"cursor": len(h.master.events)})),
    ("GET", r"stream", lambda h: h.stream(h.master.follow(lambda: h.master.events, int(h.query.get("after", 0))))),
    ("GET", r"queue", lambda h: h.tell({"items": h.master.queue})),
    ("GET", r"audit", _audit),
    (
        "GET",
        r"usage",
        lambda h: h.tell(UsageView(first="2030-01-01", last="2030-01-31", items=h.master.usage, idle=h.master.idle)),
    ),
    ("GET", r"tokens", lambda h: h.tell({"items": list(h.master.task_tokens.values())})),
    ("DELETE", r"tokens/([^/]+)", _revoke),
    ("POST", r"agents/enrolments", lambda h: h.tell({"token": "dtenrol_abc", "expires_at": 1.9e9})),
    ("POST", r"agents/([^/]+)/(enable|disable)", lambda h, n, a: h.tell(h.master.switch(n, a))),
    ("POST", r"agents/([^/]+)/drain", _drain),
    (
        *("POST", r"agents/([^/]+)/slots/([^/]+)/(enable|disable)"),
        lambda h, n, s, a: h.tell(h.master.switch_slot(n, s, a)),
    ),
    ("DELETE", r"agents/([^/]+)", _remove),
]
