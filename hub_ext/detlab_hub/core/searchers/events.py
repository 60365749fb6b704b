"""The input of a search (events, past tense) and its output (decisions, imperative).

Both are stored in the master's journal as JSON: see `journal`.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

ExitReason = Literal["errored", "user_canceled", "invalid_hp", "init_invalid_hp"]
"""Why a trial ended before its code was done."""

INVALID_REASONS: frozenset[ExitReason] = frozenset({"invalid_hp", "init_invalid_hp"})


EXACT_RUNGS = HONOURED_LIMIT = BOUNDED_INVALID = LATE = 1
"""The rules from which on: rungs are exact, a limit below the number of brackets holds, invalid points pause, and the
points of methods with `draws_late` are drawn when trials are placed."""
SCALED = DISQUALIFIED = 2
"""The rules from which on: violations of constraints are relative to their bounds, and a trial that a policy stops
while it breaks a constraint counts as infeasible at all rungs that it has passed, so that the next best is promoted."""
COUNTED = 3
"""The rules from which on: a trial that a policy or a user stops on its way to a rung counts there."""
RULES = 3
"""The rules by which new searches decide. A journal names its own, so that it is replayed as it was decided."""


@dataclass(frozen=True, slots=True)
class Started:
    """The experiment started; answered by the first trials.

    Attributes:
        rules: The rules by which its search decides; 0 in journals from before they had numbers.
    """

    rules: int = field(default=RULES, metadata={"absent": 0})


@dataclass(frozen=True, slots=True)
class TrialCreated:
    """The trial of a `CreateTrial` decision was stored."""

    request_id: str


@dataclass(frozen=True, slots=True)
class TrialPlaced:
    """A trial that has no point yet was given resources; answered by its `SetPoint`, or by a `Suggest` before it."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ValidationReported:
    """A trial reported the searcher's metric.

    Attributes:
        request_id: The reporting trial.
        metric: The value as reported (not negated); may be NaN or infinite.
        time: The value of the searcher's `time_metric` in the same report, None where the report has none.
        values: The other metrics that the search is about, by name: further objectives and constraints.
        elapsed: Seconds that the trial has run until then; None if nothing needs it.
    """

    request_id: str
    metric: float
    time: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    elapsed: float | None = None


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
        points: Hyperparameters, plain JSON values. If there are too few, the rest is drawn at random.
        failure: Why there are too few; empty if there are enough.
    """

    ticket: int
    points: tuple[dict[str, Any], ...]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """The class of a custom search answered an event of its feed.

    Attributes:
        number: Of the event that was answered.
        operations: The operations, plain JSON values, in order.
        failure: Why there is no answer: it raised, took too long, or returned an impossible operation; for people.
    """

    number: int
    operations: tuple[dict[str, Any], ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class TrialPaused:
    """A trial that the search paused has left its slots; what it saved is committed."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Extended:
    """A user extended the search.

    Attributes:
        trials: Further trials.
        units: Further units of the time metric for the longest trials.
        author: The user.
    """

    trials: int = 0
    units: int = 0
    author: str = ""


@dataclass(frozen=True, slots=True)
class PointsAdded:
    """A user added points: they become the next trials, in addition to `max_trials`."""

    points: tuple[dict[str, Any], ...]
    author: str = ""


@dataclass(frozen=True, slots=True)
class SpaceEdited:
    """A user changed the space: further trials come from it.

    Attributes:
        space: The complete new `hyperparameters` block.
        author: The user.
        redraw: Trials that nobody has been handed yet: their points are drawn anew, where the method can.
    """

    space: dict[str, Any]
    author: str = ""
    redraw: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConcurrencySet:
    """A user changed how many trials may run at a time; 0 is no limit."""

    limit: int
    author: str = ""


@dataclass(frozen=True, slots=True)
class TrialsRetried:
    """A user asked for new trials at the points of these, which failed."""

    request_ids: tuple[str, ...]
    author: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A user stopped a trial by hand; what it has reported counts, but on its way to a rung it is the worst there."""

    request_id: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class PromotionRequested:
    """A user promoted a trial by hand: it continues to the next rung.

    Attributes:
        request_id: The trial.
        author: The user.
        to: Units of the time metric of that rung; None in older journals.
    """

    request_id: str
    author: str = ""
    to: int | None = None


@dataclass(frozen=True, slots=True)
class Continued:
    """A user activated the experiment again after the search had paused it."""

    author: str = ""


@dataclass(frozen=True, slots=True)
class Reopened:
    """A user let a search go on that had ended, or was canceled.

    Attributes:
        request_ids: Trials that train on from their checkpoints; all are off their slots until they are resumed.
        author: The user.
    """

    request_ids: tuple[str, ...] = ()
    author: str = ""


@dataclass(frozen=True, slots=True)
class BudgetSpent:
    """The experiment has used up a budget: no more trials are created, and running ones are stopped.

    Attributes:
        reason: The budget, with its numbers, for people.
    """

    reason: str


Steering: TypeAlias = (
    Extended
    | PointsAdded
    | SpaceEdited
    | ConcurrencySet
    | TrialsRetried
    | StopRequested
    | PromotionRequested
    | Continued
)
"""What users do to a search while it runs."""

TrialEvent: TypeAlias = (
    TrialCreated
    | TrialPlaced
    | ValidationReported
    | ProgressReported
    | TrialExitedEarly
    | TrialExited
    | CheckpointCommitted
    | TrialPaused
)
"""What happens to one trial."""

Event: TypeAlias = Started | TrialEvent | Suggested | Answered | Steering | BudgetSpent | Reopened


@dataclass(frozen=True, slots=True)
class CreateTrial:
    """Create a trial.

    Attributes:
        request_id: UUIDv4 drawn from the search's random numbers: the same after a replay.
        trial_seed: Seed for the trial's own randomness, 0 to 2**31 - 1.
        hparams: Sampled hyperparameters, plain JSON values.
        index: Creation order in the experiment, from 0.
        parent: Checkpoint of another trial of the search from which it starts; None: it starts from scratch.
        later: Whether it has no point yet: that is drawn when it is placed.
    """

    request_id: str
    trial_seed: int
    hparams: dict[str, Any]
    index: int
    parent: str | None = None
    later: bool = False


@dataclass(frozen=True, slots=True)
class SetPoint:
    """Give a trial that was created without a point its hyperparameters, plain JSON values."""

    request_id: str
    hparams: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StopTrial:
    """End a trial that the search no longer needs.

    Attributes:
        request_id: The trial.
        finished: Whether it trained as long as the search ever trains one (the top rung), not stopped early.
        evidence: The stopping policy's reason, for people; empty if the method decided.
    """

    request_id: str
    finished: bool = False
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Suggest:
    """Compute points outside of the writer's transaction; answered by `Suggested`.

    Attributes:
        ticket: Counts the questions of a search, from 0.
        count: Points wanted.
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


@dataclass(frozen=True, slots=True)
class PauseTrial:
    """Take a trial off its slots: it saves and leaves, and keeps its place in the search. Answered by `TrialPaused`."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ResumeTrial:
    """Let a paused trial continue from its checkpoint."""

    request_id: str


@dataclass(frozen=True, slots=True)
class WouldStop:
    """A stopping policy that only records would have stopped a trial here.

    Attributes:
        request_id: The trial.
        evidence: The policy's reason, for people.
    """

    request_id: str
    evidence: str


@dataclass(frozen=True, slots=True)
class PauseSearch:
    """Pause the experiment until a user fixes the cause; its activation is a `Continued`.

    Attributes:
        reason: What is wrong, for people.
        hint: What to do; empty: send mended code.
    """

    reason: str
    hint: str = ""


Decision: TypeAlias = (
    CreateTrial | SetPoint | StopTrial | PauseTrial | ResumeTrial | Suggest | WouldStop | PauseSearch | Shutdown
)
