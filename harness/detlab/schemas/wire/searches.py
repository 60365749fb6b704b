"""What users do to a search while it runs, and what its journal says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from detlab.schemas.wire.base import PersonRequest, TrialState, Wire
from detlab.schemas.wire.views import BestView, BudgetView, ExperimentView, ParentView

MOST_POINTS = 1000
MOST_OPERATIONS = 20_000
MOST_TRIALS_MORE = 1000
"""As many as a search may have at a time: they may all be made in one transaction."""
_CONFIRMED = "the best trial was trained once more: "
_AS_ASKED = ("the search has ended early: ", "every point of the space has been tried")
SearchAct = Literal["extend", "add", "retry", "bounds", "concurrency", "stop", "promote", "code", "metric"]


class SteerSearch(PersonRequest):
    """POST experiments/{id}/search: one act; each act has the fields that it names, and leaves the others alone."""

    act: SearchAct
    trials: int = Field(0, ge=0, le=MOST_TRIALS_MORE)
    """Of `extend`: further trials."""
    units: int = Field(0, ge=0, le=10**12)
    """Of `extend`: further units of the time metric for the longest trials."""
    points: list[dict[str, Any]] = Field(default=[], max_length=MOST_POINTS)
    """Of `add`: hyperparameters of the next trials."""
    hyperparameters: dict[str, Any] | None = None
    """Of `bounds`: the complete new block."""
    limit: int | None = Field(None, ge=0, le=MOST_TRIALS_MORE)
    """Of `concurrency`: trials at a time, 0 for no limit."""
    trial_ids: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(default=[], max_length=MOST_POINTS)
    """Of `retry`: failed trials, all of them if empty; of `stop` and `promote`: one trial."""
    bundle: Annotated[str, Field(max_length=200)] | None = None
    """Of `code`: the uploaded code, in place of what the class of a custom search has, or the trials of another one."""
    metric: Annotated[str, Field(max_length=300)] = ""
    """Of `metric`: the searcher metric's right name, as long as no trial has reported the one it had."""
    idempotency_key: Annotated[str, Field(max_length=300)] | None = None
    """The same act with the same key is carried out once."""


class SteeredExperiment(ExperimentView):
    """The experiment after an act."""

    promoted_to: int | None = None
    """Of `promote`: units of the time metric of the rung to which the trial trains now."""


class SearchSetup(Wire):
    """What the task of a custom search needs to create its class."""

    experiment_id: int
    entrypoint: str
    options: dict[str, Any] = {}
    answer_timeout: float
    seed: int
    hyperparameters: dict[str, Any]
    metric: str
    smaller_is_better: bool
    time_metric: str | None = None
    max_trials: int
    max_concurrent_trials: int
    require: list[str] = []


class FeedEvent(Wire):
    """An event that the class of a custom search receives, and its answer."""

    number: int
    """From 1, without gaps."""
    type: str
    request_id: str | None = None
    """The trial, by the id that the class gave it."""
    trial: str | None = None
    """The trial, by the id that the search gave it."""
    hparams: dict[str, Any] | None = None
    metric: float | str | None = None
    """A number, or the text NaN, Infinity or -Infinity."""
    train_length: float | None = None
    reason: str | None = None
    hyperparameters: dict[str, Any] | None = None
    """Of `space_edited`: the new block."""
    operations: list[dict[str, Any]] | None = None
    """Its answer; None if it has not answered yet."""


class SearchFeed(Wire):
    """GET task/search: the events of a custom search after a number."""

    setup: SearchSetup
    events: list[FeedEvent]
    over: bool = False
    """The search needs no more answers: the task may end."""
    why: str = ""
    """Why not, for people."""


class SearchAnswer(Wire):
    """POST task/search: the answer of the class to an event, or why it has none."""

    number: int = Field(ge=1, le=10**9)
    operations: list[dict[str, Any]] = Field(default=[], max_length=MOST_OPERATIONS)
    failure: Annotated[str, Field(max_length=20_000)] = ""
    """For people; the experiment is paused."""


class SearchAnswerReply(Wire):
    """What became of an answer."""

    accepted: bool
    """Whether it was carried out; False if the event had been answered before."""
    over: bool = False
    why: str = ""


MOST_TOLD_METRICS = 1000
MOST_STEPS = 2**53
MOST_WAIT = 30.0
"""Seconds for which the master lets one `ask` wait for a trial."""
Outcome = Literal["running", "completed", "failed", "invalid"]


class AskTrial(PersonRequest):
    """POST experiments/{id}/search/ask: a trial of an unmanaged experiment, to be evaluated by the caller."""

    timeout: float = Field(0.0, ge=0.0, le=MOST_WAIT)
    """Most seconds to wait for a trial: the next point may have to be computed."""
    again: bool = False
    """Hand out a trial that is being evaluated, because the program that asked for it has died."""
    trial_id: int | None = Field(None, ge=1, lt=2**63)
    """With `again`: the trial; default: the one that was asked for first."""
    idempotency_key: Annotated[str, Field(max_length=300)] | None = None
    """The same request with the same key gets the same trial, until that has ended."""


class AskedTrial(Wire):
    """A trial that the caller is to evaluate."""

    id: int
    number: int
    """Its place in the search, from 0."""
    hyperparameters: dict[str, Any]
    seed: int
    run: int
    """How many times it was handed out: results of an earlier time are refused."""
    steps_completed: int = 0
    """The last step that was told: the evaluation may continue there if its state was kept."""


class Asked(Wire):
    """The next trial to evaluate, or why there is none."""

    trial: AskedTrial | None = None
    over: bool = False
    """Whether there will be no further trial."""
    why: str = ""
    """Why there is none, for people."""
    waits_for: list[int] = []
    """Trials being evaluated; one of them must end before the search makes another."""


class TellTrial(PersonRequest):
    """POST experiments/{id}/search/tell: the result of a trial."""

    trial_id: int = Field(ge=1, lt=2**63)
    run: int | None = Field(None, ge=0, lt=2**63)
    """`run` of the `AskedTrial`; default: the newest."""
    metrics: dict[Annotated[str, Field(max_length=1000)], Any] = Field(default={}, max_length=MOST_TOLD_METRICS)
    """Validation metrics: the searcher's, and any others."""
    steps_completed: int | None = Field(None, ge=0, le=MOST_STEPS)
    """How far it has trained; default: one step after the last report."""
    state: Outcome = "completed"
    """How it ended: `running` if it has not, `invalid` if its hyperparameters cannot be evaluated."""
    message: Annotated[str, Field(max_length=10_000)] = ""
    """Why the trial failed."""


class Told(Wire):
    """How the search reacts to a result."""

    stop: bool
    """Whether to stop evaluating the trial: it has ended, or is paused at a rung."""
    state: TrialState
    why: str = ""
    """Why, for people; empty if the caller ended it."""

    def __bool__(self) -> bool:
        """Whether to stop evaluating the trial."""
        return self.stop


class JournalEntry(Wire):
    """An event of a search and what the search decided."""

    seq: int
    at: float | None = None
    """Seconds since the epoch; None if an earlier version wrote it."""
    event: dict[str, Any]
    decisions: list[dict[str, Any]]


class ReplayedTrial(Wire):
    """A trial as the search knew it at an event."""

    id: int | None = None
    index: int
    request_id: str
    hparams: dict[str, Any]
    point_due: bool = False
    """Whether it had no hyperparameters yet: its search draws them when it starts."""
    state: Literal["waiting", "running", "paused", "stopping", "ended"]
    """`waiting`: it held no slots then."""
    why: str = ""
    """Why it was stopped or how it ended, for people."""
    parent: ParentView | None = None
    """The trial from whose checkpoint it started, if the search made it as a clone."""
    best: float | None = None
    """Its best value of the searcher metric until then."""
    reports: int = 0
    """Reports in the journal."""


class StandingView(Wire):
    """How many trials are where, at one rung, round or generation of a search."""

    where: str
    """The rung, round or generation, for people."""
    counts: dict[str, int]
    """By what the trials do there, such as `running`, `paused`, `promoted`, `stopped`; points with `seeds`."""


class ReplayedSearch(Wire):
    """A search at one of its events, computed from its journal."""

    at: int
    """The last event that was replayed."""
    events: int
    """Events in the journal."""
    time: float | None = None
    last: dict[str, Any] | None = None
    """The event itself."""
    progress: float
    trials_total: int
    """Trials that the search makes at most."""
    best: BestView | None = None
    """The best report until then, as in the view of the experiment."""
    budgets: list[BudgetView] = []
    """What was used of each budget until then; without wall-clock time if the experiment was paused meanwhile."""
    standing: list[StandingView] = []
    """Trials at each rung, round or generation; empty for methods without."""
    trials: list[ReplayedTrial]
    over: bool


def level_of(warning: str) -> Literal["note", "warning"]:
    """Return what one of an experiment's `warnings` is: a note tells that its search has gone as it was asked to."""
    confirmed = warning.startswith(_CONFIRMED) and not warning.endswith("; it breaks a constraint")
    return "note" if confirmed or warning.startswith(_AS_ASKED) else "warning"
