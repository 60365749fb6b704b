"""The input of a search (events, past tense) and its output (decisions, imperative).

Both are stored in the master's journal as JSON. JSON has no NaN and no infinities, and PostgreSQL refuses
Python's spelling of them, so non-finite floats are written as the strings ``"NaN"``, ``"Infinity"`` and
``"-Infinity"``; all others survive bit for bit through ``repr``.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never, get_args

from detlab_hub.core.searchers.errors import SearcherInputError

ExitReason = Literal["errored", "user_canceled", "invalid_hp", "init_invalid_hp"]
"""Why a trial ended before its code was done."""

INVALID_REASONS: frozenset[ExitReason] = frozenset({"invalid_hp", "init_invalid_hp"})


@dataclass(frozen=True, slots=True)
class Started:
    """The experiment started; answered by the first trials."""


@dataclass(frozen=True, slots=True)
class TrialCreated:
    """The trial of a `CreateTrial` decision was stored."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ValidationReported:
    """A trial reported the searcher's metric.

    Attributes:
        request_id: The reporting trial.
        metric: The value as reported (not negated); may be NaN or infinite.
        time: The value of the searcher's `time_metric` in the same report, None where the report has none.
    """

    request_id: str
    metric: float
    time: float | None = None


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """A trial estimated the done part of its training, 0 to 1. Never changes a decision."""

    request_id: str
    progress: float


@dataclass(frozen=True, slots=True)
class TrialExitedEarly:
    """A trial ended before its code was done; a `TrialExited` follows."""

    request_id: str
    reason: ExitReason


@dataclass(frozen=True, slots=True)
class TrialExited:
    """A trial reached a terminal state."""

    request_id: str


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """A trial's checkpoint was committed. Sent only to methods with `wants_checkpoints`.

    Attributes:
        request_id: The trial.
        uuid: The checkpoint.
        steps_completed: At which step it was saved.
    """

    request_id: str
    uuid: str
    steps_completed: int


@dataclass(frozen=True, slots=True)
class Suggested:
    """A `Suggest` decision was answered, outside of any transaction.

    Attributes:
        ticket: The ticket of the `Suggest`.
        points: Hyperparameters, plain JSON values. If there are fewer than requested, the rest is drawn at random.
        failure: Why there are fewer; empty if all are there.
    """

    ticket: int
    points: tuple[dict[str, Any], ...]
    failure: str = ""


Event: TypeAlias = (
    Started
    | TrialCreated
    | ValidationReported
    | ProgressReported
    | TrialExitedEarly
    | TrialExited
    | CheckpointCommitted
    | Suggested
)


@dataclass(frozen=True, slots=True)
class CreateTrial:
    """Create a trial.

    Attributes:
        request_id: UUIDv4 drawn from the search's random numbers: the same after a replay.
        trial_seed: Seed for the trial's own randomness, 0 to 2**31 - 1.
        hparams: Sampled hyperparameters, plain JSON values.
        index: Creation order in the experiment, from 0.
        parent: Checkpoint of another trial of the search from which it starts; None: it starts from scratch.
    """

    request_id: str
    trial_seed: int
    hparams: dict[str, Any]
    index: int
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class StopTrial:
    """End a trial that the search does not need any longer.

    Attributes:
        request_id: The trial.
        finished: Whether it trained as long as the search ever trains one (the top rung), not stopped early.
        evidence: What a stopping policy based it on, for people; empty where the method decided.
    """

    request_id: str
    finished: bool = False
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Suggest:
    """Compute points outside of the writer's transaction; answered by `Suggested`.

    Attributes:
        ticket: Counts the questions of a search, from 0.
        count: Points that are wanted.
    """

    ticket: int
    count: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The search is over.

    Attributes:
        cancel: Every trial was canceled by a user.
        failure: Every trial failed.
    """

    cancel: bool
    failure: bool


Decision: TypeAlias = CreateTrial | StopTrial | Suggest | Shutdown


def _float_to_json(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _float_from_json(value: float | str) -> float:
    return float(value)


def event_to_json(event: Event) -> dict[str, Any]:
    """Write an event as a JSON object with its kind under `type`."""
    match event:
        case Started():
            return {"type": "started"}
        case TrialCreated():
            return {"type": "trial_created", "request_id": event.request_id}
        case ValidationReported():
            return {
                "type": "validation_reported",
                "request_id": event.request_id,
                "metric": _float_to_json(event.metric),
                "time": None if event.time is None else _float_to_json(event.time),
            }
        case ProgressReported():
            return {
                "type": "progress_reported",
                "request_id": event.request_id,
                "progress": _float_to_json(event.progress),
            }
        case TrialExitedEarly():
            return {"type": "trial_exited_early", "request_id": event.request_id, "reason": event.reason}
        case TrialExited():
            return {"type": "trial_exited", "request_id": event.request_id}
        case CheckpointCommitted():
            return {
                "type": "checkpoint_committed",
                "request_id": event.request_id,
                "uuid": event.uuid,
                "steps_completed": event.steps_completed,
            }
        case Suggested():
            return {
                "type": "suggested",
                "ticket": event.ticket,
                "points": list(event.points),
                "failure": event.failure,
            }
        case _:
            assert_never(event)


def event_from_json(data: dict[str, Any]) -> Event:
    """Read an event written by `event_to_json`.

    Raises:
        SearcherInputError: If the kind of event or the exit reason is unknown.
    """
    match data.get("type"):
        case "started":
            return Started()
        case "trial_created":
            return TrialCreated(data["request_id"])
        case "validation_reported":
            time = data["time"]
            return ValidationReported(
                data["request_id"],
                _float_from_json(data["metric"]),
                None if time is None else _float_from_json(time),
            )
        case "progress_reported":
            return ProgressReported(data["request_id"], _float_from_json(data["progress"]))
        case "trial_exited_early":
            reason = data["reason"]
            if reason not in get_args(ExitReason):
                raise SearcherInputError(f"unknown exit reason {reason!r} in the search journal")
            return TrialExitedEarly(data["request_id"], reason)
        case "trial_exited":
            return TrialExited(data["request_id"])
        case "checkpoint_committed":
            return CheckpointCommitted(data["request_id"], data["uuid"], data["steps_completed"])
        case "suggested":
            return Suggested(data["ticket"], tuple(data["points"]), data["failure"])
        case kind:
            raise SearcherInputError(f"unknown event {kind!r} in the search journal")


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """Write a decision as a JSON object with its kind under `type`."""
    match decision:
        case CreateTrial():
            made = {
                "type": "create_trial",
                "request_id": decision.request_id,
                "trial_seed": decision.trial_seed,
                "hparams": decision.hparams,
                "index": decision.index,
            }
            return made if decision.parent is None else made | {"parent": decision.parent}
        case StopTrial():
            stop = {"type": "stop_trial", "request_id": decision.request_id, "finished": decision.finished}
            return stop | {"evidence": decision.evidence} if decision.evidence else stop
        case Suggest():
            return {"type": "suggest", "ticket": decision.ticket, "count": decision.count}
        case Shutdown():
            return {"type": "shutdown", "cancel": decision.cancel, "failure": decision.failure}
        case _:
            assert_never(decision)


def decision_from_json(data: dict[str, Any]) -> Decision:
    """Read a decision written by `decision_to_json`.

    Raises:
        SearcherInputError: If the kind of decision is unknown.
    """
    match data.get("type"):
        case "create_trial":
            return CreateTrial(
                data["request_id"], data["trial_seed"], data["hparams"], data["index"], data.get("parent")
            )
        case "stop_trial":
            return StopTrial(data["request_id"], data.get("finished", False), data.get("evidence", ""))
        case "suggest":
            return Suggest(data["ticket"], data["count"])
        case "shutdown":
            return Shutdown(cancel=data["cancel"], failure=data["failure"])
        case kind:
            raise SearcherInputError(f"unknown decision {kind!r} in the search journal")
