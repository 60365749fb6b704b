"""How many trials are at each rung, round or generation, as `det search show` and the pages tell it."""

from __future__ import annotations

from typing import Any

import pytest

from detlab_hub.core.searchers import (
    CheckpointCommitted,
    Started,
    Suggested,
    TrialExited,
    TrialExitedEarly,
    TrialPaused,
    TrialPlaced,
    ValidationReported,
    make_searcher,
    searcher_names,
)
from detlab_hub.core.searchers.events import CreateTrial, Suggest

SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
RUNGS = {"metric": "loss", "time_metric": "step", "max_time": 4, "divisor": 2, "num_rungs": 2}


class Told:
    """A search and its trials, in the order of their creation."""

    def __init__(self, **fields: Any) -> None:
        self.search = make_searcher({"metric": "loss", **fields}, SPACE, 7)
        self.ids: list[str] = []
        self.take(Started())

    def take(self, event: Any) -> None:
        for decision in self.search.step(event):
            if isinstance(decision, CreateTrial):
                self.ids.append(decision.request_id)
                if decision.later:
                    self.take(TrialPlaced(decision.request_id))
            elif isinstance(decision, Suggest):
                points = [{"lr": 0.1 * (at + 1)} for at in range(decision.count)]
                self.take(Suggested(decision.ticket, points))

    def report(self, number: int, loss: float, step: float) -> None:
        self.take(ValidationReported(self.ids[number], loss, step))

    def standing(self) -> list[tuple[str, dict[str, int]]]:
        """What it says, without zeros; asking changes nothing."""
        before = self.search.fingerprint()
        found = [(one.where, {k: n for k, n in one.counts.items() if n}) for one in self.search.method.standing()]
        assert self.search.fingerprint() == before
        return found


def test_stopped_and_promoted_trials_are_counted_at_their_rungs() -> None:
    told = Told(name="async_halving", max_trials=3, max_concurrent_trials=3, **RUNGS)
    told.report(0, 0.5, 2)
    told.report(1, 0.9, 2)
    assert told.standing() == [
        ("rung 1 of 2, at step 2", {"running": 1, "promoted": 1, "stopped": 1}),
        ("rung 2 of 2, at step 4", {"running": 1}),
    ]
    told.report(0, 0.4, 4)
    assert told.standing()[1] == ("rung 2 of 2, at step 4", {"finished": 1})


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
def test_failed_trials_are_neither_stopped_nor_finished(variant: str) -> None:
    told = Told(name="asha", variant=variant, max_trials=3, max_concurrent_trials=3, **RUNGS)
    told.report(0, 0.5, 2)
    told.take(TrialExitedEarly(told.ids[1], "errored"))
    told.take(TrialExitedEarly(told.ids[0], "user_canceled"))
    assert told.standing() == [
        ("rung 1 of 2, at step 2", {"running": 1, "promoted": 1, "failed or killed": 1}),
        ("rung 2 of 2, at step 4", {"failed or killed": 1}),
    ]


def test_paused_trials_are_counted_at_the_rung_where_they_wait() -> None:
    told = Told(name="asha", variant="promotion", max_trials=4, max_concurrent_trials=2, **RUNGS)
    told.report(0, 0.5, 2)
    told.report(1, 0.4, 2)
    assert told.standing() == [
        ("rung 1 of 2, at step 2", {"running": 1, "paused": 1, "promoted": 1}),
        ("rung 2 of 2, at step 4", {"running": 1}),
    ]


def test_brackets_are_told_apart() -> None:
    told = Told(name="hyperband", time_metric="step", max_time=4, divisor=2, max_trials=8)
    assert [where for where, _ in told.standing()][:2] == [
        "bracket 1, rung 1 of 3, at step 1",
        "bracket 1, rung 2 of 3, at step 2",
    ]


def test_a_population_is_counted_by_rounds() -> None:
    told = Told(
        name="pbt",
        time_metric="step",
        population_size=4,
        num_rounds=2,
        length_per_round=1,
        replace_function={"truncate_fraction": 0.25},
    )
    for number in range(4):
        told.report(number, 0.1 * number, 1)
        told.take(CheckpointCommitted(told.ids[number], f"c{number}", 1))
        if number < 3:
            told.take(TrialPaused(told.ids[number]))
    assert told.standing() == [("round 1 of 2, to step 1", {"waiting": 4})]
    told.take(TrialPaused(told.ids[3]))
    assert told.standing() == [
        ("round 1 of 2, to step 1", {"left": 1}),
        ("round 2 of 2, to step 2", {"running": 4}),
    ]


def test_generations_follow_the_size_of_the_population() -> None:
    told = Told(name="nsga2", population=4, max_trials=12, max_concurrent_trials=2)
    for number in range(5):
        told.report(number, 0.5, 1)
        told.take(TrialExited(told.ids[number]))
    assert told.standing() == [("generation 2, of 4 trials", {"running": 2, "ended": 1})]


def test_dehb_tells_its_round_and_its_rungs() -> None:
    told = Told(name="dehb", time_metric="step", max_time=4, divisor=2, max_trials=20, max_concurrent_trials=2)
    found = dict(told.standing())
    assert found["round 1 of Hyperband, of 14 trials"] == {"begun": 2}
    assert found["rung 1 of 3, at step 1"] == {"running": 2}


def test_points_are_counted_where_there_are_seeds() -> None:
    told = Told(name="async_halving", seeds=2, max_trials=2, max_concurrent_trials=4, **RUNGS)
    assert told.standing()[0] == ("rung 1 of 2, at step 2", {"running": 2})


@pytest.mark.parametrize("name", ["single", "random", "tpe"])
def test_methods_without_rungs_have_nothing_to_count(name: str) -> None:
    fields = {} if name == "single" else {"max_trials": 3}
    assert name in searcher_names()
    assert Told(name=name, **fields).standing() == []
