"""Searches under bounds of memorisation: what breaks one is stopped with evidence, and the next best goes on."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_built_in_methods_contract import HALVING

from detlab.schemas.expconf import check, errors_of, resolve
from detlab.schemas.wire.searches import level_of
from detlab_hub.core.searchers import (
    CreateTrial,
    Objectives,
    PauseTrial,
    ResumeTrial,
    Shutdown,
    Started,
    SteeringRefused,
    StopTrial,
    TrialExited,
    ValidationReported,
    make_searcher,
    replay,
)
from detlab_hub.core.searchers.events import PromotionRequested
from detlab_hub.core.searchers.objectives import MetricBound
from detlab_hub.testing.searchers import SearchMethodContract

AUC = "gov/canary_auc_lcb"
BOUND = {"constraints": {AUC: {"max": 0.65}}}
STOP = [{"name": "threshold", "metric": AUC, "upper": 0.65}]
SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
RUNGS = {"max_trials": 9, "max_time": 9, "divisor": 3, "num_rungs": 2, "time_metric": "epochs"}
METHODS: list[dict[str, Any]] = [
    {"name": "random", "max_trials": 4},
    {"name": "grid", "max_trials": 4},
    {"name": "asha", **RUNGS, "max_concurrent_trials": 3},
    {"name": "asha", **RUNGS, "variant": "stopping", "max_concurrent_trials": 3},
    {"name": "adaptive_asha", "max_trials": 9, "max_time": 9, "divisor": 3, "time_metric": "epochs"},
    {"name": "hyperband", "max_trials": 9, "max_time": 9, "divisor": 3, "time_metric": "epochs"},
    {"name": "tpe", "max_trials": 4},
    {"name": "dehb", "max_trials": 9, "max_time": 18, "divisor": 3, "time_metric": "epochs"},
    {"name": "sobol", "max_trials": 4},
]


class Search:
    """A search that is told of trials by number, in the order in which they were made."""

    def __init__(self, stopping: Any = STOP, **config: Any) -> None:
        self.config = {"metric": "loss", **BOUND, **config}
        self.stopping = stopping
        space = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0, "count": 4}}
        self.args = (self.config, space, 3)
        self.search = make_searcher(*self.args, stopping=stopping)
        self.names: list[str] = []
        self.journal: list[Any] = []
        self.decided: list[Any] = []
        self.tell(Started())

    def tell(self, event: Any) -> list[Any]:
        decisions = self.search.step(event)
        self.journal.append(event)
        self.decided.append(decisions)
        self.names += [one.request_id for one in decisions if isinstance(one, CreateTrial)]
        return decisions

    def report(self, number: int, loss: float, auc: float, epochs: float = 3) -> list[Any]:
        return self.tell(ValidationReported(self.names[number], loss, epochs, {AUC: auc}))

    def exit(self, number: int) -> list[Any]:
        return self.tell(TrialExited(self.names[number]))

    def kinds(self, decisions: list[Any]) -> list[tuple[type, int]]:
        return [(type(one), self.names.index(one.request_id)) for one in decisions if not isinstance(one, Shutdown)]


@pytest.mark.parametrize("config", METHODS, ids=lambda one: one["name"] + one.get("variant", ""))
def test_every_method_that_ranks_stops_a_memoriser_at_once_with_the_evidence(config):
    search = Search(**config)
    decisions = search.report(0, 0.1, 0.71, epochs=1)
    (stop,) = [one for one in decisions if isinstance(one, StopTrial)]
    assert stop.request_id == search.names[0]
    assert f"{AUC} 0.71 is above 0.65 (threshold)" in stop.evidence
    assert not stop.finished
    assert not any(isinstance(one, StopTrial) for one in search.report(1, 0.9, 0.5, epochs=1))


def test_a_slot_that_a_memoriser_frees_goes_to_the_next_best_that_waits():
    search = Search(**METHODS[2])
    for number, loss in enumerate((0.1, 0.2, 0.3, 0.4, 0.5, 0.6)):
        search.report(number, loss, 0.5)
    running = [one.request_id for batch in search.decided for one in batch if isinstance(one, ResumeTrial)]
    assert search.names.index(running[0]) == 0
    before = [search.names.index(one) for one in running]
    assert before == [0, 1]
    decisions = search.kinds(search.report(0, 0.05, 0.8, epochs=5))
    assert (StopTrial, 0) in decisions
    assert (ResumeTrial, 2) in decisions  # the third of six, now that the first counts as infeasible


def test_without_the_new_rules_scores_of_a_stopped_trial_stay_as_journals_have_them():
    config, space, seed = Search(**METHODS[2]).args
    for rules, resumed in ((1, False), (2, True)):
        search = make_searcher(config, space, seed, stopping=STOP, rules=rules)
        names = [one.request_id for one in search.step(Started(rules)) if isinstance(one, CreateTrial)]
        told = []
        for number, loss in enumerate((0.1, 0.2, 0.3, 0.4, 0.5, 0.6)):
            made = search.step(ValidationReported(names[number], loss, 3, {AUC: 0.5}))
            names += [one.request_id for one in made if isinstance(one, CreateTrial)]
        told = search.step(ValidationReported(names[0], 0.05, 5, {AUC: 0.8}))
        assert any(isinstance(one, ResumeTrial) and one.request_id == names[2] for one in told) is resumed


# --- violations of several constraints


def test_violations_are_relative_to_their_bounds_and_raw_in_older_journals():
    config = {"constraints": {"gov/canary_auc_lcb": {"max": 0.5}, "bytes": {"max": 1e9}}}
    values = {"gov/canary_auc_lcb": 1.0, "bytes": 1.5e9}
    assert Objectives.from_config(config).judge(0.0, values).violation == pytest.approx(1.5)
    assert Objectives.from_config(config, 1).judge(0.0, values).violation == pytest.approx(0.5 + 5e8)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False), st.floats())
def test_a_scaled_violation_is_zero_inside_and_never_outside(one, other, value):
    bound = MetricBound("x", min(one, other), max(one, other))
    raw, scaled = bound.violation(value), bound.violation(value, scaled=True)
    assert (raw == 0) == (scaled == 0)
    assert scaled >= 0


# --- the winner once more


def confirmed(search: Search, winner: int) -> int:
    """Return the number of the trial that trains the winner's point."""
    (made,) = [one for one in search.decided[-1] if isinstance(one, CreateTrial)]
    first = next(one for batch in search.decided for one in batch if one.request_id == search.names[winner])
    assert made.hparams == first.hparams
    assert made.trial_seed != first.trial_seed
    return search.names.index(made.request_id)


def test_the_best_feasible_trial_is_trained_once_more_when_all_have_ended():
    search = Search(name="random", max_trials=3, confirm=True)
    assert search.search.trials_total == 4
    for number, (loss, auc) in enumerate(((0.3, 0.5), (0.1, 0.7), (0.2, 0.6))):
        search.report(number, loss, auc)
    for number in range(3):
        assert search.search.shutdown is None
        search.exit(number)
    again = confirmed(search, 2)
    assert (
        search.search.explain(search.names[again])
        == f"trains the point of the best trial, {search.names[2]}, once more"
    )
    search.report(again, 0.25, 0.55)
    search.exit(again)
    assert search.search.shutdown is not None
    note = "the best trial was trained once more: 0.25, where it had 0.2; it keeps the constraints"
    assert search.search.notes() == [note]
    assert level_of(note) == "note"  # all faces said "warning"
    journal, decided = replay(*search.args, search.journal, search.decided, stopping=STOP)
    assert journal.fingerprint() == search.search.fingerprint()
    assert decided == search.decided


def test_a_winner_that_does_not_hold_is_stopped_and_said_to_be():
    search = Search(name="random", max_trials=1, confirm=True)
    search.report(0, 0.3, 0.5)
    search.exit(0)
    again = confirmed(search, 0)
    assert "above 0.65" in search.report(again, 0.2, 0.8)[0].evidence
    search.exit(again)
    assert search.search.notes()[0].endswith("it breaks a constraint")
    assert level_of(search.search.notes()[0]) == "warning"


def test_under_halving_the_winner_is_trained_to_the_top_rung_and_is_compared_with_none():
    search = Search(**{**METHODS[2], "max_trials": 3}, confirm=True)
    for number in range(3):
        search.report(number, 0.1 * (number + 1), 0.5)
    search.report(0, 0.05, 0.5, epochs=9)
    for number in range(3):
        search.exit(number)
    again = confirmed(search, 0)
    with pytest.raises(SteeringRefused, match="once more"):
        search.search.step(PromotionRequested(search.names[again], "me"))
    assert search.report(again, 0.5, 0.5, epochs=3) == []
    (stop,) = search.report(again, 0.06, 0.5, epochs=9)
    assert isinstance(stop, StopTrial)
    assert stop.finished
    search.exit(again)
    assert search.search.shutdown == Shutdown(cancel=False, failure=False)


def test_a_search_without_a_feasible_trial_confirms_none():
    search = Search(name="random", max_trials=1, confirm=True)
    search.report(0, 0.3, 0.9)
    search.exit(0)
    assert search.search.shutdown is not None


def test_with_seeds_the_point_with_the_best_mean_is_trained_once_more():
    search = Search(name="random", max_trials=2, seeds=2, confirm=True)
    for number, loss in enumerate((0.1, 0.9, 0.3, 0.4)):
        search.report(number, loss, 0.5)
    for number in range(4):
        search.exit(number)
    confirmed(search, 2)


def test_what_has_no_winner_confirms_none():
    config = {"name": "t", "entrypoint": "python3 t.py"}
    pbt = {"name": "pbt", "metric": "loss", "confirm": True}
    assert "searcher.confirm" in [one.path for one in errors_of(check({**config, "searcher": pbt}))]
    several = {"name": "random", "max_trials": 2, "metrics": [{"name": "a"}, {"name": "b"}], "confirm": True}
    assert "searcher.confirm" in [one.path for one in errors_of(check({**config, "searcher": several}))]
    assert (
        "confirm" not in resolve({**config, "searcher": {"name": "random", "metric": "l", "max_trials": 2}})["searcher"]
    )


def test_pauses_of_the_rungs_are_as_ever():
    search = Search(**METHODS[2])
    assert (PauseTrial, 0) in search.kinds(search.report(0, 0.1, 0.5))


class Confirmed(SearchMethodContract):
    stopping: ClassVar = STOP
    seeds = range(3)


class TestRandomConfirmed(Confirmed):
    config: ClassVar[dict[str, Any]] = {
        "name": "random",
        "max_trials": 8,
        "max_concurrent_trials": 3,
        "confirm": True,
        **BOUND,
    }


class TestAshaConfirmed(Confirmed):
    config: ClassVar[dict[str, Any]] = {"name": "asha", **HALVING, "max_concurrent_trials": 4, "confirm": True, **BOUND}


class TestAshaByStoppingConfirmed(Confirmed):
    config: ClassVar[dict[str, Any]] = {**TestAshaConfirmed.config, "variant": "stopping"}


class TestAdaptiveWithSeedsConfirmed(Confirmed):
    config: ClassVar[dict[str, Any]] = {**TestAshaConfirmed.config, "name": "adaptive_asha", "seeds": 2}
