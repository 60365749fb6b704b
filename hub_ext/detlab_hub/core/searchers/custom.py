"""`custom`: a search that a class of the user's decides, in a task of the cluster.

The method itself decides nothing. It keeps a numbered *feed* of events for the class; the class answers them one by one
with operations, each answer is journaled (`Answered`), and the operations become decisions here.
The operations are those of Determined's former `SearchMethod` interface: create, validate_after, close, progress,
shutdown. An answer with an error is refused as a whole.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from detlab.schemas.expconf import CustomConfig, SearcherBlock
from detlab_hub.core.searchers.errors import OperationsRefused, SearcherConfigError, SteeringRefused
from detlab_hub.core.searchers.events import (
    CreateTrial,
    Decision,
    ExitReason,
    PauseSearch,
    PauseTrial,
    ResumeTrial,
    Shutdown,
    StopTrial,
)
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.method import SearchMethod, TrialFactory
from detlab_hub.core.searchers.objectives import Score, time_of
from detlab_hub.core.searchers.sweep import refuse_units

DEFAULT_MAX_TRIALS = 1000
_MISTAKES = 20
"""Errors of one answer that are reported; the others are counted."""
_LONGEST = 2.0**53
"""Units of a length, at most: as of steps."""


@dataclass
class _Trial:
    """A trial, as the class knows it.

    Attributes:
        key: The request id that the class gave it.
        hparams: Its point.
        request_id: Of the trial; None while it waits for a place.
        lengths: Training lengths after which the class wants a validation, the next one first.
        by_length: Whether the class ever asked for a length; if not, it receives every report.
        closing: Whether it is to end after the last of them.
        asked: The length last reported to the class, until it has answered.
        held: Whether it has freed its slots and waits for the class.
        stopped: Whether it was stopped.
        ended: Whether it has ended.
        reports: How many reports it has made.
    """

    key: str
    hparams: dict[str, Any]
    request_id: str | None = None
    lengths: list[float] = field(default_factory=list)
    by_length: bool = False
    closing: bool = False
    asked: float | None = None
    held: bool = False
    stopped: bool = False
    ended: bool = False
    reports: int = 0
    closed_at: int = 0
    """The number of the event that reports its end."""

    @property
    def running(self) -> bool:
        """Whether it counts towards the limit of concurrent trials."""
        return self.request_id is not None and not self.ended and not self.held

    @property
    def over(self) -> bool:
        """Whether operations on it have no effect any more."""
        return self.ended or self.stopped


class CustomSearch(SearchMethod):
    """Passes events to the class, and carries out its answers.

    Args:
        max_trials: Trials that the class may create.
        max_concurrent: Trials at a time; 0 for no limit. Further ones wait.
        time_metric: The unit of lengths; None: reports.
        sign: 1 if a smaller metric is better, else -1.
    """

    name = "custom"
    Config: ClassVar[type[SearcherBlock]] = CustomConfig

    def __init__(self, max_trials: int, max_concurrent: int, time_metric: str | None, sign: float = 1.0) -> None:
        self._sign = sign
        self._max_trials = max_trials
        self._max_concurrent = max_concurrent
        self._time_metric = time_metric
        self._feed: list[dict[str, Any]] = []
        self._answered = 0
        self._trials: dict[str, _Trial] = {}
        self._open: dict[str, _Trial] = {}
        """Those that have not ended, by the same key."""
        self._by_request: dict[str, _Trial] = {}
        self._queue: deque[_Trial] = deque()
        self._resuming: deque[_Trial] = deque()
        self._invalid = 0
        self._progress: float | None = None
        self._failure = ""
        self._verdict: Shutdown | None = None

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """As `searcher` says.

        Raises:
            SearcherConfigError: It has starting points, which the class would have to make.
        """
        if fields.starting_points:
            raise SearcherConfigError("searcher.starting_points: custom has none: its class makes all points")
        time_metric = fields.text("time_metric")
        return cls(
            fields.count("max_trials", DEFAULT_MAX_TRIALS), fields.max_concurrent, time_metric, fields.objectives.sign
        )

    @property
    def budget(self) -> int:
        """Trials that the class may create."""
        return self._max_trials

    @property
    def waits_for(self) -> int | None:
        """The number of the event that the class has to answer next."""
        waits = self._verdict is None and self._answered < len(self._feed)
        return self._answered + 1 if waits else None

    @property
    def verdict(self) -> Shutdown | None:
        """How the class ended the search."""
        return self._verdict

    def feed(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Return events for the class after a number, in order; those answered have their `operations`."""
        return self._feed[after : after + limit]

    def _tell(self, kind: str, **what: Any) -> None:
        if self._verdict is None:
            known = self._trials.get(str(what.get("request_id")))
            trial = {} if known is None or known.request_id is None else {"trial": known.request_id}
            self._feed.append({"number": len(self._feed) + 1, "type": kind, **what, **trial, "operations": None})

    # --- what happens

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Ask the class for its first operations."""
        self._tell("initial_operations")
        return []

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """Report a validation to the class; for a trial with lengths, only at the next length.

        Raises:
            SearcherInputError: The report lacks the time metric.
        """
        if self._time_metric is not None:
            time = time_of(self._time_metric, time, request_id)
        trial = self._by_request[request_id]
        trial.reports += 1
        trained = float(trial.reports) if time is None or self._time_metric is None else time
        metric = self._sign * score.losses[0]
        if not trial.by_length:
            self._report(trial, metric, trained)
            return []
        if trial.asked is not None or not trial.lengths or trained < trial.lengths[0]:
            return []
        trial.lengths.pop(0)
        trial.asked = trained
        self._report(trial, metric, trained)
        if trial.closing and not trial.lengths:
            return self._stop(trial, finished=True)
        return []

    def _report(self, trial: _Trial, metric: float, trained: float) -> None:
        told = metric if math.isfinite(metric) else repr(metric)
        self._tell("validation_completed", request_id=trial.key, metric=told, train_length=trained)

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Report to the class why a trial ended."""
        if reason in ("invalid_hp", "init_invalid_hp"):
            self._invalid += 1
        self._tell("trial_exited_early", request_id=self._by_request[request_id].key, reason=reason)
        return []

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Report a trial's end to the class, and fill its place."""
        trial = self._by_request[request_id]
        self._end(trial)
        return self._fill(factory)

    def _end(self, trial: _Trial) -> None:
        trial.ended, trial.held = True, False
        del self._open[trial.key]
        self._tell("trial_closed", request_id=trial.key)
        trial.closed_at = len(self._feed)

    def stopped(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Note that a policy or a user ended the trial."""
        self._by_request[request_id].stopped = True
        return []

    # --- what the class answers

    def answered(
        self, factory: TrialFactory, number: int, operations: Sequence[Mapping[str, Any]], failure: str
    ) -> list[Decision]:
        """Carry out the answer to the next event; a failure pauses the experiment.

        Raises:
            OperationsRefused: Names every impossible operation; nothing has changed.
        """
        if failure:
            self._failure = failure
            return [PauseSearch(failure)]
        checked = _Answer(self, factory, operations)
        if checked.mistakes:
            raise OperationsRefused(checked.mistakes)
        self._failure = ""
        event = self._feed[number - 1]
        event["operations"] = [dict(one) for one in operations]
        self._answered = number
        decisions = self._carried_out(operations, checked.points)
        about = self._trials.get(event.get("request_id", ""))
        if about is not None and event["type"] == "validation_completed":
            decisions += self._hold(about)
        return decisions + self._fill(factory)

    def _carried_out(
        self, operations: Sequence[Mapping[str, Any]], points: Mapping[str, dict[str, Any]]
    ) -> list[Decision]:
        decisions: list[Decision] = []
        for one in operations:
            key = str(one.get("request_id", ""))
            match one["type"]:
                case "create":
                    trial = self._trials[key] = self._open[key] = _Trial(key, points[key])
                    self._queue.append(trial)
                case "validate_after":
                    self._lengthen(self._trials[key], float(one["length"]))
                case "close":
                    decisions += self._close(self._trials[key])
                case "progress":
                    self._progress = float(one["progress"])
                case "shutdown":
                    decisions += self._shut_down(cancel=bool(one.get("cancel")), failure=bool(one.get("failure")))
        return decisions

    def _lengthen(self, trial: _Trial, length: float) -> None:
        if trial.over:  # the event for the class is already in the feed
            return
        trial.by_length = True
        trial.lengths.append(length)
        if trial.held and trial not in self._resuming:
            self._resuming.append(trial)

    def _close(self, trial: _Trial) -> list[Decision]:
        """End a trial after the lengths that are still open."""
        trial.closing = True
        return [] if trial.lengths or trial.over else self._stop(trial, finished=False)

    def _stop(self, trial: _Trial, *, finished: bool) -> list[Decision]:
        trial.stopped = True
        if trial.request_id is None:
            self._queue.remove(trial)
            self._end(trial)
            return []
        return [StopTrial(trial.request_id, finished)]

    def _shut_down(self, *, cancel: bool, failure: bool) -> list[Decision]:
        self._verdict = Shutdown(cancel=cancel, failure=failure)
        self._queue.clear()
        self._resuming.clear()
        running = [one for one in self._open.values() if one.request_id is not None and not one.over]
        return [decision for trial in running for decision in self._stop(trial, finished=True)]

    def _hold(self, trial: _Trial) -> list[Decision]:
        """Pause a trial if the class has requested no other length."""
        if trial.asked is None or trial.over:
            return []
        if trial.lengths:
            trial.asked = None
            return []
        trial.held = True
        return [PauseTrial(trial.request_id or "")]

    def _fill(self, factory: TrialFactory) -> list[Decision]:
        """Resume and create trials that wait, while there are places."""
        decisions: list[Decision] = []
        running = sum(one.running for one in self._open.values())
        most = self._max_concurrent or math.inf
        while (self._queue or self._resuming) and self._verdict is None and running < most:
            running += 1
            if self._resuming:
                paused = self._resuming.popleft()
                if not paused.over:
                    paused.held, paused.asked = False, None
                    decisions.append(ResumeTrial(paused.request_id or ""))
                continue
            trial = self._queue.popleft()
            made: CreateTrial = factory.at(trial.hparams)
            trial.request_id = made.request_id
            self._by_request[made.request_id] = trial
            self._tell("trial_created", request_id=trial.key, hparams=trial.hparams)
            decisions.append(made)
        return decisions

    # --- steering

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Let the class create further trials.

        Raises:
            SteeringRefused: Units were given, or points, which only the class makes.
        """
        refuse_units(self.name, units)
        if factory.enqueued:
            raise SteeringRefused("a custom search takes points from its class only: none can be added")
        self._max_trials += trials
        return []

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Fill new places; with a lower limit, leave places empty as trials end."""
        self._max_concurrent = limit
        return self._fill(factory)

    def respaced(self, factory: TrialFactory, space: Mapping[str, Any]) -> list[Decision]:
        """Report the new space to the class."""
        self._tell("space_edited", hyperparameters=dict(space))
        return []

    def continued(self, factory: TrialFactory) -> list[Decision]:
        """Ask the class again."""
        self._failure = ""
        return []

    # --- looked at

    def level_of(self, request_id: str) -> int:
        """Return how many reports the trial has made: the class may receive each of them."""
        return self._by_request[request_id].reports

    def explain(self, request_id: str) -> str:
        """Return what the class has decided for the trial."""
        trial = self._by_request[request_id]
        if trial.held:
            return "has trained the length that the class requested; waits for its next operation"
        return "closed by the class" if trial.closing else ""

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the class's own progress, or else the share of the created trials that is done."""
        if self._progress is not None:
            return self._progress
        if not self._trials:
            return 0.0
        done = len(self._trials) - len(self._open)
        running = sum(share for request_id, share in shares.items() if request_id not in closed)
        return (done + running) / (len(self._trials) + 1)

    def state(self) -> dict[str, Any]:
        """Return the feed, and the trials as the class knows them."""
        return {
            "feed": self._feed,
            "answered": self._answered,
            "trials": [vars(one) for one in self._trials.values()],
            "waiting": [one.key for one in (*self._queue, *self._resuming)],
            "max_trials": self._max_trials,
            "max_concurrent": self._max_concurrent,
            "invalid": self._invalid,
            "progress": self._progress,
            "failure": self._failure,
            "over": self._verdict is not None,
        }

    @property
    def trials(self) -> Mapping[str, _Trial]:
        """The trials, by the request id that the class gave them."""
        return self._trials

    @property
    def open(self) -> Collection[_Trial]:
        """The trials that have not ended."""
        return self._open.values()

    @property
    def free(self) -> int:
        """How many trials the class may still create."""
        return self._max_trials + self._invalid - len(self._trials)

    @property
    def event(self) -> int:
        """The number of the event that is being answered."""
        return self._answered + 1

    @property
    def last(self) -> bool:
        """Whether the event being answered is the newest."""
        return self._answered + 1 == len(self._feed)

    @property
    def asked_about(self) -> str:
        """The trial of the event that is being answered, if that was a validation."""
        event = self._feed[self._answered]
        return str(event["request_id"]) if event["type"] == "validation_completed" else ""


class _Answer:
    """The check of an answer, before anything is changed.

    Attributes:
        mistakes: One sentence for each.
        points: Complete points of the trials that it creates.
    """

    def __init__(self, search: CustomSearch, factory: TrialFactory, operations: Sequence[Mapping[str, Any]]) -> None:
        self._search, self._factory = search, factory
        self.points: dict[str, dict[str, Any]] = {}
        self._found: list[str] = []
        self._lengths: dict[str, int] = {}
        self._closed: set[str] = set()
        self._shut = False
        for place, one in enumerate(operations, 1):
            for wrong in self._check(one):
                self._found.append(f"operation {place} ({one.get('type')}): {wrong}")
        self._budget()
        if not self._found and not self._shut:
            self._deadlock()

    @property
    def mistakes(self) -> list[str]:
        """One sentence for each error; of very many, the first ones."""
        more = len(self._found) - _MISTAKES
        return self._found if more <= 0 else [*self._found[:_MISTAKES], f"and {more} more"]

    def _check(self, one: Mapping[str, Any]) -> list[str]:
        if self._shut:
            return ["comes after a shutdown"]
        key = str(one.get("request_id", ""))
        match one.get("type"):
            case "create":
                return self._create(key, one.get("hparams"))
            case "validate_after":
                return self._validate_after(key, one.get("length"))
            case "close":
                return self._close(key)
            case "progress":
                share = one.get("progress")
                fits = isinstance(share, int | float) and 0 <= share <= 1
                return [] if fits else [f"progress is {share!r}; it goes from 0 to 1"]
            case "shutdown":
                self._shut = True
                return []
        return ["is not an operation"]

    def _create(self, key: str, hparams: Any) -> list[str]:
        if not key:
            return ["has no request_id"]
        if key in self._search.trials or key in self.points:
            return [f"trial {key} exists already"]
        self.points[key] = {}
        point, wrong = self._factory.completed(hparams)
        self.points[key] = point
        return [f"hyperparameters of trial {key}: {text}" for text in wrong]

    def _validate_after(self, key: str, length: Any) -> list[str]:
        wrong = self._unknown(key)
        if not isinstance(length, int | float) or not 0 < length <= _LONGEST:
            wrong.append(f"length is {length!r:.40}; it must be a number above 0")
        if not wrong:
            self._lengths[key] = self._lengths.get(key, 0) + 1
        return wrong

    def _close(self, key: str) -> list[str]:
        wrong = self._unknown(key)
        if not wrong and key in self.points and not self._lengths.get(key):
            wrong.append(f"trial {key} would end before it starts: it needs a validate_after first")
        if not wrong:
            self._closed.add(key)
        return wrong

    def _unknown(self, key: str) -> list[str]:
        trial = self._search.trials.get(key)
        if trial is None and key not in self.points:
            return [f"there is no trial {key or '(without request_id)'}"]
        if trial is not None and trial.ended and trial.closed_at <= self._search.event:
            return [f"trial {key} has ended"]
        if key in self._closed or (trial is not None and trial.closing and not trial.over):
            return [f"trial {key} is closed already"]
        return []

    def _budget(self) -> None:
        if len(self.points) > self._search.free:
            self._found.append(
                f"{len(self.points)} trials are created, but only {max(0, self._search.free)} are left of"
                f" searcher.max_trials ({self._search.budget})"
            )

    def _deadlock(self) -> None:
        """Refuse an answer after which the search would wait for ever, or would end without a trial."""
        if not self._search.last or self.points:
            return
        if not self._search.trials:
            self._found.append("no trial is created: the search would end without one; return a Shutdown to end it")
            return
        known = self._search.open
        opened = [one for one in known if not one.over and one.key not in self._closed]
        idle = [one for one in opened if one.held or one.key == self._search.asked_about]
        left = [one for one in idle if not one.lengths and not self._lengths.get(one.key) and one.by_length]
        ending = [one for one in known if one.stopped]
        if opened and len(left) == len(opened) and not ending and not self._closed:
            names = ", ".join(one.key for one in left[:3]) + (" ..." if len(left) > 3 else "")
            self._found.append(
                f"no trial would train again: {len(left)} wait for a validate_after or a close ({names})"
            )
