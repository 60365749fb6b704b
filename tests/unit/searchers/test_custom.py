"""`custom`: the class's answers become decisions; what is impossible is refused as a whole."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from detlab_hub.core.searchers import (
    Answered,
    BudgetSpent,
    CreateTrial,
    ExitReason,
    Extended,
    OperationsRefused,
    PauseSearch,
    PauseTrial,
    PointsAdded,
    ResumeTrial,
    Searcher,
    SearcherConfigError,
    SearcherInputError,
    Shutdown,
    SpaceEdited,
    Started,
    SteeringRefused,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    event_from_json,
    event_to_json,
    make_searcher,
)
from detlab_hub.testing.searchers import SearchMethodContract

CONFIG: dict[str, Any] = {
    "name": "custom",
    "metric": "loss",
    "entrypoint": "my_search:Mine",
    "max_trials": 12,
    "max_concurrent_trials": 3,
}
SPACE: dict[str, Any] = {"x": {"type": "double", "minval": 0, "maxval": 1}, "kind": {"deep": 3}}


def point(feed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    draw = random.Random(len(feed))
    return {
        "lr": 10 ** draw.uniform(-4, -3),
        "net": {"width": draw.randint(1, 9)},
        "opt": draw.choice(["sgd", "adam"]),
    }


def by_reports(feed: Sequence[Mapping[str, Any]], search: Searcher) -> list[dict[str, Any]]:
    """Make 12 trials, and close each after its third report."""
    made = sum(len([1 for op in one["operations"] or () if op["type"] == "create"]) for one in feed)
    closed = {op["request_id"] for one in feed for op in one["operations"] or () if op["type"] == "close"}
    ended = {one["request_id"] for one in feed if one["type"] == "trial_closed"}
    event = feed[-1]
    match event["type"]:
        case "initial_operations":
            return [{"type": "create", "request_id": f"t{n}", "hparams": point([*feed, *range(n)])} for n in range(4)]  # type: ignore[list-item]
        case "trial_closed":
            return [{"type": "create", "request_id": f"t{made}", "hparams": point(feed)}] if made < 12 else []
        case "validation_completed":
            told = sum(one.get("request_id") == event["request_id"] and "metric" in one for one in feed)
            if told >= 3 and event["request_id"] not in closed | ended:
                return [{"type": "close", "request_id": event["request_id"]}]
    return []


def by_length(feed: Sequence[Mapping[str, Any]], search: Searcher) -> list[dict[str, Any]]:
    """Successive halving by hand: 6 trials train 2 units, wait, and the better ones train to 6."""
    event = feed[-1]
    if event["type"] == "initial_operations":
        made: list[dict[str, Any]] = []
        for n in range(6):
            made.append({"type": "create", "request_id": f"t{n}", "hparams": point([*feed, *range(n)])})  # type: ignore[list-item]
            made.append({"type": "validate_after", "request_id": f"t{n}", "length": 2})
        return made
    ended = {one["request_id"] for one in feed if one["type"] == "trial_closed"}
    reported = {one["request_id"] for one in feed if one["type"] == "validation_completed" and one["train_length"] < 6}
    if any(one["operations"] and one["operations"][-1]["type"] == "close" for one in feed[1:]):
        return []
    if len(reported | ended) == 6:
        best = sorted(reported - ended)
        kept = [
            op
            for key in best[:2]
            for op in (
                {"type": "validate_after", "request_id": key, "length": 6},
                {"type": "close", "request_id": key},
            )
        ]
        return kept + [{"type": "close", "request_id": key} for key in best[2:]]
    return []


@pytest.mark.slow
class TestCustomByReports(SearchMethodContract):
    """A scripted class that closes trials after three reports."""

    config: ClassVar[dict[str, Any]] = CONFIG
    answers = by_reports


class TestCustomByLength(SearchMethodContract):
    """A scripted class that asks for lengths, so that trials pause and are resumed."""

    config: ClassVar[dict[str, Any]] = {**CONFIG, "time_metric": "epochs"}
    answers = by_length


@pytest.mark.slow
class TestCustomWithSeeds(SearchMethodContract):
    """Each point of the class is trained twice."""

    config: ClassVar[dict[str, Any]] = {**CONFIG, "seeds": 2}
    answers = by_reports


class Live:
    """A search that the test answers by hand."""

    def __init__(self, **more: Any) -> None:
        self.search = make_searcher({**CONFIG, **more}, SPACE, 7)
        self.search.step(Started())

    def answer(self, *operations: dict[str, Any]) -> list[Any]:
        number = self.search.waits_for
        assert number is not None, "no event waits for an answer"
        event = Answered(number, operations)
        assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event
        return self.search.step(event)

    def refused(self, *operations: dict[str, Any]) -> list[str]:
        before, revision = self.search.fingerprint(), self.search.revision
        with pytest.raises(OperationsRefused) as caught:
            self.answer(*operations)
        assert (self.search.fingerprint(), self.search.revision) == (before, revision)
        return caught.value.mistakes

    def settle(self) -> None:
        """Answer what waits with nothing."""
        while self.search.waits_for is not None:
            self.answer()

    @property
    def waiting(self) -> dict[str, Any]:
        number = self.search.waits_for
        assert number is not None
        return self.search.method.feed(number - 1, 1)[0]


def create(key: str, **hparams: Any) -> dict[str, Any]:
    return {"type": "create", "request_id": key, "hparams": {"x": 0.5, **hparams}}


def after(key: str, length: float) -> dict[str, Any]:
    return {"type": "validate_after", "request_id": key, "length": length}


def close(key: str) -> dict[str, Any]:
    return {"type": "close", "request_id": key}


def test_answers_become_decisions_in_order() -> None:
    live = Live(time_metric="epochs")
    [made] = live.answer(create("a"), after("a", 4))
    assert isinstance(made, CreateTrial)
    assert made.hparams == {"x": 0.5, "kind": {"deep": 3}}
    live.search.step(TrialCreated(made.request_id))
    assert live.waiting == {
        "number": 2,
        "type": "trial_created",
        "request_id": "a",
        "trial": made.request_id,
        "hparams": made.hparams,
        "operations": None,
    }
    live.answer()
    assert live.search.step(ValidationReported(made.request_id, 0.9, 3.0)) == []
    assert live.search.waits_for is None  # its length is not reached
    live.search.step(ValidationReported(made.request_id, 0.8, 4.0))
    assert (live.waiting["type"], live.waiting["metric"], live.waiting["train_length"]) == (
        "validation_completed",
        0.8,
        4.0,
    )
    assert live.answer(create("b"), after("b", 1))[0] == PauseTrial(made.request_id)
    live.answer(after("a", 8), close("a"))
    live.settle()


@pytest.mark.parametrize("length", [0, -1, math.inf, 10**400, "4", None])
def test_length_that_no_trial_can_train_is_refused(length: Any) -> None:
    live = Live(time_metric="epochs")
    with pytest.raises(OperationsRefused, match="length is "):
        live.answer(create("a"), after("a", length))
    assert live.answer(create("a"), after("a", 4))


def test_trial_that_waits_is_resumed_and_closed_after_its_last_length() -> None:
    live = Live(time_metric="epochs")
    one, _two = live.answer(create("a"), after("a", 1), create("b"), after("b", 5))
    live.settle()
    live.search.step(ValidationReported(one.request_id, 0.8, 1.0))
    assert live.answer() == [PauseTrial(one.request_id)]
    assert "waits for its next operation" in live.search.method.explain(one.request_id)
    live.search.step(ValidationReported(_two.request_id, 0.8, 5.0))
    assert live.answer(after("a", 2), close("a"), close("b")) == [
        StopTrial(_two.request_id),
        ResumeTrial(one.request_id),
    ]
    assert live.search.method.explain(_two.request_id) == "closed by the class"
    assert live.search.step(ValidationReported(one.request_id, 0.7, 2.0)) == [StopTrial(one.request_id, True)]
    live.settle()
    live.search.step(TrialExited(one.request_id))
    live.search.step(TrialExited(_two.request_id))
    live.answer()
    assert live.answer() == [Shutdown(cancel=False, failure=False)]


def test_every_mistake_of_an_answer_is_named_and_nothing_is_carried_out() -> None:
    live = Live(max_trials=2)
    said = live.refused(
        create("a", x=3),
        create("b", y=1),
        {"type": "create", "request_id": "c", "hparams": {}},
        create("c"),
        {"type": "create", "request_id": "", "hparams": {"x": 0.1}},
        {"type": "create", "request_id": "d", "hparams": [1]},
        after("nobody", 3),
        after("b", -1),
        close("d"),
        {"type": "progress", "progress": 3},
        {"type": "dance"},
        {"type": "shutdown"},
        create("e"),
    )
    text = "\n".join(said)
    for part in (
        "operation 1 (create): hyperparameters of trial a: x",
        "y: is no hyperparameter of this space",
        "hyperparameters of trial c: x: is missing",
        "operation 4 (create): trial c exists already",
        "operation 5 (create): has no request_id",
        "operation 6 (create): hyperparameters of trial d: is not a mapping",
        "operation 7 (validate_after): there is no trial nobody",
        "operation 8 (validate_after): length is -1",
        "operation 9 (close): trial d would end before it starts",
        "operation 10 (progress): progress is 3",
        "operation 11 (dance): is not an operation",
        "operation 13 (create): comes after a shutdown",
        "4 trials are created, but only 2 are left of searcher.max_trials (2)",
    ):
        assert part in text
    assert len(live.answer(create("a"))) == 1


def test_search_without_trials_and_one_where_all_wait_are_refused() -> None:
    live = Live()
    assert live.refused() == ["no trial is created: the search would end without one; return a Shutdown to end it"]
    [made] = live.answer(create("a"), after("a", 1))
    live.settle()
    live.search.step(ValidationReported(made.request_id, 0.5))
    [said] = live.refused()
    assert said == "no trial would train again: 1 wait for a validate_after or a close (a)"
    assert live.answer(close("a")) == [StopTrial(made.request_id)]


def test_trial_that_has_ended_is_refused_once_the_class_knows() -> None:
    live = Live()
    one, _ = live.answer(create("a"), create("b"))
    live.answer()
    live.search.step(TrialExited(one.request_id))
    live.answer(close("a"))  # it answers the creation of b: it cannot know
    assert live.waiting["type"] == "trial_closed"
    assert live.refused(after("a", 3)) == ["operation 1 (validate_after): trial a has ended"]
    live.answer()


@pytest.mark.parametrize("reason", ["errored", "user_canceled", "invalid_hp"])
def test_class_is_told_why_a_trial_ended_early(reason: ExitReason) -> None:
    live = Live()
    [made] = live.answer(create("a"))
    live.settle()
    live.search.step(TrialExitedEarly(made.request_id, reason))
    assert (live.waiting["type"], live.waiting["reason"]) == ("trial_exited_early", reason)
    live.answer()
    live.search.step(TrialExited(made.request_id))
    [over] = live.answer()
    assert isinstance(over, Shutdown)


def test_failure_pauses_the_search_and_the_same_event_is_asked_again() -> None:
    live = Live()
    assert live.search.step(Answered(1, (), "my_search.py, line 3: boom")) == [
        PauseSearch("my_search.py, line 3: boom")
    ]
    assert live.search.waits_for == 1
    assert len(live.answer(create("a"))) == 1


def test_answer_that_comes_twice_is_not_carried_out_again() -> None:
    live = Live()
    live.answer(create("a"))
    before = live.search.fingerprint()
    assert live.search.step(Answered(1, (create("z"),))) == []
    assert live.search.step(Answered(9, (create("z"),))) == []
    assert live.search.fingerprint() == before


def test_shutdown_stops_what_runs_and_says_how_the_search_ended() -> None:
    live = Live()
    one, two = live.answer(create("a"), create("b"))
    assert live.answer({"type": "shutdown", "failure": True}) == [
        StopTrial(one.request_id, True),
        StopTrial(two.request_id, True),
    ]
    assert live.search.waits_for is None
    live.search.step(TrialExited(one.request_id))
    assert live.search.step(TrialExited(two.request_id)) == [Shutdown(cancel=False, failure=True)]
    none = Live()
    assert none.answer({"type": "shutdown"}) == [Shutdown(cancel=False, failure=False)]


def test_further_trials_wait_for_a_place() -> None:
    live = Live()
    made = live.answer(*(create(f"t{n}") for n in range(5)))
    assert len(made) == 3
    live.settle()
    [more] = live.search.step(TrialExited(made[0].request_id))
    assert isinstance(more, CreateTrial)


def test_users_extend_the_budget_but_add_no_points() -> None:
    live = Live(max_trials=1)
    live.answer(create("a"))
    live.search.step(Extended(2, 0, "ada"))
    assert len(live.answer(create("b"), create("c"))) == 2
    with pytest.raises(SteeringRefused, match="from its class only"):
        live.search.step(PointsAdded(({"x": 0.1},), "ada"))
    with pytest.raises(SteeringRefused, match="no rungs"):
        live.search.step(Extended(0, 2, "ada"))


def test_class_is_told_of_a_new_space() -> None:
    live = Live()
    live.answer(create("a"))
    live.answer()
    space = {**SPACE, "x": {"type": "double", "minval": 0, "maxval": 0.2}}
    live.search.step(SpaceEdited(space, "ada"))
    assert (live.waiting["type"], live.waiting["hyperparameters"]) == ("space_edited", space)
    assert "x" in live.refused(create("b"))[0]
    assert len(live.answer(create("b", x=0.1))) == 1


def test_nothing_is_asked_once_a_budget_is_spent() -> None:
    live = Live()
    live.answer(create("a"))
    live.search.step(BudgetSpent("slot-hours"))
    assert live.search.waits_for is None


def test_metric_is_told_as_it_was_reported() -> None:
    live = Live(smaller_is_better=False)
    [made] = live.answer(create("a"))
    live.answer()
    live.search.step(ValidationReported(made.request_id, 0.75))
    assert live.waiting["metric"] == 0.75
    live.answer()
    live.search.step(ValidationReported(made.request_id, math.nan))
    assert isinstance(live.waiting["metric"], str)


def test_report_without_the_time_metric_is_an_error_of_its_trial() -> None:
    live = Live(time_metric="epochs")
    [made] = live.answer(create("a"))
    with pytest.raises(SearcherInputError, match="time_metric 'epochs'"):
        live.search.step(ValidationReported(made.request_id, 0.5))


def test_starting_points_are_refused() -> None:
    with pytest.raises(SearcherConfigError, match="starting_points"):
        make_searcher({**CONFIG, "starting_points": [{"x": 0.5}]}, SPACE, 1)
