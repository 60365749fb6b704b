"""The interface of search methods: five calls, driven by `Searcher`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from detlab.schemas.expconf import SearcherBlock
from detlab.schemas.space import Distinct, Space
from detlab_hub.core.searchers.errors import SteeringRefused
from detlab_hub.core.searchers.events import CreateTrial, Decision, ExitReason, Shutdown
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.objectives import Score
from detlab_hub.core.searchers.randomness import COSTLY, PointsAhead, SearchRandom

LEAST_INVALID, MOST_INVALID = 10, 100
"""Points in a row that may be invalid, in a search of few and of many trials."""


class TrialFactory:
    """Draws the trials of a search, in the one order that makes them reproducible.

    For each trial: the hyperparameters, then 16 bytes for the request id, then the trial's seed. Points that users
    enqueued come before any other.

    Args:
        space: The space, or its block.
        rng: The random numbers of the search.
        distinct: Whether no point is drawn twice, as long as the space has others.
    """

    def __init__(self, space: Space | Mapping[str, Any], rng: SearchRandom, *, distinct: bool = False) -> None:
        self._space = space if isinstance(space, Space) else Space(space)
        self._distinct = Distinct(self._space) if distinct else None
        self.surplus: set[str] = set()
        """Trials that are too many, by request id: when they were made, the space had no point left."""
        self.rng = rng
        self.late = False
        """Whether points are drawn when trials are placed: the method says so, by the rules of its search."""
        self.given: set[str] = set()
        """Trials at points that were enqueued."""
        self.pointless: set[str] = set()
        """Trials that have no point yet, and have not ended."""
        self._ahead: PointsAhead | None = None
        self._thirsty = False
        self._count = 0
        self._notes: dict[str, None] = {}
        self._queue: deque[dict[str, Any]] = deque()

    @property
    def count(self) -> int:
        """Trials drawn so far."""
        return self._count

    @property
    def space(self) -> Mapping[str, Any]:
        """The `hyperparameters` block."""
        return self._space.block

    @space.setter
    def space(self, block: Mapping[str, Any]) -> None:
        self._space = Space(block, self.require)
        if self._distinct is not None:
            self._distinct.space = self._space

    @property
    def require(self) -> list[str]:
        """The relations that each point must meet."""
        return [relation.text for relation in self._space.relations]

    @property
    def enqueued(self) -> tuple[dict[str, Any], ...]:
        """Points that wait to become trials."""
        return tuple(self._queue)

    def enqueue(self, points: Iterable[dict[str, Any]]) -> None:
        """Let the next trials have these points, in this order; what a point lacks is drawn."""
        self._queue.extend(points)

    def drop_enqueued(self, keep: int) -> None:
        """Forget the points that were enqueued after the first `keep`."""
        while len(self._queue) > keep:
            self._queue.pop()

    def draw(self) -> CreateTrial:
        """Create a trial at the first enqueued point, or else at a random point of the space."""
        given = bool(self._queue)
        made = self.at(self.due())
        if given:
            self.given.add(made.request_id)
        return made

    def later(self) -> CreateTrial:
        """Create a trial at the first enqueued point, or else without one: that is drawn when the trial is placed."""
        if self._queue:
            return self.draw()
        left = self._distinct.left() if self._distinct is not None else None
        enough = left is None or len(left) > len(self.pointless)
        return self.at({} if enough else _Surplus(), later=True)

    def due(self) -> dict[str, Any]:
        """Return the first enqueued point, or else a random one, for a trial that has none."""
        if not self._queue:
            return self.point()
        given = self._queue.popleft()
        found = self._sample(given) if self._space.lacking(given) else given
        if self._distinct is not None:
            self._distinct.tried(found)
        return found

    def point(self) -> dict[str, Any]:
        """Draw a random point of the space, without a trial."""
        if self._distinct is None:
            return self._sample(None)
        found, new = self._distinct.new(self.rng, lambda: self._sample(None))
        self._distinct.tried(found)
        return found if new else _Surplus(found)

    @property
    def exhausted(self) -> bool:
        """Whether each point of the space is tried, and none may be tried again."""
        return self._distinct is not None and self._distinct.left() == {}

    def points_ahead(self) -> PointsAhead | None:
        """Return the next points, to be drawn beside everything else, if the last ones took long; else None."""
        if not self._thirsty:
            return None
        self._thirsty = False
        if self._ahead is None:
            self._ahead = PointsAhead(self._space, self.rng, trials=not self.late)
        return self._ahead

    def _sample(self, fixed: dict[str, Any] | None) -> dict[str, Any]:
        known = None if fixed or self._ahead is None else self._ahead.take(self._space, self.rng)
        if known is None:
            found = self._space.sample(self.rng, fixed)
            self._ahead = None
            self._thirsty |= self._space.spent > COSTLY
        else:
            found, self._thirsty = known, True
        if self._space.rare:
            tries = f"{self._space.tries:,}"
            self._notes[f"searcher.require: none of {tries} random points met it, so a known one was used again"] = None
        return found

    @property
    def notes(self) -> list[str]:
        """What people should know of how points were drawn; each is shown once."""
        return list(self._notes)

    def allowed(self, hparams: dict[str, Any]) -> dict[str, Any]:
        """Return a point if it meets the relations of the space and is to be tried, else a random one that does."""
        if not self.is_fresh(hparams):
            return self.point()
        if self._distinct is not None:
            self._distinct.tried(hparams)
        return hparams

    def is_fresh(self, hparams: dict[str, Any]) -> bool:
        """Return whether a point meets the relations of the space, and was not tried where none is tried twice."""
        return self._space.allows(hparams) and (self._distinct is None or self._distinct.is_new(hparams))

    def problems(self, hparams: Mapping[str, Any]) -> list[str]:
        """Return what keeps a point, or a part of one, out of the space."""
        return [f"{name}: {wrong}" if name else wrong for name, wrong in self._space.problems(hparams)]

    def completed(self, hparams: object) -> tuple[dict[str, Any], list[str]]:
        """Return a point with the constants that it lacks, and what keeps it out of the space, a missing value too."""
        wrong = self._space.problems(hparams)
        if wrong or not isinstance(hparams, Mapping):
            return {}, [f"{name}: {text}" if name else text for name, text in wrong]
        point = self._space.with_constants(hparams)
        wrong = self._space.problems(point, partial=False)
        return point, [f"{name}: {text}" if name else text for name, text in wrong]

    def at(self, hparams: dict[str, Any], parent: str | None = None, *, later: bool = False) -> CreateTrial:
        """Create a trial at a given point, from a parent's checkpoint if one is given; or `later` without a point."""
        index = self._count
        self._count += not isinstance(hparams, _Surplus)
        request_id = self.rng.request_id()
        if isinstance(hparams, _Surplus):
            self.surplus.add(request_id)
        elif later:
            self.pointless.add(request_id)
        elif self._distinct is not None:
            self._distinct.tried(hparams)
        return CreateTrial(request_id, self.rng.trial_seed(), hparams, index, parent, later)


class _Surplus(dict[str, Any]):
    """A point that was drawn although no new one was left."""


@dataclass(frozen=True)
class Question:
    """The complete question of a `Suggest` decision: it is answered without the search, in a separate process.

    Attributes:
        ticket: The ticket of the `Suggest`.
        count: Number of points wanted.
        seed: For the answer's randomness: always the same for one ticket.
        space: The `hyperparameters` block.
        known: What the method knows, plain JSON values.
        require: The relations that each point must meet.
    """

    ticket: int
    count: int
    seed: int
    space: Mapping[str, Any]
    known: Any
    require: Sequence[str] = ()


@dataclass(frozen=True)
class Standing:
    """How many trials are where, at one rung, round or generation of a search.

    Attributes:
        where: The rung, round or generation, for people.
        counts: Number of trials by what they do there, in the order to show; those of zero may be left out.
    """

    where: str
    counts: Mapping[str, int]


class SearchMethod(ABC):
    """A search method. Every call may be followed by any other; the driver has removed repeated events.

    A method updates its records when it decides, not when the trial is stored, so that events out of order
    cannot make it exceed its budget. It is found by its entry point in the group `detlab.searchers`.

    Attributes:
        name: The value of `searcher.name`, and the name of its entry point.
        Config: Schema of the `searcher` block, by which it is checked and documented.
        wants_checkpoints: Whether it receives checkpoints, each of which is then journaled.
        suggests: Whether it makes `Suggest` decisions.
        draws_late: Whether it learns from results that come while trials wait for resources. It then creates trials
            without a point where `factory.late` says so, and gives each its own when it is `placed`.
        draws_anew: Whether it keeps nothing of the points that it has drawn, so that those of trials that wait
            may be replaced by random ones.
        trains_on: Whether trials that have ended may train on for longer: it compares none by how long they train, and
            reads neither `searcher.max_length` nor `searcher.max_time`. It then defines `reopened`.
        needs_metric: Whether a trial that never reports the searcher's metric is an error, since it cannot be compared.
    """

    name: ClassVar[str]
    Config: ClassVar[type[SearcherBlock]]
    wants_checkpoints: ClassVar[bool] = False
    suggests: ClassVar[bool] = False
    draws_late: ClassVar[bool] = False
    draws_anew: ClassVar[bool] = False
    trains_on: ClassVar[bool] = False
    needs_metric: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that a `searcher` block describes.

        Args:
            fields: The block, as plain values.
            space: The `hyperparameters` block, checked.

        Raises:
            SearcherConfigError: A field is missing or out of range.
        """

    @property
    @abstractmethod
    def budget(self) -> int:
        """Trials that the search makes at most, not counting invalid ones that it replaces."""

    @property
    def most_invalid(self) -> int:
        """How many points in a row may be invalid before the search is paused; 0: it ends, as it replaces none."""
        return min(max(self.budget, LEAST_INVALID), MOST_INVALID)

    @property
    def points(self) -> int:
        """Points that the search tries at most, not counting invalid ones that it replaces."""
        return self.budget

    @abstractmethod
    def start(self, factory: TrialFactory) -> list[Decision]:
        """Create the first trials."""

    def placed(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """React to resources for a trial without a point, once for each: by `SetPoint`, now or after a `Suggest`."""
        return []

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """React to a report of the searcher's metric.

        Args:
            factory: Makes trials.
            request_id: The reporting trial.
            score: What the report is worth; one loss for each objective, smaller is better.
            time: The value of the searcher's `time_metric`, None where the report has none.

        Raises:
            SearcherInputError: The report lacks a value that the method needs; nothing has changed.
        """
        return []

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """React to a trial that ended before its code was done."""
        return []

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """React to a trial's end, early or not."""
        return []

    def stopped(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """React to a stopping policy that ended a trial; its `exited` follows once it has terminated."""
        return []

    def count_stopped(self, request_id: str, score: Score | None) -> None:
        """Compare a trial that a policy or a user stops where it would have been compared next; `stopped` follows.

        Args:
            request_id: The trial.
            score: Of the report on which a policy stops it; None counts as the worst.
        """
        return

    def disqualified(self, factory: TrialFactory, request_id: str, score: Score) -> list[Decision]:
        """React to a stopping policy that ended a trial which breaks a constraint: what it scored before is void.

        Args:
            factory: Makes trials.
            request_id: The trial.
            score: Of the report on which it was stopped.
        """
        return self.stopped(factory, request_id)

    def paused(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """React to a trial that has left its slots after a `PauseTrial`; its checkpoints came before."""
        return []

    def checkpointed(self, factory: TrialFactory, request_id: str, uuid: str, steps_completed: int) -> list[Decision]:
        """React to a checkpoint of a trial, if the method `wants_checkpoints`."""
        return []

    def known(self, ticket: int) -> Any:
        """Return the input of `suggest` for a ticket, plain JSON values; called in the transaction of the `Suggest`."""
        raise NotImplementedError(f"{type(self).__name__} made a Suggest decision but does not define `known`")

    @classmethod
    def suggest(cls, question: Question) -> Sequence[dict[str, Any]]:
        """Answer a question with points of the space, in a separate process that may take its time.

        If it returns fewer points than requested or raises, the rest is drawn at random.
        """
        raise NotImplementedError(f"{cls.__name__} makes no suggestions")

    def suggested(self, factory: TrialFactory, ticket: int, points: Sequence[dict[str, Any]]) -> list[Decision]:
        """Use the answer to a ticket, which has as many points as requested."""
        raise NotImplementedError(f"{type(self).__name__} made a Suggest decision and takes no answer")

    @property
    def waits_for(self) -> int | None:
        """The number of the event that the class of a custom search has to answer next; None: there is none."""
        return None

    def take_means(self) -> list[tuple[str, Score]] | None:
        """Return the results of points since the last call, by the trial that stands for each; None: trials' own."""
        return None

    def ended_point(self, request_id: str) -> str | None:
        """Return the trial that stands for the point of one that has ended; None while others of the point run."""
        return request_id

    def point_of(self, request_id: str) -> str:
        """Return the trial that stands for the point of another; its own if each point is one trial."""
        return request_id

    @property
    def verdict(self) -> Shutdown | None:
        """How the search is to end, if the method says that itself; by default by how its trials ended."""
        return None

    def feed(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Return the events for the class of a custom search after a number, in order."""
        return []

    def answered(
        self, factory: TrialFactory, number: int, operations: Sequence[Mapping[str, Any]], failure: str
    ) -> list[Decision]:
        """Take the answer of the class to the event that it has to answer next.

        Raises:
            OperationsRefused: Names every impossible operation; nothing has changed.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no answers")

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Enlarge the search by further trials, and the longest trials by further units of the time metric.

        Raises:
            SteeringRefused: The method does not support it; nothing has changed.
        """
        raise SteeringRefused(f"a search by {self.name} cannot be extended")

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Change how many trials run at a time, 0 for no limit; running trials continue.

        Raises:
            SteeringRefused: It cannot be changed.
        """
        raise SteeringRefused(f"the concurrency of {self.name} cannot be changed")

    def respaced(self, factory: TrialFactory, space: Mapping[str, Any]) -> list[Decision]:
        """React to a new space, which the factory draws from afterwards.

        Raises:
            SteeringRefused: The space cannot be changed.
        """
        return []

    def promoted(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Let a trial train on to the next rung although it would not have.

        Raises:
            SteeringRefused: There is no rung for it.
        """
        raise SteeringRefused(f"{self.name} has no rungs to promote a trial to")

    def promotes_to(self, request_id: str) -> int | None:
        """Return the units of the time metric of the rung to which a promotion lets a trial train; None: no rung."""
        return None

    def continued(self, factory: TrialFactory) -> list[Decision]:
        """Try again what a `PauseSearch` was about."""
        return []

    def reopened(self, factory: TrialFactory, request_ids: Sequence[str]) -> list[Decision]:
        """Let trials that have ended train on, by `ResumeTrial` now, or later when there is a place for them.

        Raises:
            SteeringRefused: The method compares trials that have trained equally long, or cannot otherwise.
        """
        raise SteeringRefused(f"trials of a search by {self.name} cannot train on once they have ended")

    def needs_checkpoints(self) -> Set[str]:
        """Return the checkpoints that a trial may still start from: they cannot be deleted."""
        return frozenset()

    def notes(self) -> list[str]:
        """Return what people should know of choices that the method made; each is shown once, as a warning."""
        return []

    def level_of(self, request_id: str) -> int:
        """Return how far a trial is in the method's records; a report that does not change this changed nothing."""
        return 0

    def explain(self, request_id: str) -> str:
        """Return how a trial compares with the others now, for people; empty if there is nothing to tell."""
        return ""

    def standing(self) -> list[Standing]:
        """Return how many trials are at each rung, round or generation, first to last; empty if it has none."""
        return []

    def units_of(self, request_id: str) -> list[int]:
        """Return the units of the time metric at which a trial is evaluated, ascending; empty if it never is."""
        return []

    @property
    def first_units(self) -> int | None:
        """The earliest point, in units of the time metric, at which any trial is evaluated."""
        return None

    @abstractmethod
    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the part of the search that is done, 0 to 1.

        Args:
            shares: Reported progress, 0 to 1, of each trial whose hyperparameters were valid.
            closed: Trials that have ended.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the whole state as JSON values, for fingerprints and for people who debug a search."""


def create_many(count: int, create: Callable[[], CreateTrial]) -> list[Decision]:
    """Create `count` trials."""
    return [create() for _ in range(count)]
