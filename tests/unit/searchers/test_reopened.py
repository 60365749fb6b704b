"""Searches that had ended and go on: their trials train on, or failed points are tried again; replays say the same."""

from __future__ import annotations

from typing import Any

import pytest

from detlab_hub.core.searchers import (
    CreateTrial,
    Decision,
    Event,
    Reopened,
    ResumeTrial,
    Searcher,
    Shutdown,
    Started,
    SteeringRefused,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    TrialsRetried,
    event_from_json,
    event_to_json,
    make_searcher,
    replay,
)
from detlab_hub.core.searchers.events import BudgetSpent

SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
GRID = {"lr": {"type": "categorical", "vals": [1, 2, 3, 4]}}
RANDOM = {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 2}
SOBOL = {**RANDOM, "name": "sobol"}
SEARCHES = [
    (RANDOM, SPACE),
    (SOBOL, SPACE),
    ({**RANDOM, "name": "grid"}, GRID),
    ({"name": "single", "metric": "loss"}, SPACE),
]


class Course:
    """A search and its journal."""

    def __init__(self, config: dict[str, Any], space: dict[str, Any]) -> None:
        self.config, self.space = config, space
        self.search: Searcher = make_searcher(config, space, 1)
        self.journal: list[tuple[Event, list[Decision]]] = []
        self.made: list[str] = []

    def take(self, *events: Event) -> list[Decision]:
        decided = []
        for event in events:
            now = self.search.step(event)
            self.journal.append((event, now))
            self.made += [one.request_id for one in now if isinstance(one, CreateTrial)]
            decided += now
        return decided

    def run_to_the_end(self, failing: int = -1) -> list[Decision]:
        decided = self.take(Started())
        for place in range(100):
            if self.search.shutdown is not None:
                return decided
            name = self.made[place]
            early = [TrialExitedEarly(name, "errored")] if place == failing else []
            decided += self.take(TrialCreated(name), *early, TrialExited(name))
        raise AssertionError("it does not end")

    def check_replay(self) -> None:
        events = [event_from_json(event_to_json(event)) for event, _ in self.journal]
        again, _ = replay(self.config, self.space, 1, events, [decided for _, decided in self.journal])
        assert again.fingerprint() == self.search.fingerprint()


@pytest.mark.parametrize(("config", "space"), SEARCHES)
def test_its_trials_train_on_as_many_at_a_time_as_it_allows(config, space):
    course = Course(config, space)
    course.run_to_the_end()
    names, limit = list(course.made), config.get("max_concurrent_trials", 1)
    decided = course.take(Reopened(tuple(names), "ada"))
    assert decided == [ResumeTrial(name) for name in names[:limit]]
    assert course.search.shutdown is None
    assert course.search.progress() < 1.0
    resumed = [one.request_id for one in decided if isinstance(one, ResumeTrial)]
    for name in names:
        assert name in resumed
        decided = course.take(TrialExited(name))
        resumed += [one.request_id for one in decided if isinstance(one, ResumeTrial)]
    assert resumed == names
    assert decided[-1] == Shutdown(cancel=False, failure=False)
    assert course.made == names  # no further trial
    course.check_replay()


@pytest.mark.parametrize(("config", "space"), SEARCHES)
def test_an_end_can_be_taken_back_again_and_again(config, space):
    course = Course(config, space)
    course.run_to_the_end()
    for _ in range(3):
        first = course.made[0]
        assert course.take(Reopened((first,))) == [ResumeTrial(first)]
        assert course.take(TrialExited(first)) == [Shutdown(cancel=False, failure=False)]
    course.check_replay()


def test_a_failure_is_forgotten_when_its_trial_goes_on():
    course = Course({"name": "single", "metric": "loss"}, SPACE)
    assert course.run_to_the_end(failing=0)[-1] == Shutdown(cancel=False, failure=True)
    course.take(Reopened(tuple(course.made)))
    assert course.take(TrialExited(course.made[0])) == [Shutdown(cancel=False, failure=False)]
    course.check_replay()


def test_failed_points_are_tried_again_after_the_end():
    course = Course(RANDOM, SPACE)
    course.run_to_the_end(failing=1)
    assert course.take(Reopened((), "ada")) == []
    [made] = course.take(TrialsRetried((course.made[1],), "ada"))
    assert isinstance(made, CreateTrial)
    again = make_searcher(RANDOM, SPACE, 1)
    points = [one.hparams for one in again.step(Started()) if isinstance(one, CreateTrial)]
    assert made.hparams == points[1]
    assert course.take(TrialCreated(made.request_id), TrialExited(made.request_id))[-1] == Shutdown(False, False)
    course.check_replay()


def test_trials_that_were_running_when_it_was_canceled_have_their_places():
    course = Course(RANDOM, SPACE)
    course.take(Started())
    first, second = course.made
    assert course.take(Reopened((first, second))) == [ResumeTrial(first), ResumeTrial(second)]
    assert [type(one) for one in course.take(TrialExited(first))] == [CreateTrial]
    course.check_replay()


RUNGS = {"metric": "loss", "time_metric": "epochs", "max_time": 8}
COMPARING = {
    "async_halving": {"name": "async_halving", "num_rungs": 2, "max_trials": 2, **RUNGS},
    "adaptive_asha": {"name": "adaptive_asha", "max_trials": 2, **RUNGS},
    "hyperband": {"name": "hyperband", "max_trials": 2, **RUNGS},
    "tpe": {"name": "tpe", "metric": "loss", "max_trials": 2},
    "pbt": {
        "name": "pbt", "metric": "loss", "time_metric": "epochs", "population_size": 2, "num_rounds": 1,
        "length_per_round": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(COMPARING))
def test_methods_that_compare_trials_refuse_and_stay_as_they_are(name):
    search = make_searcher(COMPARING[name], SPACE, 1)
    created = [one.request_id for one in search.step(Started()) if isinstance(one, CreateTrial)]
    search.step(TrialExited(created[0]))
    before, revision = search.fingerprint(), search.revision
    with pytest.raises(SteeringRefused, match=r"cannot train on once they have ended|no valid hyperparameters"):
        search.step(Reopened((created[0],)))
    assert (search.fingerprint(), search.revision) == (before, revision)


def test_an_unknown_trial_an_invalid_one_and_a_spent_budget_are_refused():
    course = Course(RANDOM, SPACE)
    course.take(Started())
    invalid = course.made[0]
    course.take(TrialExitedEarly(invalid, "invalid_hp"), TrialExited(invalid))
    before = course.search.fingerprint()
    for name in ("unknown", invalid):
        with pytest.raises(SteeringRefused):
            course.search.step(Reopened((name,)))
    assert course.search.fingerprint() == before
    course.take(BudgetSpent("2 of 2 slot-hours used"))
    with pytest.raises(SteeringRefused, match="2 of 2 slot-hours used"):
        course.search.step(Reopened((course.made[1],)))
