"""The driver of a search: one synchronous door, events in, decisions out.

A `Searcher` is a deterministic function of its configuration, its seed and the events it was given, in order.
The master writes each event into its journal in the transaction that carries out the decisions; after a crash
`replay` of the journal gives the same searcher and the same decisions, bit for bit.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, assert_never

from detlab.schemas.space import Space
from detlab_hub.core.searchers.errors import SearcherConfigError, SearcherInputError, SteeringRefused
from detlab_hub.core.searchers.events import (
    BOUNDED_INVALID,
    COUNTED,
    DISQUALIFIED,
    INVALID_REASONS,
    LATE,
    RULES,
    Answered,
    BudgetSpent,
    CheckpointCommitted,
    ConcurrencySet,
    Continued,
    CreateTrial,
    Decision,
    Event,
    Extended,
    PauseSearch,
    PauseTrial,
    PointsAdded,
    ProgressReported,
    PromotionRequested,
    Reopened,
    ResumeTrial,
    SetPoint,
    Shutdown,
    SpaceEdited,
    Started,
    Steering,
    StopRequested,
    StopTrial,
    Suggest,
    Suggested,
    TrialCreated,
    TrialEvent,
    TrialExited,
    TrialExitedEarly,
    TrialPaused,
    TrialPlaced,
    TrialsRetried,
    ValidationReported,
    WouldStop,
)
from detlab_hub.core.searchers.hyperparameters import check_space, make_space, unlike
from detlab_hub.core.searchers.method import Question, SearchMethod, TrialFactory
from detlab_hub.core.searchers.objectives import Objectives, Score, time_of
from detlab_hub.core.searchers.randomness import PointsAhead, SearchRandom
from detlab_hub.core.searchers.scores import Confirmation
from detlab_hub.core.stopping import Report, SearchEnd, StopPolicy

_BY_HAND = "stopped by hand"
_MEND_POINTS = (
    "It is paused, as it would replace them for ever. Narrow the space (det search bounds {} FILE) or mend the code"
    " that raises InvalidHP (det search code {} FOLDER), then activate it; or kill it."
)
_NO_POINT_LEFT = "every point of the space has been tried"


class Searcher:
    """A running search.

    Repeated events (a trial that started, was created, exited early or exited twice) and events of a trial
    that has ended change nothing and are answered by no decision.

    Attributes:
        revision: Counts the events that changed anything but reported progress. An event that leaves it as
            it was (a report between two rungs, a duplicate) need not be journaled.

    Args:
        method: Decides which trials are made and which are stopped.
        space: The space of its points, or the `hyperparameters` block if nothing more is known of it.
        seed: Of its random numbers.
        policies: Stop trials beside the method. They remember every report, so that each is journaled.
        objectives: What the search is about; a smaller searcher metric if not given.
        starting: Points that are tried first.
        time_metric: Name of the metric that says how far a trial has trained; None if there is none.
        rules: The rules by which it decides.
        end: When the search ends before its trials are used up.
        distinct: Whether no point is tried twice, so that the search ends with the last point of a finite space.
        wanted: Trials that the search was to make, if the space has so many points.
        confirm: Whether the best trial's point is trained once more, when all others have ended.
    """

    def __init__(
        self,
        method: SearchMethod,
        space: Space | Mapping[str, Any],
        seed: int,
        policies: Sequence[StopPolicy] = (),
        *,
        objectives: Objectives | None = None,
        starting: Sequence[dict[str, Any]] = (),
        time_metric: str | None = None,
        rules: int = RULES,
        end: SearchEnd | None = None,
        distinct: bool = False,
        wanted: int | None = None,
        confirm: bool = False,
    ) -> None:
        self.method = method
        self._rules = rules
        self._invalid_in_a_row = 0
        """Trials with invalid points since one was valid, or a user looked; by events that are journaled."""
        self._policies = tuple(policies)
        self._objectives = objectives or Objectives()
        self._time_metric = time_metric
        self._seed = seed
        self._tickets: dict[int, int] = {}
        self._asked = 0
        self.revision = 0
        self._rng = SearchRandom(seed)
        self._factory = TrialFactory(space, self._rng, distinct=distinct)
        self._end = end or SearchEnd("the metric", self._objectives.sign, None, None)
        self._factory.enqueue(starting)
        self._space = self._factory.space
        self._requested: dict[str, CreateTrial] = {}
        self._placed: set[str] = set()
        """Those of them that were given resources."""
        self._created: set[str] = set()
        self._closed: set[str] = set()
        self._exits: set[str] = set()
        self._cancels: set[str] = set()
        self._failures: set[str] = set()
        self._stopped: set[str] = set()
        self._noted: set[tuple[int, str]] = set()
        """Policies that only note, by their place, and the trials that each has noted."""
        self._shares: dict[str, float] = {}
        self._paused: set[str] = set()
        """Trials that are to be off their slots."""
        self._spent = ""
        """The budget that is used up, or why the search needs no further trial."""
        self._exhausted = ""
        """Why there is no further point to try."""
        self._short = distinct and wanted is not None and method.points < wanted
        """Whether the space has fewer points than the search was to make trials."""
        self._started = False
        self._shutdown: Shutdown | None = None
        self._confirmation = Confirmation(wanted=confirm)
        self._winner: str | None = None

    @property
    def trials_total(self) -> int:
        """Trials that the search makes at most, not counting invalid ones that it replaces."""
        return self.method.budget + self._confirmation.wanted

    @property
    def trials_requested(self) -> int:
        """Trials created so far, invalid ones included."""
        return len(self._requested)

    @property
    def trials_closed(self) -> int:
        """Trials that have ended."""
        return len(self._closed)

    @property
    def trials_invalid(self) -> int:
        """Trials that ended because their hyperparameters were invalid."""
        return len(self._requested) - len(self._shares)

    @property
    def shutdown(self) -> Shutdown | None:
        """How the search ended; None while it is active."""
        return self._shutdown

    def points_ahead(self) -> PointsAhead | None:
        """Return points that it needs next and whose drawing takes long, to be drawn beside everything else."""
        return None if self._spent or self._shutdown is not None else self._factory.points_ahead()

    def uncreated(self) -> list[CreateTrial]:
        """Return the trials that it has decided to create and that were not stored yet, in their order."""
        return [one for name, one in self._requested.items() if name not in self._created and name not in self._closed]

    @property
    def wants_checkpoints(self) -> bool:
        """Whether the method gets events of checkpoints."""
        return self.method.wants_checkpoints

    @property
    def space(self) -> Mapping[str, Any]:
        """The `hyperparameters` block, as users have edited it."""
        return self._space

    @property
    def metrics(self) -> list[str]:
        """The metrics that a report must carry beside the searcher metric."""
        return self._objectives.names

    @property
    def waits_for(self) -> int | None:
        """The number of the event that the class of a custom search has to answer next; None: there is none."""
        return None if self._shutdown is not None or self._spent else self.method.waits_for

    def promotes_to(self, request_id: str) -> int | None:
        """Return the units of the time metric of the rung to which a promotion lets a trial train; None: no rung.

        Raises:
            SteeringRefused: The trial is unknown.
        """
        return self.method.promotes_to(self._compared(request_id))

    def notes(self) -> list[str]:
        """Return what people should know of choices of the method and of how points were drawn; each is shown once."""
        return [*self.method.notes(), *self.drawing_notes]

    @property
    def drawing_notes(self) -> list[str]:
        """Those of how points were drawn, and of why the search has ended early."""
        exhausted = [self._exhausted] if self._exhausted else []
        return [*self._factory.notes, *exhausted, *self._end.notes, *self._confirmation.notes]

    def explain(self, request_id: str) -> str:
        """Return why a trial was created or stopped, in one sentence of the method; empty if it has none."""
        if request_id == self._confirmation.request_id:
            return f"trains the point of the best trial, {self._winner}, once more"
        return self.method.explain(request_id)

    def needs_checkpoints(self) -> Set[str]:
        """Return the checkpoints that a trial may still start from."""
        return frozenset() if self._shutdown is not None or self._spent else self.method.needs_checkpoints()

    def questions(self) -> list[Question]:
        """List the `Suggest` decisions that are not answered yet, each with everything that the answer requires."""
        return [self.question(ticket) for ticket in sorted(self._tickets)]

    def question(self, ticket: int) -> Question:
        """Return one of them.

        Raises:
            KeyError: There is no such ticket, or it is answered.
        """
        seed = _seed_of(self._seed, ticket)
        return Question(
            ticket, self._tickets[ticket], seed, self._space, self.method.known(ticket), self._factory.require
        )

    def step(self, event: Event) -> list[Decision]:
        """Handle one event; return the decisions, in order.

        Raises:
            SearcherInputError: If the trial is unknown, or the report lacks the searcher's time metric; the
                search is then unchanged.
        """
        match event:
            case Started(rules):
                return self._start(rules)
            case Suggested():
                return self._suggested(event)
            case Answered():
                return self._answered(event)
            case BudgetSpent(reason):
                return self._budget_spent(reason)
            case Reopened(request_ids):
                return self._reopen(request_ids)
            case (
                TrialCreated()
                | TrialPlaced()
                | ProgressReported()
                | ValidationReported()
                | CheckpointCommitted()
                | TrialPaused()
                | TrialExitedEarly()
                | TrialExited()
            ):
                return self._of_trial(event)
            case _:
                return self._steered(event)

    def _of_trial(self, event: TrialEvent) -> list[Decision]:
        request_id = event.request_id
        if request_id not in self._requested:
            raise SearcherInputError(f"trial {request_id} does not belong to this search")
        if request_id in self._closed:
            return []
        match event:
            case TrialCreated():
                if request_id not in self._created:
                    self._created.add(request_id)
                    self.revision += 1
                return []
            case TrialPlaced():
                return self._was_placed(request_id)
            case ProgressReported():
                self._report_progress(request_id, event.progress)
                return []
            case ValidationReported():
                return self._validated(event)
            case CheckpointCommitted():
                return self._checkpointed(event)
            case TrialPaused():
                return self._left(request_id)
            case TrialExitedEarly():
                return self._exited_early(event)
            case TrialExited():
                return self._exited(request_id)
            case _:
                assert_never(event)

    def _was_placed(self, request_id: str) -> list[Decision]:
        if self._spent or request_id in self._placed or request_id not in self._factory.pointless:
            return []
        self._placed.add(request_id)
        self.revision += 1
        return self._record(self.method.placed(self._factory, request_id))

    def _start(self, rules: int) -> list[Decision]:
        if self._started:
            return []
        if rules > RULES:
            raise SearcherInputError(
                f"the journal follows rules {rules}; this version of detlab knows those up to {RULES}"
            )
        self._started = True
        self._factory.late = rules >= LATE and self.method.draws_late
        self.revision += 1
        return self._record(self.method.start(self._factory))

    def _report_progress(self, request_id: str, progress: float) -> None:
        if request_id in self._shares and not math.isnan(progress):
            self._shares[request_id] = min(max(progress, 0.0), 1.0)

    def _validated(self, event: ValidationReported) -> list[Decision]:
        score = self._objectives.judge(event.metric, event.values)
        if event.request_id == self._confirmation.request_id:
            return self._confirmed(event, score)
        self._check_time(event)
        before = self.method.level_of(event.request_id)
        decisions = self.method.validated(self._factory, event.request_id, score, event.time)
        remembers = self._policies or self._end.counts or self._confirmation.wanted
        if decisions or remembers or self.method.level_of(event.request_id) != before:
            self.revision += 1
            self._invalid_in_a_row = 0
        decisions = self._judged(event, score, decisions)
        return self._record(decisions, self._reached(event.request_id, score))

    def _reached(self, request_id: str | None = None, score: Score | None = None) -> str | None:
        """Return why results that are new end the search: a trial's own, or the means of points."""
        means = self.method.take_means()
        results = [(request_id, score)] if means is None and request_id is not None and score is not None else means
        for one, it in results or ():
            self._confirmation.reported(one, it)
        whys = [self._end.reported(one, it.losses[0], feasible=it.violation == 0) for one, it in results or ()]
        return next((why for why in whys if why), None)

    def _in_vain(self, request_id: str) -> str | None:
        """Return why a trial's end is that of the search: the last trials have not improved it."""
        point = self.method.ended_point(request_id)
        return None if point is None else self._end.ended(point, counts=request_id not in self._exits)

    def _check_time(self, event: ValidationReported) -> None:
        """Require the time metric if a policy compares by it: a misspelt one would let all trials continue."""
        if self._time_metric is None or not any(policy.wants_time for policy in self._policies):
            return
        time_of(self._time_metric, event.time, event.request_id, ", which its stopping policies compare")

    def _judged(self, event: ValidationReported, score: Score, decisions: list[Decision]) -> list[Decision]:
        """Return the method's decisions, and a policy's stop if the method lets the trial continue."""
        sign = self._objectives.sign
        more = sign, event.elapsed, event.values
        report = Report(event.request_id, score.losses[0], event.metric, event.time, *more)
        told = [(place, policy, policy.reported(report)) for place, policy in enumerate(self._policies)]
        said = [(place, policy, f"{why} ({policy.name})") for place, policy, why in told if why is not None]
        stopped = any(isinstance(one, StopTrial) and one.request_id == event.request_id for one in decisions)
        if not said or stopped or event.request_id in self._stopped:
            return decisions
        where = f"at {self._time_metric} {event.time:g}: " if self._time_metric and event.time is not None else ""
        evidence = "; ".join(why for _, policy, why in said if not policy.dry_run)
        evidence = evidence and where + evidence
        dry = {(place, event.request_id): why for place, policy, why in said if policy.dry_run}
        noted = [WouldStop(event.request_id, where + why) for key, why in dry.items() if key not in self._noted]
        self._noted.update(dry)
        return [*decisions, *noted, *(self._stop(event.request_id, evidence, score) if evidence else ())]

    def _stop(self, request_id: str, evidence: str, score: Score | None = None) -> list[Decision]:
        """Stop a trial that its method would have let continue.

        Args:
            request_id: The trial.
            evidence: Why, for people.
            score: Of the report on which a policy stops it.
        """
        self._stopped.add(request_id)
        stop = StopTrial(request_id, evidence=evidence)
        if request_id == self._confirmation.request_id:
            return [stop]
        if self._rules >= COUNTED:
            self.method.count_stopped(request_id, score)
        if score is None or not score.violation or self._rules < DISQUALIFIED:
            return [stop, *self.method.stopped(self._factory, request_id)]
        self._confirmation.disqualified(self.method.point_of(request_id))
        return [stop, *self.method.disqualified(self._factory, request_id, score)]

    # --- the winner once more

    def _confirm(self) -> list[Decision]:
        """Create the trial that trains the best trial's point once more, if there is to be one and there is a best."""
        confirmation, winner = self._confirmation, self._confirmation.winner
        if not confirmation.wanted or confirmation.request_id is not None or self._spent or winner is None:
            return []
        self._winner = winner
        confirmation.units = max(self.method.units_of(winner), default=None)
        made = self._factory.at(dict(self._requested[winner].hparams))
        confirmation.request_id = made.request_id
        return self._record([made])

    def _confirmed(self, event: ValidationReported, score: Score) -> list[Decision]:
        """Take a report of that trial, of which the method knows nothing."""
        confirmation = self._confirmation
        confirmation.told(score)
        self.revision += 1
        decisions: list[Decision] = []
        done = confirmation.units is not None and event.time is not None and event.time >= confirmation.units
        if done and event.request_id not in self._stopped:
            self._stopped.add(event.request_id)
            decisions = [StopTrial(event.request_id, finished=True)]
        return self._record(self._judged(event, score, decisions))

    def _compared(self, request_id: str) -> str:
        """Return a trial that the method knows.

        Raises:
            SteeringRefused: It is unknown, or the one that trains the winner once more.
        """
        if self._known(request_id).request_id == self._confirmation.request_id:
            raise SteeringRefused("the trial trains the best point once more: it is compared with no other")
        return request_id

    def _left(self, request_id: str) -> list[Decision]:
        if request_id not in self._paused:
            return []
        self.revision += 1
        return self._or_over(self._record(self.method.paused(self._factory, request_id)))

    def _budget_spent(self, reason: str) -> list[Decision]:
        if self._spent or self._shutdown is not None:
            return []
        self.revision += 1
        return self._or_over(self._record([], reason))

    def _end_all(self, reason: str, decisions: list[Decision]) -> list[Decision]:
        """Stop all that runs and is not stopped by decisions already; nothing more begins."""
        self._spent = reason
        self._stopped.update(one.request_id for one in decisions if isinstance(one, StopTrial))
        running = [name for name in self._requested if name not in self._closed and name not in self._stopped]
        self._stopped.update(running)
        self._tickets.clear()
        return [StopTrial(request_id, evidence=reason) for request_id in running]

    def _steered(self, event: Steering) -> list[Decision]:
        """Carry out an act of a user; if it is refused, the search is unchanged."""
        if self._shutdown is not None or self._spent:
            raise SteeringRefused(f"the search is over{self._spent and f': {self._spent}'}")
        match event:
            case Extended(trials) if trials and self._factory.exhausted:
                raise SteeringRefused(_NO_POINT_LEFT + ": add points to try again (det search add)")
            case Extended(trials, units):
                decided = self.method.extended(self._factory, trials, units)
            case PointsAdded(points):
                decided = self._add(self._of_space(points))
            case TrialsRetried(request_ids):
                decided = self._add([self._point_of(request_id) for request_id in request_ids])
            case SpaceEdited(space, redraw=redraw):
                decided = self._respace(space, redraw)
            case ConcurrencySet(limit):
                decided = self.method.resized(self._factory, limit)
            case StopRequested(request_id, author):
                decided = self._stop_by_hand(request_id, author)
            case PromotionRequested(request_id, _, to):
                if to is not None and to != self.promotes_to(request_id):
                    raise SteeringRefused(f"the trial cannot be promoted to {to} {self._time_metric or 'units'}")
                decided = self.method.promoted(self._factory, self._compared(request_id))
            case Continued():
                self._invalid_in_a_row = 0
                decided = self.method.continued(self._factory)
            case _:
                assert_never(event)
        self.revision += 1
        return self._record(decided)

    def _reopen(self, request_ids: Sequence[str]) -> list[Decision]:
        """Take back the end of the search and of some of its trials, which wait until the method resumes them."""
        if self._spent:
            raise SteeringRefused(f"the search is over: {self._spent}")
        for request_id in request_ids:
            lost = self._known(self._compared(request_id)).later and request_id in self._closed
            if lost or request_id not in self._shares:
                raise SteeringRefused(f"trial {request_id} has no valid hyperparameters to train with")
        ended = [request_id for request_id in request_ids if request_id in self._closed]
        # Of those that were canceled with the experiment, the search knows no end: what had a place has it.
        held = self._paused | self._closed
        running: list[Decision] = [ResumeTrial(request_id) for request_id in request_ids if request_id not in held]
        decided = running + (self.method.reopened(self._factory, ended) if ended else [])
        for known in (self._closed, self._exits, self._cancels, self._failures, self._stopped):
            known.difference_update(request_ids)
        self._shares.update(dict.fromkeys(request_ids, 0.0))
        self._paused.update(request_ids)
        self._shutdown = None
        self.revision += 1
        return self._record(decided)

    def _known(self, request_id: str) -> CreateTrial:
        if request_id not in self._requested:
            raise SteeringRefused(f"trial {request_id} does not belong to this search")
        return self._requested[request_id]

    def _point_of(self, request_id: str) -> dict[str, Any]:
        known = self._known(request_id)
        if known.later:
            raise SteeringRefused(
                f"trial {request_id} ended before it was given hyperparameters: add a trial instead (det search extend)"
            )
        return known.hparams

    def _add(self, points: list[dict[str, Any]]) -> list[Decision]:
        """Make trials at points, beyond the budget so far."""
        waiting = len(self._factory.enqueued)
        self._factory.enqueue(points)
        try:
            return self.method.extended(self._factory, len(points), 0)
        except SteeringRefused:
            self._factory.drop_enqueued(waiting)
            raise

    def _of_space(self, points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        wrong = [f"point {place}: {said}" for place, one in enumerate(points) for said in self._factory.problems(one)]
        if wrong:
            raise SteeringRefused("; ".join(wrong))
        return list(points)

    def _respace(self, space: dict[str, Any], redraw: Sequence[str]) -> list[Decision]:
        try:
            check_space(space)
            make_space(space, self._factory.require)
        except SearcherConfigError as error:
            raise SteeringRefused(str(error)) from error
        if wrong := unlike(self._space, space):
            raise SteeringRefused("; ".join(wrong))
        decided = self.method.respaced(self._factory, space)
        self._space = self._factory.space = space
        anew = [request_id for request_id in redraw if self._draws_anew(request_id)]
        self._factory.pointless.update(anew)
        return [*decided, *(SetPoint(request_id, dict(self._factory.point())) for request_id in anew)]

    def _draws_anew(self, request_id: str) -> bool:
        """Whether a trial may get another point: one that the method drew itself, and has seen nothing of."""
        over = self._closed | self._stopped | self._factory.given | self._factory.pointless
        return self.method.draws_anew and not self._spent and request_id in self._requested and request_id not in over

    def _stop_by_hand(self, request_id: str, author: str) -> list[Decision]:
        self._known(request_id)
        if request_id in self._closed or request_id in self._stopped:
            raise SteeringRefused("the trial has ended or is about to end")
        return self._stop(request_id, f"stopped by {author}" if author else _BY_HAND)

    def _checkpointed(self, event: CheckpointCommitted) -> list[Decision]:
        if not self.method.wants_checkpoints or event.request_id == self._confirmation.request_id:
            return []
        self.revision += 1
        return self._record(
            self.method.checkpointed(self._factory, event.request_id, event.uuid, event.steps_completed)
        )

    def _suggested(self, event: Suggested) -> list[Decision]:
        count = self._tickets.pop(event.ticket, None)
        if count is None:  # answered before: by another master, or twice
            return []
        self.revision += 1
        points = [self._factory.allowed(point) for point in event.points[:count]]
        points += [self._factory.point() for _ in range(count - len(points))]
        return self._or_over(self._record(self.method.suggested(self._factory, event.ticket, points)))

    def _answered(self, event: Answered) -> list[Decision]:
        if self._shutdown is not None or self._spent or event.number != self.waits_for:
            return []  # answered before, or no longer asked for
        decisions = self.method.answered(self._factory, event.number, event.operations, event.failure)
        self.revision += 1
        return self._or_over(self._record(decisions))

    def _exited_early(self, event: TrialExitedEarly) -> list[Decision]:
        request_id = event.request_id
        if request_id in self._exits:
            return []
        self._exits.add(request_id)
        self.revision += 1
        if event.reason in INVALID_REASONS:
            self._shares.pop(request_id, None)
        elif event.reason == "user_canceled":
            self._cancels.add(request_id)
        else:
            self._failures.add(request_id)
        if request_id == self._confirmation.request_id:
            return []
        decisions = self._record(self.method.exited_early(self._factory, request_id, event.reason))
        return decisions + self._paused_for_invalid(event)

    def _paused_for_invalid(self, event: TrialExitedEarly) -> list[Decision]:
        """Pause a search in which many points in a row were invalid: it would replace them for ever."""
        if event.reason not in INVALID_REASONS:
            self._invalid_in_a_row = 0
            return []
        self._invalid_in_a_row += 1
        most = self.method.most_invalid
        if self._rules < BOUNDED_INVALID or self._spent or not 0 < most <= self._invalid_in_a_row:
            return []
        said = (
            f"{self._invalid_in_a_row} points in a row were invalid, the last of them that of trial {event.request_id}"
        )
        self._invalid_in_a_row = 0
        return [PauseSearch(f"{said}; {len(self._requested)} trials were made", _MEND_POINTS)]

    def _exited(self, request_id: str) -> list[Decision]:
        self._closed.add(request_id)
        self._factory.pointless.discard(request_id)
        if request_id in self._shares:
            self._invalid_in_a_row = 0
        self.revision += 1
        if request_id == self._confirmation.request_id:
            self._confirmation.ended(self._objectives.sign, self._winner)
            return self._or_over([])
        decisions = self.method.exited(self._factory, request_id)
        why = self._reached() or self._in_vain(request_id)
        return self._or_over(self._record(decisions, why))

    def _or_over(self, decisions: list[Decision]) -> list[Decision]:
        """Add the end of the search to the decisions if no trial is left and no question is open."""
        requested = len(self._requested)
        if self._shutdown is not None:
            return decisions
        if self._exhausted:
            decisions += self._left_behind()
        if requested == len(self._closed) and not self._tickets and self.waits_for is None:
            if again := self._confirm():
                return decisions + again
            self._shutdown = self.method.verdict or Shutdown(
                cancel=len(self._cancels) >= requested, failure=len(self._failures) >= requested
            )
            decisions.append(self._shutdown)
            if self._short and not self._spent and requested >= self.method.budget:
                self._exhausted = _NO_POINT_LEFT
        return decisions

    def _left_behind(self) -> list[Decision]:
        """Stop the paused trials of a search without further points if no other trial could let them continue."""
        left = [one for one in self._requested if one not in self._closed and one not in self._stopped]
        if not left or not self._paused.issuperset(left):
            return []
        self._stopped.update(left)
        return [StopTrial(one, evidence=self._exhausted) for one in left]

    def _record(self, decisions: list[Decision], over: str | None = None) -> list[Decision]:
        """Record the decisions; a search whose budget is spent starts and pauses nothing more.

        Args:
            decisions: The method's, and those of policies.
            over: Why the search ends with them: what runs is stopped.
        """
        if over and not self._spent:
            decisions = [*decisions, *self._end_all(over, decisions)]
        if self._factory.surplus:
            self._exhausted = _NO_POINT_LEFT
            decisions = [one for one in decisions if not self._is_surplus(one)]
        if self._spent:
            ended = CreateTrial | SetPoint | PauseTrial | ResumeTrial | Suggest
            decisions = [one for one in decisions if not isinstance(one, ended)]
        decisions = [one for one in decisions if not (isinstance(one, SetPoint) and one.request_id in self._closed)]
        for decision in decisions:
            match decision:
                case CreateTrial(request_id):
                    self._requested[request_id] = decision
                    self._shares[request_id] = 0.0
                case SetPoint(request_id, hparams):
                    if request_id not in self._factory.pointless:
                        raise ValueError(f"trial {request_id} has a point already, or is none")
                    self._factory.pointless.discard(request_id)
                    self._requested[request_id] = replace(self._requested[request_id], hparams=hparams, later=False)
                case PauseTrial(request_id):
                    self._paused.add(request_id)
                case ResumeTrial(request_id):
                    self._paused.discard(request_id)
                case Suggest(ticket, count):
                    if ticket != self._asked or count < 1:
                        raise ValueError(f"{decision} is not the next question of the search, which is {self._asked}")
                    self._tickets[ticket] = count
                    self._asked += 1
        return decisions

    def _is_surplus(self, decision: Decision) -> bool:
        """Whether a decision needs a further point, where each is tried; a trial that was promised one gets it."""
        if isinstance(decision, CreateTrial):
            return decision.request_id in self._factory.surplus
        return isinstance(decision, Suggest) and not self._factory.late

    def progress(self) -> float:
        """Return the part of the search that is done, 0 to 1; 1 once it is over."""
        if self._shutdown is not None:
            return 1.0
        progress = self.method.progress(self._shares, self._closed)
        return min(max(progress, 0.0), 1.0) if math.isfinite(progress) else 0.0

    def fingerprint(self) -> str:
        """Hash of the whole state: equal fingerprints, equal futures."""
        state = {
            "rng": self._rng.fingerprint(),
            "space": self._space,
            "requested": {name: trial.index for name, trial in self._requested.items()},
            "enqueued": self._factory.enqueued,
            "paused": sorted(self._paused),
            "spent": self._spent,
            "pointless": sorted(self._factory.pointless),
            "placed": sorted(self._placed),
            "exhausted": self._exhausted,
            "end": self._end.state(),
            "confirmation": self._confirmation.state(),
            "created": sorted(self._created),
            "closed": sorted(self._closed),
            "exits": sorted(self._exits),
            "cancels": sorted(self._cancels),
            "failures": sorted(self._failures),
            "shares": self._shares,
            "started": self._started,
            "over": self._shutdown is not None,
            "invalid_in_a_row": self._invalid_in_a_row,
            "method": self.method.state(),
            "stopped": sorted(self._stopped),
            "noted": sorted(self._noted),
            "tickets": self._tickets,
            "policies": [policy.state() for policy in self._policies],
        }
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _seed_of(seed: int, ticket: int) -> int:
    """Derive a separate seed for each ticket, 0 to 2**32 - 1."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{ticket}".encode()).digest()[:4], "big")
