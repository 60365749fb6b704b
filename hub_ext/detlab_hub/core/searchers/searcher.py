"""The driver of a search: one synchronous door, events in, decisions out.

A `Searcher` is a deterministic function of its configuration, its seed and the events it was given, in order.
The master writes each event into its journal in the transaction that carries out the decisions; after a crash
`replay` of the journal gives the same searcher and the same decisions, bit for bit.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from detlab.schemas.space import Space
from detlab_hub.core.searchers.errors import ReplayMismatch, SearcherInputError
from detlab_hub.core.searchers.events import (
    INVALID_REASONS,
    CheckpointCommitted,
    CreateTrial,
    Decision,
    Event,
    ProgressReported,
    Shutdown,
    Started,
    StopTrial,
    Suggest,
    Suggested,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
)
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.hyperparameters import make_space
from detlab_hub.core.searchers.method import Question, SearchMethod, TrialFactory
from detlab_hub.core.searchers.randomness import SearchRandom
from detlab_hub.core.searchers.registry import make_method
from detlab_hub.core.stopping import Report, StopPolicy


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
        smaller_is_better: Direction of the metric, for the policies.
        starting: Points that are tried first.
    """

    def __init__(
        self,
        method: SearchMethod,
        space: Space | Mapping[str, Any],
        seed: int,
        policies: Sequence[StopPolicy] = (),
        *,
        smaller_is_better: bool = True,
        starting: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.method = method
        self._policies = tuple(policies)
        self._sign = 1.0 if smaller_is_better else -1.0
        self._space = space if isinstance(space, Space) else Space(space)
        self._seed = seed
        self._tickets: dict[int, int] = {}
        self._asked = 0
        self.revision = 0
        self._rng = SearchRandom(seed)
        self._factory = TrialFactory(self._space, self._rng)
        self._factory.enqueue(starting)
        self._requested: dict[str, int] = {}
        self._created: set[str] = set()
        self._closed: set[str] = set()
        self._exits: set[str] = set()
        self._cancels: set[str] = set()
        self._failures: set[str] = set()
        self._stopped: set[str] = set()
        self._shares: dict[str, float] = {}
        self._started = False
        self._shutdown: Shutdown | None = None

    @property
    def trials_total(self) -> int:
        """Trials that the search makes at most, not counting invalid ones that it replaces."""
        return self.method.budget

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

    @property
    def wants_checkpoints(self) -> bool:
        """Whether the method gets events of checkpoints."""
        return self.method.wants_checkpoints

    def questions(self) -> list[Question]:
        """List the `Suggest` decisions that are not answered yet, each with everything that the answer requires."""
        return [
            Question(
                ticket,
                count,
                _seed_of(self._seed, ticket),
                self._space.block,
                self.method.known(ticket),
                [relation.text for relation in self._space.relations],
            )
            for ticket, count in sorted(self._tickets.items())
        ]

    def step(self, event: Event) -> list[Decision]:
        """Handle one event; return the decisions, in order.

        Raises:
            SearcherInputError: If the trial is unknown, or the report lacks the searcher's time metric; the
                search is then as it was.
        """
        if isinstance(event, Started):
            return self._start()
        if isinstance(event, Suggested):
            return self._suggested(event)
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
            case ProgressReported():
                self._report_progress(request_id, event.progress)
                return []
            case ValidationReported():
                return self._validated(event)
            case CheckpointCommitted():
                return self._checkpointed(event)
            case TrialExitedEarly():
                return self._exited_early(event)
            case TrialExited():
                return self._exited(request_id)
            case _:
                assert_never(event)

    def _start(self) -> list[Decision]:
        if self._started:
            return []
        self._started = True
        self.revision += 1
        return self._record(self.method.start(self._factory))

    def _report_progress(self, request_id: str, progress: float) -> None:
        if request_id in self._shares and not math.isnan(progress):
            self._shares[request_id] = min(max(progress, 0.0), 1.0)

    def _validated(self, event: ValidationReported) -> list[Decision]:
        before = self.method.level_of(event.request_id)
        decisions = self.method.validated(self._factory, event.request_id, event.metric, event.time)
        if decisions or self._policies or self.method.level_of(event.request_id) != before:
            self.revision += 1
        return self._record(self._judged(event, decisions))

    def _judged(self, event: ValidationReported, decisions: list[Decision]) -> list[Decision]:
        """Return the method's decisions, and a policy's stop if the method lets the trial continue."""
        report = Report(event.request_id, self._sign * event.metric, event.metric, event.time)
        said = [evidence for policy in self._policies if (evidence := policy.reported(report)) is not None]
        stopped = any(isinstance(one, StopTrial) and one.request_id == event.request_id for one in decisions)
        if not said or stopped or event.request_id in self._stopped:
            return decisions
        self._stopped.add(event.request_id)
        more = self.method.stopped(self._factory, event.request_id)
        return [*decisions, StopTrial(event.request_id, evidence="; ".join(said)), *more]

    def _checkpointed(self, event: CheckpointCommitted) -> list[Decision]:
        if not self.method.wants_checkpoints:
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
        return self._record(self.method.exited_early(self._factory, request_id, event.reason))

    def _exited(self, request_id: str) -> list[Decision]:
        self._closed.add(request_id)
        self.revision += 1
        return self._or_over(self._record(self.method.exited(self._factory, request_id)))

    def _or_over(self, decisions: list[Decision]) -> list[Decision]:
        """Add the end of the search to the decisions if no trial is left and no question is open."""
        requested = len(self._requested)
        if requested == len(self._closed) and not self._tickets:
            self._shutdown = Shutdown(cancel=len(self._cancels) >= requested, failure=len(self._failures) >= requested)
            decisions.append(self._shutdown)
        return decisions

    def _record(self, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            if isinstance(decision, CreateTrial):
                self._requested[decision.request_id] = decision.index
                self._shares[decision.request_id] = 0.0
            elif isinstance(decision, Suggest):
                if decision.ticket != self._asked or decision.count < 1:
                    raise ValueError(f"{decision} is not the next question of the search, which is {self._asked}")
                self._tickets[decision.ticket] = decision.count
                self._asked += 1
        return decisions

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
            "requested": self._requested,
            "created": sorted(self._created),
            "closed": sorted(self._closed),
            "exits": sorted(self._exits),
            "cancels": sorted(self._cancels),
            "failures": sorted(self._failures),
            "shares": self._shares,
            "started": self._started,
            "over": self._shutdown is not None,
            "method": self.method.state(),
            "stopped": sorted(self._stopped),
            "tickets": self._tickets,
            "policies": [policy.state() for policy in self._policies],
        }
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _seed_of(seed: int, ticket: int) -> int:
    """Derive a separate seed for each ticket, 0 to 2**32 - 1."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{ticket}".encode()).digest()[:4], "big")


def make_searcher(searcher: Mapping[str, Any], hyperparameters: Mapping[str, Any], seed: int) -> Searcher:
    """Make the search that an experiment's config describes.

    Args:
        searcher: The `searcher` block, as plain values; missing fields get their defaults.
        hyperparameters: The `hyperparameters` block, as plain values.
        seed: The experiment's seed, 0 to 2**32 - 1.

    Raises:
        SearcherConfigError: If no search can be made from it.
    """
    method = make_method(searcher, hyperparameters)
    fields = Fields(searcher)
    return Searcher(method, make_space(hyperparameters, fields.require), seed, starting=fields.starting_points)


def replay(
    searcher: Mapping[str, Any],
    hyperparameters: Mapping[str, Any],
    seed: int,
    journal: Iterable[Event],
    recorded: Sequence[Sequence[Decision]] | None = None,
) -> tuple[Searcher, list[list[Decision]]]:
    """Make a search and give it the journaled events; the decisions on each must be as recorded.

    Args:
        searcher: The `searcher` block, as plain values.
        hyperparameters: The `hyperparameters` block, as plain values.
        seed: The experiment's seed.
        journal: The events, in order.
        recorded: The decisions on each; None where they are not known.

    Returns:
        The search, and the decisions after each event.

    Raises:
        SearcherConfigError: If no search can be made from it.
        SearcherInputError: The search cannot use an event.
        ReplayMismatch: The search decides otherwise than recorded.
    """
    search = make_searcher(searcher, hyperparameters, seed)
    decided = []
    for place, event in enumerate(journal):
        decisions = search.step(event)
        if recorded is not None and decisions != list(recorded[place]):
            raise ReplayMismatch(place + 1, event, recorded[place], decisions)
        decided.append(decisions)
    return search, decided
