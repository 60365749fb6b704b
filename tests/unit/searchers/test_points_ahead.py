"""Points that were drawn before a search needed them are those that it would have drawn; it only takes less time."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.schemas.space import Space
from detlab_hub.core.searchers import (
    CreateTrial,
    Event,
    Searcher,
    SetPoint,
    SpaceEdited,
    Started,
    TrialCreated,
    TrialExited,
    TrialPlaced,
    ValidationReported,
    make_searcher,
)

UNIT = {"type": "double", "minval": 0.0, "maxval": 1.0}
SPACE = {"a": UNIT, "b": UNIT, "c": UNIT}
RARE, NEVER = "a + b + c < 0.4", "a + b + c < 0.1"


def searcher(name: str, require: str = RARE, **more: Any) -> Searcher:
    block = {
        "name": name, "metric": "loss", "max_trials": 12, "max_concurrent_trials": 3, "require": [require],
        "time_metric": "epochs", "max_time": 9, **more,
    }  # fmt: skip
    return make_searcher(block, SPACE, 7)


class Course:
    """Trials that begin, report and end one after the other."""

    def __init__(self, search: Searcher, *, ahead: bool) -> None:
        self.search, self.ahead = search, ahead
        self.decided: list[Any] = []
        self.drawn = 0

    def tell(self, event: Event) -> None:
        decisions = self.search.step(event)
        self.decided += decisions
        if self.ahead and (points := self.search.points_ahead()) is not None:
            points.refill(4)
        for one in decisions:
            if isinstance(one, CreateTrial):
                self.tell(TrialCreated(one.request_id))

    def run(self, change: Event | None = None) -> list[Any]:
        self.tell(Started())
        done = 0
        while self.search.shutdown is None:
            one = [one for one in self.decided if isinstance(one, CreateTrial)][done]
            if one.later:
                self.tell(TrialPlaced(one.request_id))
            self.tell(ValidationReported(one.request_id, float(done % 5), 9.0))
            self.tell(TrialExited(one.request_id))
            done += 1
            if done == 4 and change is not None:
                self.tell(change)
        return self.decided


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Space]:
    """The space of each sample, in which that was drawn."""
    found: list[Space] = []
    plain: Any = Space.sample

    def sample(self: Space, *words: Any) -> Any:
        found.append(self)
        return plain(self, *words)

    monkeypatch.setattr(Space, "sample", sample)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("require", [RARE, NEVER], ids=["rare", "hardly ever met"])
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("random", {}),
        ("async_halving", {"num_rungs": 2}),
        ("asha", {}),
        ("random", {"seeds": 2}),
        ("random", {"repeats": False}),
    ],
    ids=["random", "async_halving", "asha", "seeds", "distinct"],
)
def test_I8_decisions_are_the_same(name: str, more: dict[str, Any], require: str) -> None:
    plain, quick = (searcher(name, require, **more) for _ in range(2))
    assert Course(quick, ahead=True).run() == Course(plain, ahead=False).run()
    assert quick.fingerprint() == plain.fingerprint()
    assert quick.notes() == plain.notes()
    assert any("a known one was used again" in said for said in plain.notes()) is (require == NEVER)


def test_I8_points_of_an_earlier_space_are_not_taken() -> None:
    change = SpaceEdited({**SPACE, "c": {**UNIT, "maxval": 0.5}})
    plain, quick = searcher("random"), searcher("random")
    assert Course(quick, ahead=True).run(change) == Course(plain, ahead=False).run(change)
    assert quick.fingerprint() == plain.fingerprint()


def test_after_its_start_a_search_draws_nothing_itself(tries: list[Space]) -> None:
    search = searcher("random")
    Course(search, ahead=True).run()
    own = [space for space in tries if space is search._factory._space]
    assert len(own) == 3, "the first three, which nobody knew before"
    assert len(tries) > 12


def test_points_that_are_drawn_late_are_known_before() -> None:
    plain, quick = (searcher("tpe", startup_trials=12) for _ in range(2))
    decided = Course(quick, ahead=True).run()
    assert decided == Course(plain, ahead=False).run()
    assert sum(isinstance(one, SetPoint) for one in decided) == 12


def test_a_space_without_rare_relations_needs_none() -> None:
    search = searcher("random", "a < 0.9")
    search.step(Started())
    assert search.points_ahead() is None
