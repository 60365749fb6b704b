"""The contract of search methods: subclass `SearchMethodContract` in your tests, and name a config and a space.

    class TestMine(SearchMethodContract):
        config = {"name": "mine", "metric": "loss", "max_trials": 12}

A search is driven as the master drives it, through its journal, with trials that report, fail and end in an order
drawn at random; `seeds` says how often.
"""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from detlab.schemas.expconf.blocks.searchers import MEMBERS
from detlab_hub.core.searchers import (
    RULES,
    Answered,
    BudgetSpent,
    CheckpointCommitted,
    ConcurrencySet,
    Continued,
    CreateTrial,
    Decision,
    Event,
    ExitReason,
    Extended,
    PauseSearch,
    PauseTrial,
    PointsAdded,
    ProgressReported,
    PromotionRequested,
    ResumeTrial,
    Searcher,
    SetPoint,
    Shutdown,
    SpaceEdited,
    Started,
    Steering,
    SteeringRefused,
    StopRequested,
    StopTrial,
    Suggest,
    Suggested,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    TrialPaused,
    TrialPlaced,
    TrialsRetried,
    ValidationReported,
    decision_from_json,
    decision_to_json,
    event_from_json,
    event_to_json,
    make_searcher,
    method_class,
    replay,
)
from detlab_hub.core.searchers.hyperparameters import sample
from detlab_hub.core.searchers.randomness import SearchRandom
from detlab_hub.core.searchers.suggesting import answer, to_json

__all__ = ["Driven", "SearchMethodContract", "drive"]
_LEAVES = 0.7
"""Share of paused trials that leave before they report once more."""
_SAVES = 0.9
"""Share of paused trials that save before they leave, where the method wants checkpoints."""
_REASONS: tuple[ExitReason, ...] = ("errored", "user_canceled", "invalid_hp", "init_invalid_hp")


Answers = Callable[[Sequence[Mapping[str, Any]], Searcher], Sequence[dict[str, Any]]]
"""(the feed up to the event that waits, the search) -> operations, as the class of a custom search answers them."""


class Driven:
    """A search that was driven to its end, or to where it stands, with all that it was told and decided."""

    def __init__(self, search: Searcher) -> None:
        self.search = search
        self.journal: list[Event] = []
        self.decided: list[list[Decision]] = []
        self.fingerprints: list[str] = []
        self.created: dict[str, CreateTrial] = {}
        self.open: list[str] = []
        self.paused: dict[str, bool] = {}
        """Trials that are to be off their slots, and whether they have left."""
        self.pointless: set[str] = set()
        """Trials that have no point yet: nothing happens to them but that they are placed, or end."""
        self.saved: set[str] = set()
        """Trials that have saved since they were to leave their slots."""
        self.early: set[str] = set()
        """Trials that ended before their code was done."""
        self.invalid: set[str] = set()
        self.shutdown: Shutdown | None = None
        self.refused: list[Steering] = []
        """Acts of users that the search did not allow."""
        self.granted = 0
        """Trials by which users have extended it."""
        self.lengthened = 0
        """Units of the time metric by which users have extended it; a population makes trials of them."""

    def steer(self, act: Steering) -> list[Decision]:
        """Give the search a user's act, as the master does; one that is refused changes nothing."""
        before, revision = self.search.fingerprint(), self.search.revision
        try:
            decisions = self.take(act)
        except SteeringRefused:
            assert self.search.fingerprint() == before, f"{act} was refused, but changed the search"
            assert self.search.revision == revision, f"{act} was refused, but counted as a change"
            self.refused.append(act)
            return []
        match act:
            case Extended(trials, units):
                self.granted += trials
                self.lengthened += units
            case PointsAdded(points):
                self.granted += len(points)
            case TrialsRetried(request_ids):
                self.granted += len(request_ids)
        return decisions

    def movable(self) -> list[str]:
        """List the trials to which something can happen: those that have not ended, and have not left their slots."""
        ready = [one for one in self.open if one not in self.pointless]
        return [one for one in ready if one in self.early or not self.paused.get(one, False)]

    def take(self, event: Event) -> list[Decision]:  # noqa: C901 - a case for each decision
        """Give the search an event, as the master does."""
        decisions = self.search.step(event)
        self.journal.append(event)
        self.decided.append(decisions)
        self.fingerprints.append(self.search.fingerprint())
        if isinstance(event, TrialExited):
            self.open.remove(event.request_id)
            self.paused.pop(event.request_id, None)
        if isinstance(event, TrialPaused):
            self.paused[event.request_id] = True
            self.saved.discard(event.request_id)
        if isinstance(event, TrialExitedEarly):
            self.early.add(event.request_id)
            self.pointless.discard(event.request_id)
            if event.reason in ("invalid_hp", "init_invalid_hp"):
                self.invalid.add(event.request_id)
        for decision in decisions:
            match decision:
                case CreateTrial(request_id):
                    assert request_id not in self.created, "a request id was given twice"
                    assert decision.index == len(self.created), "indices do not count"
                    self.created[request_id] = decision
                    self.open.append(request_id)
                    if decision.later:
                        assert decision.hparams == {}, "a trial has hyperparameters before its point is drawn"
                        self.pointless.add(request_id)
                case SetPoint(request_id, hparams):
                    assert request_id in self.open, "a trial that has ended, or never was, was given a point"
                    assert self.created[request_id].later, "a trial was given a second point"
                    self.created[request_id] = replace(self.created[request_id], hparams=hparams, later=False)
                    self.pointless.discard(request_id)
                case StopTrial(request_id):
                    self.pointless.discard(request_id)
                    assert request_id in self.open, "a trial was stopped that has ended, or never was"
                    self.paused.pop(request_id, None)
                case PauseTrial(request_id):
                    assert request_id in self.open, "a trial was paused that has ended, or never was"
                    assert request_id not in self.early, "a trial was paused that ends already"
                    assert request_id not in self.paused, "a trial was paused twice"
                    self.paused[request_id] = False
                case ResumeTrial(request_id):
                    assert request_id in self.paused, "a trial was resumed that was not paused"
                    del self.paused[request_id]
                case Shutdown():
                    assert self.shutdown is None, "the search ended twice"
                    self.shutdown = decision
        return decisions


def drive(
    config: Mapping[str, Any],
    space: Mapping[str, Any],
    seed: int,
    *,
    failures: float = 0.1,
    invalid: float = 0.1,
    lost_answers: float = 0.0,
    steps: int = 9,
    steering: float = 0.0,
    spent_at: int | None = None,
    accidents: float = 0.0,
    stopping: Sequence[Mapping[str, Any]] = (),
    answers: Answers | None = None,
    rules: int = RULES,
) -> Driven:
    """Drive a search until it ends.

    Args:
        config: The `searcher` block.
        space: The `hyperparameters` block.
        seed: Of the search, and of what its trials do.
        failures: Share of trials that fail or are canceled.
        invalid: Share of trials whose hyperparameters are refused.
        lost_answers: Share of questions that are answered with nothing.
        steps: Reports of a trial that is not stopped.
        steering: Share of events after which a user does something; each act is done at most four times.
        spent_at: After how many events a budget is used up.
        accidents: Share of events after which a trial ends early: one that trains, that is to leave, or that has left.
        stopping: The `stopping` list.
        answers: Stands for the class of a custom search.
        rules: By which the search decides: those of a new one, or of one that an earlier version began.
    """
    draw = random.Random(seed)  # noqa: S311 - the order of events of a test, which must be the same each time
    driven = Driven(make_searcher(config, space, seed, stopping=stopping, rules=rules))
    stopped: set[str] = set()
    step: dict[str, int] = {}
    waiting: list[Event] = [Started(rules)]
    acts = _Acts(space, seed)
    while waiting or driven.open:
        if len(driven.journal) == spent_at:
            event: Event = BudgetSpent("slot-hours: 1.0 of 1 used")
        elif accidents and driven.open and draw.random() < accidents:
            event = _accident(draw, driven, stopped)
        elif driven.journal and draw.random() < steering and (act := acts.draw(driven)) is not None:
            event = act
        elif waiting:
            event = waiting.pop(draw.randrange(len(waiting)))
        else:
            assert driven.movable(), "all trials are paused, and none is resumed"
            event = _next_of(draw, driven, draw.choice(driven.movable()), step, stopped, failures, invalid, steps)
        for decision in driven.steer(event) if isinstance(event, Steering) else driven.take(event):
            match decision:
                case CreateTrial(request_id, later=later):
                    waiting += [TrialCreated(request_id), *([TrialPlaced(request_id)] if later else [])]
                case StopTrial(request_id):
                    stopped.add(request_id)
                case PauseSearch():
                    waiting.append(Continued("ada"))
                case Suggest():
                    waiting.append(_answer(driven.search, config, decision, lost=draw.random() < lost_answers))
        number = driven.search.waits_for
        if answers is not None and number is not None and not any(isinstance(one, Answered) for one in waiting):
            feed = driven.search.method.feed(0, number)
            waiting.append(Answered(number, tuple(answers(feed, driven.search))))
        assert len(driven.journal) < 100_000, "the search does not end"
    return driven


class _Acts:
    """What users do to a search, at random: each kind of act at most four times, so that the search ends."""

    def __init__(self, space: Mapping[str, Any], seed: int) -> None:
        self._space = dict(space)
        self._draw = random.Random(-seed - 1)  # noqa: S311 - as in `drive`
        self._points = SearchRandom(seed + 1)
        self._left = dict.fromkeys(("extend", "add", "retry", "space", "places", "stop", "promote", "continue"), 4)

    def draw(self, driven: Driven) -> Steering | None:
        """Draw an act; None if there is nothing to do it to."""
        kind = self._draw.choice(list(self._left))
        if self._left[kind] == 0:
            return None
        self._left[kind] -= 1
        some = self._draw.choice(list(driven.created)) if driven.created else "no-such-trial"
        match kind:
            case "extend":
                return Extended(*self._draw.choice([(1, 0), (3, 0), (0, 2), (2, 1)]), author="ada")
            case "add":
                return PointsAdded(
                    tuple(sample(self._space, self._points) for _ in range(self._draw.randint(1, 3))), "ada"
                )
            case "retry":
                return TrialsRetried((some,), "ben")
            case "space":
                return SpaceEdited(self._narrowed(), "ada")
            case "places":
                return ConcurrencySet(self._draw.randint(0, 6), "ada")
            case "stop":
                return StopRequested(some, "ben")
            case "promote":
                return PromotionRequested(some, "ada")
        return Continued("ada")

    def _narrowed(self) -> dict[str, Any]:
        """Draw a space within the first one."""
        made = dict(self._space)
        if "lr" in made:
            made["lr"] = {**made["lr"], "maxval": self._draw.choice([-1, -2, -3])}
        return made


def _next_of(
    draw: random.Random,
    driven: Driven,
    request_id: str,
    step: dict[str, int],
    stopped: set[str],
    failures: float,
    invalid: float,
    steps: int,
) -> Event:
    """Draw the next event of a trial."""
    if request_id in driven.early:
        return TrialExited(request_id)
    if request_id in driven.paused and draw.random() < _LEAVES:
        if driven.search.wants_checkpoints and request_id not in driven.saved and draw.random() < _SAVES:
            driven.saved.add(request_id)
            return CheckpointCommitted(request_id, f"{request_id}-{len(driven.journal)}", step.get(request_id, 0))
        return TrialPaused(request_id)
    at = step[request_id] = step.get(request_id, 0) + 1
    if request_id in stopped or at > steps:
        return TrialExited(request_id)
    if at == 1 and draw.random() < failures + invalid:
        stopped.add(request_id)
        share = failures / (failures + invalid)
        return TrialExitedEarly(request_id, draw.choice(_REASONS[:2] if draw.random() < share else _REASONS[2:]))
    if driven.search.wants_checkpoints and draw.random() < 0.3:
        return CheckpointCommitted(request_id, f"{request_id}-{at}", at)
    metric = draw.choice([draw.random(), draw.random(), draw.random(), 0.5, math.nan, math.inf])
    values = {name: draw.choice([draw.random(), draw.random(), 0.5]) for name in driven.search.metrics}
    return ValidationReported(request_id, metric, float(at), values, float(at))


def _accident(draw: random.Random, driven: Driven, stopped: set[str]) -> Event:
    """Draw the early end of any open trial, or the end of one that has had an accident."""
    request_id = draw.choice(driven.open)
    if request_id in driven.early:
        return TrialExited(request_id)
    stopped.add(request_id)
    return TrialExitedEarly(request_id, draw.choice(_REASONS))


def _answer(search: Searcher, config: Mapping[str, Any], asked: Suggest, *, lost: bool) -> Suggested:
    """Answer a question as the master does: through JSON, without the search."""
    if lost:
        return Suggested(asked.ticket, (), "it was lost")
    question = next(one for one in search.questions() if one.ticket == asked.ticket)
    with warnings.catch_warnings():  # Optuna's, of points that have converged; it handles them
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"optuna\.")
        return Suggested(asked.ticket, tuple(answer(to_json(config["name"], question))[: asked.count]))


def _through_json(made: dict[str, Any]) -> dict[str, Any]:
    """Write and read a line of the journal; the database keeps no numbers but those of JSON."""
    read: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return read


def _read_back(decision: Decision) -> Decision:
    return decision_from_json(_through_json(decision_to_json(decision)))


class SearchMethodContract:
    """What every search method keeps; subclasses name `config`.

    Attributes:
        config: A `searcher` block, with its name.
        space: The `hyperparameters` block.
        stopping: The `stopping` list of policies beside the method.
        answers: A function that stands for the class of a custom search.
        seeds: Searches that are driven in each test.
        lost_answers: Share of questions that are answered with nothing; for a method whose answers take seconds.
    """

    config: ClassVar[dict[str, Any]]
    space: ClassVar[dict[str, Any]] = {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1, "count": 3},
        "net": {"width": {"type": "int", "minval": 1, "maxval": 9, "count": 3}, "act": "relu"},
        "opt": {"type": "categorical", "vals": ["sgd", "adam"]},
    }
    stopping: ClassVar[Sequence[Mapping[str, Any]]] = ()
    answers: ClassVar[Answers | None] = None
    seeds: ClassVar[range] = range(20)
    lost_answers: ClassVar[float] = 0.0

    _kept: ClassVar[dict[tuple[type, int], Driven]] = {}

    def drive(self, seed: int, **more: float) -> Driven:
        """Drive a search by the method, with the class's policies."""
        options: dict[str, Any] = {"lost_answers": self.lost_answers, **more}
        return drive(self.config, self.space, seed, stopping=self.stopping, answers=self._answers(), **options)

    def _answers(self) -> Answers | None:
        return type(self).__dict__.get("answers")

    def _made(self, seed: int) -> Searcher:
        return make_searcher(self.config, self.space, seed, stopping=self.stopping)

    def driven(self, seed: int) -> Driven:
        """Return a search that was driven, the same for several tests: they leave it alone."""
        place = type(self), seed
        if place not in self._kept:
            self._kept[place] = self.drive(seed)
        return self._kept[place]

    def test_method_is_found_by_its_entry_point(self) -> None:
        """The config's name, the entry point's and the class's are one, and its block accepts the config."""
        found = method_class(self.config["name"])
        assert found.name == self.config["name"]
        assert MEMBERS[found.name] is found.Config
        found.Config.model_validate(self.config)

    def test_same_events_give_the_same_decisions(self) -> None:
        """Nothing but config, seed and events decides."""
        for seed in self.seeds:
            one, two = self.driven(seed), self.drive(seed)
            assert one.decided == two.decided
            assert one.fingerprints == two.fingerprints

    def test_replay_from_the_journal_decides_the_same_at_every_event(self) -> None:
        """I8: through JSON; and a search that was replayed to anywhere continues as the first one did."""
        for seed in self.seeds:
            live = self.driven(seed)
            events = [event_from_json(_through_json(event_to_json(event))) for event in live.journal]
            decided = [[_read_back(one) for one in decisions] for decisions in live.decided]
            again = self._made(seed)
            for place, event in enumerate(events):
                assert again.step(event) == decided[place]
                assert again.fingerprint() == live.fingerprints[place], f"after event {place}: {event}"
            cut = random.Random(seed).randrange(len(events) + 1)  # noqa: S311 - as in `drive`
            search, _ = replay(self.config, self.space, seed, events[:cut], decided[:cut], stopping=self.stopping)
            for event, then in zip(events[cut:], live.decided[cut:], strict=True):
                assert search.step(event) == then

    def test_a_master_killed_at_any_event_decides_the_same(self) -> None:
        """I8: users steer, trials have accidents; after each event the search that the journal gives is the live one.

        It has what is journaled only, and asks the same questions. Progress, which is in no journal, decides nothing.
        """
        for seed in self.seeds[:10]:
            live = self.drive(seed, steering=0.1, accidents=0.05)
            draw = random.Random(seed)  # noqa: S311 - as in `drive`
            search, restored = self._made(seed), self._made(seed)
            for place, event in enumerate(live.journal):
                revision = search.revision
                assert search.step(event) == live.decided[place], f"event {place}: {event}"
                if live.decided[place] or search.revision != revision:
                    told = event_from_json(_through_json(event_to_json(event)))
                    assert restored.step(told) == [_read_back(one) for one in live.decided[place]]
                assert restored.fingerprint() == search.fingerprint(), f"after event {place}: {event}"
                assert [vars(one) for one in restored.questions()] == [vars(one) for one in search.questions()]
                assert restored.needs_checkpoints() == search.needs_checkpoints()
                if search.trials_requested:
                    request_id = draw.choice(list(live.created)[: search.trials_requested])
                    progress = ProgressReported(request_id, draw.random())
                    assert search.step(progress) == restored.step(progress) == []

    def test_events_that_leave_the_revision_alone_need_no_journal(self) -> None:
        """What the master does not journal must not be missed."""
        for seed in self.seeds:
            live = self.driven(seed)
            search, kept = self._made(seed), []
            for event in live.journal:
                revision = search.revision
                if search.step(event) or search.revision != revision:
                    kept.append(event)
            again, _ = replay(self.config, self.space, seed, kept, stopping=self.stopping)
            assert again.fingerprint() == live.fingerprints[-1]

    @pytest.mark.parametrize(("failures", "invalid"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.5), (1.0, 0.0)])
    def test_every_search_ends_within_its_budget(self, failures: float, invalid: float) -> None:
        """All trials end, then the search does; valid trials never exceed the budget."""
        for seed in self.seeds:
            driven = self.drive(seed, failures=failures, invalid=invalid)
            assert driven.shutdown is not None
            assert driven.search.shutdown == driven.shutdown
            assert len(driven.created) - len(driven.invalid) <= driven.search.trials_total
            assert driven.search.progress() == 1.0

    def test_trials_may_end_early_at_any_time(self) -> None:
        """One that trains, is to leave its slots, or has left them: the search still ends within its budget."""
        for seed in self.seeds:
            driven = self.drive(seed, accidents=0.2)
            assert driven.shutdown is not None
            assert len(driven.created) - len(driven.invalid) <= driven.search.trials_total
            assert not driven.open, "trials are left"

    def test_users_may_steer_at_any_time(self) -> None:
        """Acts at random moments: the extended budget holds, refusals change nothing."""
        done = 0
        for seed in self.seeds:
            live = self.drive(seed, steering=0.3)
            done += len(live.refused)
            done += sum(isinstance(event, Steering) for event in live.journal)
            assert live.shutdown is not None, "the search did not end"
            total = self._made(seed).trials_total
            granted = live.granted * self.config.get("seeds", 1)
            assert live.search.trials_total >= total + granted, "the budget is less than users made of it"
            if not live.lengthened:
                assert live.search.trials_total == total + granted, "the budget is more than users made of it"
            assert len(live.created) - len(live.invalid) <= live.search.trials_total
        assert done, "no act was drawn"

    def test_nothing_begins_once_a_budget_is_spent(self) -> None:
        """Every trial is stopped, no other is made, and the search ends."""
        for seed in self.seeds:
            live = self.drive(seed, spent_at=6)
            assert live.shutdown is not None
            places = [at for at, event in enumerate(live.journal) if isinstance(event, BudgetSpent)]
            for decisions in live.decided[places[0] :] if places else []:
                assert not any(isinstance(one, CreateTrial | ResumeTrial | Suggest) for one in decisions)

    def test_repeated_events_change_nothing(self) -> None:
        """A report that comes twice across a crash is not counted twice by the driver's books of ends."""
        for seed in self.seeds:
            driven = self.driven(seed)
            before = driven.search.fingerprint()
            for request_id in driven.created:
                for event in (TrialCreated(request_id), TrialExited(request_id)):
                    assert driven.search.step(event) == []
            assert driven.search.step(Started()) == []
            assert driven.search.fingerprint() == before

    def test_points_lie_in_the_space(self) -> None:
        """Each hyperparameter of each trial is one that the space has."""
        for seed in self.seeds:
            for trial in (one for one in self.driven(seed).created.values() if not one.later):
                assert trial.hparams.keys() == self.space.keys()
                assert 1e-4 * (1 - 1e-9) <= trial.hparams["lr"] <= 1e-1 * (1 + 1e-9)
                assert trial.hparams["net"]["width"] in range(1, 10)
                assert trial.hparams["opt"] in ("sgd", "adam")

    def test_points_are_drawn_when_trials_are_placed(self) -> None:
        """A method with `draws_late` draws no point before that; one of an earlier search draws all of them."""
        late = self._made(0).method.draws_late
        made = [one for one in self._made(0).step(Started(RULES)) if isinstance(one, CreateTrial)]
        assert not late or any(one.later for one in made)
        assert late or not any(one.later for one in made)
        for seed in self.seeds[:5]:
            earlier = self.drive(seed, rules=0)
            assert not any(one.later for decided in earlier.decided for one in decided if isinstance(one, CreateTrial))
            assert earlier.shutdown is not None

    def test_lost_suggestions_are_drawn_at_random(self) -> None:
        """A method whose suggestions fail still ends, and replays."""
        for seed in self.seeds:
            driven = self.drive(seed, lost_answers=0.5)
            assert driven.shutdown is not None
            search, _ = replay(self.config, self.space, seed, driven.journal, driven.decided, stopping=self.stopping)
            assert search.fingerprint() == driven.fingerprints[-1]

    def test_state_is_json(self) -> None:
        """It is shown to people who debug a search."""
        json.dumps(self.driven(self.seeds[0]).search.method.state())
