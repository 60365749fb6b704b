"""A described pool, as `det cluster simulate` reads it, and the report of a scheduling pass over it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from detlab.errors import Problem
from detlab.schemas.expconf import load_yaml
from detlab_hub.core import scheduling
from detlab_hub.core.scheduling.configuration import MOST_SHARES

MOST = 100_000
"""Most agents, jobs or tasks of a scenario, and slots of one of them."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def _bytes(value: object) -> object:
    """Read `80G`, `40 GiB` or a number of bytes."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        return int(float(match[1]) * _UNITS[match[2].lower()])
    return _whole(value)


def _whole(value: object) -> object:
    """Read `50.0` as 50."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: object) -> object:
    """Read a number or a boolean as the text that was written: names and labels may look like either."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _texts(value: object) -> object:
    """Read one text as a list of one."""
    return [value] if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str, BeforeValidator(_text), Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], BeforeValidator(_texts)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0, le=2**60)]
Cpus = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Labels = dict[Text, Text]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, value: Any) -> Any:
        """Treat null values as absent."""
        return {key: one for key, one in value.items() if one is not None} if isinstance(value, dict) else value


class PoolPart(_Part):
    """See `scheduling.Pool`; and into how many slots each device of its agents is divided."""

    scheduler: Annotated[scheduling.Scheduler, Field(strict=False)] = scheduling.Scheduler.PRIORITY
    preemption: bool = False
    fitting: Annotated[scheduling.Fitting, Field(strict=False)] = scheduling.Fitting.BEST
    heterogeneous: bool = False
    slots_per_device: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MOST_SHARES)] = 1


class AgentPart(_Part):
    """See `scheduling.Agent`; where devices are shared its slots are still devices, and its memory that of one."""

    id: Name
    slots: Count
    labels: Labels = {}
    max_zero_slot_tasks: Count = scheduling.MAX_ZERO_SLOT_TASKS
    state: Annotated[scheduling.AgentState, Field(strict=False)] = scheduling.AgentState.ENABLED
    slot_type: str = ""
    gpu: str = ""
    memory: Bytes = 0
    cpus: Cpus | None = None
    host_memory: Bytes | None = None


class JobPart(_Part):
    """See `scheduling.Job`."""

    id: Name
    priority: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=99)] = scheduling.DEFAULT_PRIORITY
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    max_slots: Count | None = None
    submitted: Seconds = 0.0
    position: Seconds | None = None


class RulePart(_Part):
    """See `scheduling.LabelRule`: exactly one of `one_of`, `none_of` and `exists`."""

    label: Name
    one_of: Annotated[Names, Field(min_length=1)] | None = None
    none_of: Annotated[Names, Field(min_length=1)] | None = None
    exists: bool | None = None


class PreferencePart(RulePart):
    """See `scheduling.Preference`."""

    weight: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=100)] = 1


class AffinityPart(_Part):
    """Rules for the labels of agents."""

    required: list[RulePart] = []
    preferred: list[PreferencePart] = []


class ConstraintsPart(_Part):
    """See `scheduling.Constraints`."""

    slot_type: str = ""
    gpu: str = ""
    memory: Bytes = 0
    labels: Labels = {}
    affinity: AffinityPart = AffinityPart()


class TaskPart(_Part):
    """See `scheduling.SchedulerTask`."""

    id: Name
    job: Name
    slots: Count = 1
    state: Annotated[scheduling.TaskState, Field(strict=False)] = scheduling.TaskState.PENDING
    requested: Seconds = 0.0
    on: dict[Name, Count] = {}
    preemptible: bool = True
    single_node: bool = False
    blocked_nodes: Names = []
    user: Text = ""
    groups: Names = []
    constraints: ConstraintsPart = ConstraintsPart()
    max_time: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    cpus: Cpus = 0.0
    memory: Bytes = 0


class QuotaPart(_Part):
    """See `scheduling.Quota`."""

    slots: Count
    user: Name | None = None
    group: Name | None = None


def _quotas(value: object) -> object:
    """Read `{users: {ada: 8}, groups: {vision: 16}}`, too."""
    if not isinstance(value, dict) or not value.keys() <= {"users", "groups"}:
        return value
    found: list[object] = []
    for holders, kind in (("users", "user"), ("groups", "group")):
        slots = value.get(holders) or {}
        found += [{kind: name, "slots": one} for name, one in slots.items()] if isinstance(slots, dict) else [slots]
    return found


class Scenario(_Part):
    """The whole file."""

    pool: PoolPart = PoolPart()
    agents: Annotated[list[AgentPart], Field(max_length=MOST)] = []
    jobs: Annotated[list[JobPart], Field(max_length=MOST)] = []
    tasks: Annotated[list[TaskPart], Field(max_length=MOST)] = []
    quotas: Annotated[list[QuotaPart], BeforeValidator(_quotas), Field(max_length=MOST)] = []


def read_scenario(text: str, name: str) -> tuple[scheduling.Snapshot | None, list[Problem]]:
    """Read a scenario; return it, or None and every error that was found.

    Args:
        text: YAML (or JSON, which is YAML).
        name: Of the file, for errors.
    """
    raw, problems = load_yaml(text, name)
    if problems:
        return None, [Problem(problem.path or name, problem.message, problem.hint) for problem in problems]
    try:
        scenario = Scenario.model_validate({} if raw is None else raw)
    except ValidationError as error:
        return None, [Problem(_path(one["loc"]) or name, _words(one)) for one in error.errors(include_url=False)]
    problems = list(_contradictions(scenario))
    return (None, problems) if problems else (_snapshot(scenario), [])


def _path(where: tuple[int | str, ...]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in where]
    return "".join(parts).removeprefix(".")


def _words(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "is not a field of a scenario"
    message: str = error["msg"]
    return message[:1].lower() + message[1:]


def _contradictions(scenario: Scenario) -> Iterator[Problem]:
    """Check relations between fields."""
    for kind in ("agents", "jobs", "tasks"):
        counts = Counter(part.id for part in getattr(scenario, kind))
        yield from (Problem(kind, f"{name!r} is there {n} times") for name, n in counts.items() if n > 1)
    agents = {agent.id: agent for agent in scenario.agents}
    jobs = {job.id for job in scenario.jobs}
    used: Counter[str] = Counter()
    for number, task in enumerate(scenario.tasks):
        place = f"tasks[{number}]"
        if task.job not in jobs:
            yield Problem(f"{place}.job", f"there is no job {task.job!r}")
        yield from (Problem(f"{place}.on", f"there is no agent {name!r}") for name in task.on if name not in agents)
        yield from _where(task, place)
        yield from _tests(task.constraints.affinity, f"{place}.constraints.affinity")
        used.update(task.on)
    shares = scenario.pool.slots_per_device
    for name, slots in used.items():
        if name in agents and slots > (has := agents[name].slots * shares):
            yield Problem("tasks", f"those that run hold {slots} slots of agent {name!r}, which has {has}")
    yield from _too_much(scenario)
    for number, quota in enumerate(scenario.quotas):
        if (quota.user is None) is (quota.group is None):
            yield Problem(f"quotas[{number}]", "needs either user or group")


def _too_much(scenario: Scenario) -> Iterator[Problem]:
    """Report agents whose running tasks hold more CPUs or memory than there are."""
    cpus, memory = Counter[str](), Counter[str]()
    for task in scenario.tasks:
        for name in task.on:
            cpus[name] += round(task.cpus * 1000)
            memory[name] += task.memory
    for agent in scenario.agents:
        if agent.cpus is not None and cpus[agent.id] > round(agent.cpus * 1000):
            held = cpus[agent.id] / 1000
            yield Problem("tasks", f"those that run hold {held:g} CPUs of agent {agent.id!r}, which has {agent.cpus:g}")
        if agent.host_memory is not None and memory[agent.id] > agent.host_memory:
            yield Problem(
                "tasks",
                f"those that run hold {memory[agent.id]} bytes of memory of agent {agent.id!r}, which has"
                f" {agent.host_memory}",
            )


def _tests(affinity: AffinityPart, place: str) -> Iterator[Problem]:
    """Report rules with no test, or with several."""
    for kind in ("required", "preferred"):
        for number, rule in enumerate(getattr(affinity, kind)):
            said = [test for test in ("one_of", "none_of", "exists") if getattr(rule, test) is not None]
            if len(said) != 1:
                given = " and ".join(said) or "none of them"
                yield Problem(f"{place}.{kind}[{number}]", f"needs one of one_of, none_of and exists; it has {given}")


def _where(task: TaskPart, place: str) -> Iterator[Problem]:
    if task.state is scheduling.TaskState.PENDING and task.on:
        yield Problem(f"{place}.on", "a pending task is on no agent")
    elif task.state is scheduling.TaskState.RUNNING and not task.on:
        yield Problem(f"{place}.on", "a running task says how many slots it holds on which agent")
    elif task.state is scheduling.TaskState.RUNNING and sum(task.on.values()) != task.slots:
        yield Problem(f"{place}.on", f"gives {sum(task.on.values())} slots, the task has {task.slots}")


def _snapshot(scenario: Scenario) -> scheduling.Snapshot:
    shares = scenario.pool.slots_per_device
    return scheduling.Snapshot(
        pool=scheduling.Pool(**scenario.pool.model_dump(exclude={"slots_per_device"})),
        agents=tuple(_agent(agent, shares) for agent in scenario.agents),
        jobs={job.id: scheduling.Job(**job.model_dump()) for job in scenario.jobs},
        tasks=tuple(_task(task) for task in scenario.tasks),
        quotas=tuple(scheduling.Quota(**quota.model_dump()) for quota in scenario.quotas),
    )


def _agent(part: AgentPart, shares: int) -> scheduling.Agent:
    said = part.model_dump(exclude={"slots", "memory", "cpus", "host_memory"})
    return scheduling.Agent(
        **said,
        slots=part.slots * shares,
        memory=part.memory // shares,
        millicpus=scheduling.UNBOUNDED if part.cpus is None else round(part.cpus * 1000),
        host_memory=scheduling.UNBOUNDED if part.host_memory is None else part.host_memory,
    )


def _task(part: TaskPart) -> scheduling.SchedulerTask:
    wanted = part.constraints
    affinity = wanted.affinity.model_dump()
    constraints = scheduling.Constraints(
        slot_type=wanted.slot_type,
        gpu=wanted.gpu,
        memory=wanted.memory,
        labels=frozenset(wanted.labels.items()),
        required=frozenset(map(scheduling.rule_of, affinity["required"])),
        preferred=scheduling.preferences_of(affinity["preferred"]),
    )
    return scheduling.SchedulerTask(
        id=part.id,
        job=part.job,
        slots=part.slots,
        state=part.state,
        requested=part.requested,
        on=part.on,
        preemptible=part.preemptible,
        single_node=part.single_node,
        blocked_nodes=frozenset(part.blocked_nodes),
        user=part.user,
        groups=frozenset(part.groups),
        constraints=constraints,
        max_time=part.max_time,
        millicpus=round(part.cpus * 1000),
        memory=part.memory,
    )


def as_json(decision: scheduling.PlacementDecision) -> dict[str, Any]:
    """Return the machine-readable form of a decision."""
    waiting: Mapping[str, scheduling.Reason] = decision.waiting
    return {
        "allocate": {name: dict(placement) for name, placement in decision.allocate.items()},
        "release": list(decision.release),
        "waiting": {name: {"reason": why.code.value, "detail": why.detail} for name, why in waiting.items()},
    }
