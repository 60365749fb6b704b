"""The seam of search methods: registry, suggestions, parents, stopping policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from detlab.schemas.expconf import SearcherBlock
from detlab_hub.core.searchers import (
    CheckpointCommitted,
    CreateTrial,
    Objectives,
    ReplayMismatch,
    SearcherConfigError,
    SearchMethod,
    Started,
    StopTrial,
    Suggest,
    Suggested,
    TrialExited,
    ValidationReported,
    make_searcher,
    method_class,
    replay,
    searcher_names,
)
from detlab_hub.core.searchers.searcher import Searcher
from detlab_hub.core.searchers.sweep import RandomSearch
from detlab_hub.core.stopping import Report, StopPolicy
from detlab_hub.testing.searchers import drive

HALVING = {"metric": "loss", "time_metric": "step", "max_time": 9, "divisor": 3, "max_trials": 12}


def test_unknown_method_names_those_that_are_installed() -> None:
    with pytest.raises(SearcherConfigError, match=r"no search method 'bayes' here; installed: adaptive_asha, .*single"):
        method_class("bayes")
    assert "random" in searcher_names()


# --- suggestions: the driver, with a method that asks


class Asking(SearchMethod):
    """Asks for each point; knows what it has created."""

    name: ClassVar[str] = "asking"
    Config: ClassVar[type[SearcherBlock]] = SearcherBlock
    suggests: ClassVar[bool] = True
    wants_checkpoints: ClassVar[bool] = True

    def __init__(self, trials: int) -> None:
        self.left = trials
        self.tickets = 0
        self.parents: dict[str, str] = {}

    @classmethod
    def from_config(cls, fields, space):
        return cls(fields.count("max_trials"))

    @property
    def budget(self) -> int:
        return 4

    def _ask(self) -> list[Any]:
        if self.left == 0:
            return []
        self.left -= 1
        self.tickets += 1
        return [Suggest(self.tickets - 1, 1)]

    def start(self, factory):
        return self._ask()

    def known(self, ticket):
        return {"ticket": ticket}

    @classmethod
    def suggest(cls, question):
        return [{"x": question.known["ticket"] / 10}]

    def suggested(self, factory, ticket, points):
        parent = next(iter(self.parents.values()), None)
        return [factory.at(point, parent) for point in points]

    def checkpointed(self, factory, request_id, uuid, steps_completed):
        self.parents[request_id] = uuid
        return []

    def exited(self, factory, request_id):
        return self._ask()

    def progress(self, shares, closed):
        return len(closed) / 4

    def state(self):
        return {"left": self.left, "tickets": self.tickets, "parents": self.parents}


SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}


def asking(seed: int = 1) -> Searcher:
    return Searcher(Asking(4), SPACE, seed)


def test_a_question_waits_in_the_search_until_it_is_answered() -> None:
    search = asking()
    assert search.step(Started()) == [Suggest(0, 1)]
    [question] = search.questions()
    assert (question.ticket, question.count, question.known) == (0, 1, {"ticket": 0})
    again = asking()
    again.step(Started())
    assert again.questions() == [question]
    [made] = search.step(Suggested(0, ({"x": 0.3},)))
    assert isinstance(made, CreateTrial)
    assert made.hparams == {"x": 0.3}
    assert search.questions() == []
    assert search.step(Suggested(0, ({"x": 0.9},))) == []  # answered by two masters


def test_an_answer_that_fails_is_drawn_at_random_and_the_same_at_replay() -> None:
    one, two = asking(), asking()
    for search in (one, two):
        search.step(Started())
    [made] = one.step(Suggested(0, (), "it took too long"))
    assert isinstance(made, CreateTrial)
    assert 0.0 <= made.hparams["x"] <= 1.0
    assert two.step(Suggested(0, (), "it took too long")) == [made]


def test_a_search_does_not_end_while_a_question_is_open() -> None:
    search = asking()
    search.step(Started())
    [made] = search.step(Suggested(0, ({"x": 0.1},)))
    assert isinstance(made, CreateTrial)
    assert search.step(TrialExited(made.request_id)) == [Suggest(1, 1)]
    assert search.shutdown is None


def test_a_trial_may_start_from_a_checkpoint_of_another() -> None:
    search = asking()
    search.step(Started())
    [first] = search.step(Suggested(0, ({"x": 0.1},)))
    assert isinstance(first, CreateTrial)
    assert first.parent is None
    assert search.step(CheckpointCommitted(first.request_id, "c1", 5)) == []
    search.step(TrialExited(first.request_id))
    [second] = search.step(Suggested(1, ({"x": 0.2},)))
    assert isinstance(second, CreateTrial)
    assert second.parent == "c1"


def test_checkpoints_are_not_journaled_for_methods_that_do_not_want_them() -> None:
    search = make_searcher({"name": "random", "max_trials": 2}, SPACE, 0)
    [first, _] = search.step(Started())
    assert isinstance(first, CreateTrial)
    revision = search.revision
    assert search.step(CheckpointCommitted(first.request_id, "c1", 5)) == []
    assert search.revision == revision


def test_a_question_out_of_turn_is_a_bug_and_raises() -> None:
    class Jumping(Asking):
        def _ask(self):
            return [Suggest(7, 1)]

    with pytest.raises(ValueError, match="not the next question"):
        Searcher(Jumping(4), SPACE, 0).step(Started())


# --- stopping policies, beside any method


class Below(StopPolicy):
    """Stops a trial whose loss is above a bound."""

    name: ClassVar[str] = "below"

    def __init__(self, bound: float) -> None:
        self.bound, self.seen = bound, 0

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Below:
        return cls(entry["bound"])

    def reported(self, report: Report) -> str | None:
        self.seen += 1
        return f"loss {report.metric:g}, needed {self.bound:g}" if report.loss > self.bound else None

    def state(self) -> int:
        return self.seen


def test_a_policy_stops_a_trial_once_with_its_evidence() -> None:
    search = Searcher(RandomSearch(2, 1), SPACE, 0, [Below(0.5)])
    [first] = search.step(Started())
    assert isinstance(first, CreateTrial)
    assert search.step(ValidationReported(first.request_id, 0.4)) == []
    stop = search.step(ValidationReported(first.request_id, 0.9))
    assert stop == [StopTrial(first.request_id, evidence="loss 0.9, needed 0.5 (below)")]
    assert search.step(ValidationReported(first.request_id, 0.95)) == []  # it is leaving
    [second] = search.step(TrialExited(first.request_id))
    assert isinstance(second, CreateTrial)


def test_policies_see_larger_metrics_as_smaller_losses() -> None:
    search = Searcher(RandomSearch(1, 1), SPACE, 0, [Below(-0.5)], objectives=Objectives(-1.0))
    [first] = search.step(Started())
    assert isinstance(first, CreateTrial)
    assert search.step(ValidationReported(first.request_id, 0.9)) == []
    assert search.step(ValidationReported(first.request_id, 0.1)) == [
        StopTrial(first.request_id, evidence="loss 0.1, needed -0.5 (below)")
    ]


def test_reports_are_journaled_where_a_policy_remembers_them() -> None:
    plain, watched = Searcher(RandomSearch(1, 1), SPACE, 0), Searcher(RandomSearch(1, 1), SPACE, 0, [Below(9.0)])
    for search, journaled in ((plain, False), (watched, True)):
        [first] = search.step(Started())
        assert isinstance(first, CreateTrial)
        before = search.revision
        search.step(ValidationReported(first.request_id, 0.4))
        assert (search.revision != before) is journaled


def test_a_policy_frees_the_place_that_its_trial_had_in_a_bracket() -> None:
    method = method_class("async_halving")
    config = {"name": "async_halving", **HALVING, "num_rungs": 2, "max_concurrent_trials": 1}
    search = Searcher(make_searcher(config, SPACE, 0).method, SPACE, 0, [Below(0.5)])
    assert isinstance(search.method, method)
    [first] = search.step(Started())
    assert isinstance(first, CreateTrial)
    stop, made = search.step(ValidationReported(first.request_id, 0.9, 1.0))
    assert stop == StopTrial(first.request_id, evidence="loss 0.9, needed 0.5 (below)")
    assert isinstance(made, CreateTrial)


# --- replay


def test_i8_replay_that_decides_otherwise_is_an_error_with_both_decisions() -> None:
    config = {"name": "random", "max_trials": 3, "max_concurrent_trials": 1}
    live = drive(config, SPACE, 5)
    wrong = [list(decisions) for decisions in live.decided]
    place = next(i for i, decisions in enumerate(wrong) if i and decisions)
    wrong[place] = []
    with pytest.raises(
        ReplayMismatch, match=rf"event {place + 1} of its journal, TrialExited.*decided then nothing, now"
    ):
        replay(config, SPACE, 5, live.journal, wrong)
