"""I8: the same seed and results give the same decisions after any crash; and what else always holds."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab_hub.core.searchers import (
    CreateTrial,
    PauseSearch,
    PauseTrial,
    ProgressReported,
    ReplayMismatch,
    SearcherInputError,
    Shutdown,
    Started,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    decision_from_json,
    decision_to_json,
    event_from_json,
    event_to_json,
    make_searcher,
    replay,
)

JOURNALS = Path(__file__).parent / "journals"
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine is no failure."""

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1, "count": 3},
    "net": {"width": {"type": "int", "minval": 1, "maxval": 9, "count": 4}, "act": "relu"},
    "opt": {"type": "categorical", "vals": ["sgd", "adam"]},
}
REASONS = ["errored", "user_canceled", "invalid_hp", "init_invalid_hp"]

concurrency = st.integers(0, 6)
halvings = st.fixed_dictionaries(
    {
        "name": st.just("async_halving"),
        "num_rungs": st.integers(1, 4),
        "max_trials": st.integers(1, 12),
        "divisor": st.sampled_from([1.5, 2, 3, 4]),
        "max_concurrent_trials": concurrency,
        "time_metric": st.just("batches"),
        "max_time": st.integers(1, 64),
        "smaller_is_better": st.booleans(),
    }
)
adaptives = st.fixed_dictionaries(
    {
        "name": st.just("adaptive_asha"),
        "max_trials": st.integers(1, 12),
        "divisor": st.sampled_from([2, 3, 4]),
        "max_concurrent_trials": concurrency,
        "mode": st.sampled_from(["aggressive", "standard", "conservative"]),
        "max_rungs": st.integers(1, 4),
        "bracket_rungs": st.lists(st.integers(1, 3), max_size=3),
        "time_metric": st.just("batches"),
        "max_time": st.integers(1, 64),
        "smaller_is_better": st.booleans(),
    }
)
sweeps = st.one_of(
    st.just({"name": "single"}),
    st.fixed_dictionaries(
        {"name": st.just("random"), "max_trials": st.integers(1, 12), "max_concurrent_trials": concurrency}
    ),
    st.fixed_dictionaries({"name": st.just("grid"), "max_concurrent_trials": concurrency}),
)
configs = st.one_of(sweeps, halvings, adaptives)
metrics = st.one_of(st.floats(), st.sampled_from([0.1, 0.1, 0.5, math.nan, math.inf, -math.inf]))


class History:
    """One run of a search under events drawn at random, as the world sees it."""

    def __init__(self, config, seed):
        self.config, self.seed = config, seed
        self.search = make_searcher(config, SPACE, seed)
        self.journal, self.answers, self.revisions = [], [], []
        self.open: list[str] = []
        self.active: set[str] = set()
        self.created = self.invalid = self.shutdowns = 0
        self.exited_early: set[str] = set()
        self.most_active = 0

    def take(self, event):
        revision = self.search.revision
        decisions = self.search.step(event)
        self.journal.append(event)
        self.answers.append(decisions)
        self.revisions.append(self.search.revision != revision)
        if isinstance(event, TrialExited):
            self.active.discard(event.request_id)
            if event.request_id in self.open:
                self.open.remove(event.request_id)
        if isinstance(event, TrialExitedEarly) and event.request_id not in self.exited_early:
            self.exited_early.add(event.request_id)
            self.active.discard(event.request_id)
            self.invalid += event.reason in ("invalid_hp", "init_invalid_hp")
        for decision in decisions:
            if isinstance(decision, StopTrial):
                assert decision.request_id in self.open
                self.active.discard(decision.request_id)
            elif isinstance(decision, CreateTrial):
                assert decision.index == self.created
                self.created += 1
                self.open.append(decision.request_id)
                self.active.add(decision.request_id)
            elif not isinstance(decision, PauseSearch):
                self.shutdowns += 1
        self.most_active = max(self.most_active, len(self.active))
        assert 0.0 <= self.search.progress() <= 1.0

    def finish(self):
        while self.open:
            self.take(TrialExited(self.open[0]))


def limits(config, search):
    """(trials at most, invalid ones not counted; trials at a time at most)."""
    total = search.trials_total
    at_a_time = config.get("max_concurrent_trials", 1)
    if config["name"] in ("async_halving", "adaptive_asha"):
        if at_a_time == 0:
            return total, total
        return total, at_a_time
    return total, at_a_time or total


@st.composite
def histories(draw):
    history = History(draw(configs), draw(st.integers(0, 2**32 - 1)))
    history.take(Started())
    known = list(history.open)
    for _ in range(draw(st.integers(0, 40))):
        if not history.open:
            break
        known += [request_id for request_id in history.open if request_id not in known]
        kind = draw(st.sampled_from(["report", "report", "report", "exit", "early", "created", "progress", "old"]))
        request_id = draw(st.sampled_from(known if kind == "old" else history.open))
        match kind:
            case "report" | "old":
                event = ValidationReported(request_id, draw(metrics), float(draw(st.integers(0, 80))))
            case "exit":
                event = TrialExited(request_id)
            case "early":
                event = TrialExitedEarly(request_id, draw(st.sampled_from(REASONS)))
            case "created":
                event = TrialCreated(request_id)
            case _:
                event = ProgressReported(request_id, draw(st.floats()))
        history.take(event)
    return history


@pytest.mark.slow
@calm
@given(histories())
def test_searchers_i8_replay_gives_the_same_decisions(history):
    search, answers = replay(history.config, SPACE, history.seed, history.journal)
    assert answers == history.answers
    assert search.fingerprint() == history.search.fingerprint()


@calm
@given(histories(), st.data())
def test_searchers_i8_a_crash_at_any_point_does_not_change_the_rest(history, data):
    cut = data.draw(st.integers(0, len(history.journal)))
    through_json = [event_from_json(json.loads(json.dumps(event_to_json(e), allow_nan=False))) for e in history.journal]
    search, _ = replay(history.config, SPACE, history.seed, through_json[:cut])
    assert [search.step(event) for event in history.journal[cut:]] == history.answers[cut:]
    assert search.fingerprint() == history.search.fingerprint()


@pytest.mark.slow
@calm
@given(histories())
def test_searchers_i8_events_that_leave_the_revision_alone_need_no_journal(history):
    kept = [event for event, changed in zip(history.journal, history.revisions, strict=True) if changed]
    wanted = [answer for answer in history.answers if answer]
    search, answers = replay(history.config, SPACE, history.seed, kept)
    assert [answer for answer in answers if answer] == wanted
    search._shares = dict(history.search._shares)  # reported progress is no part of the promise
    assert search.fingerprint() == history.search.fingerprint()


@pytest.mark.slow
@calm
@given(histories())
def test_searchers_budget_and_concurrency_hold_under_any_interleaving(history):
    history.finish()
    total, at_a_time = limits(history.config, history.search)
    replaced = 0 if history.config["name"] in ("single", "grid") else history.invalid
    assert history.created - replaced <= total
    assert history.most_active <= at_a_time


@pytest.mark.slow
@calm
@given(histories())
def test_searchers_shutdown_comes_exactly_once_when_all_trials_are_closed(history):
    history.finish()
    assert history.shutdowns == 1
    last = history.answers[-1][-1]
    assert isinstance(last, Shutdown)
    assert history.search.shutdown == last
    assert history.search.progress() == 1.0
    closed = history.search.trials_closed
    assert closed == history.search.trials_requested == history.created
    errored = {e.request_id for e, first in _first_early(history.journal) if first and e.reason == "errored"}
    assert last.failure == (len(errored) == closed)


def _first_early(journal):
    seen, closed = set(), set()
    for event in journal:
        if isinstance(event, TrialExited):
            closed.add(event.request_id)
        if isinstance(event, TrialExitedEarly):
            yield event, event.request_id not in seen and event.request_id not in closed
            seen.add(event.request_id)


@pytest.mark.slow
@calm
@given(histories())
def test_searchers_decisions_survive_json(history):
    for answer in history.answers:
        for decision in answer:
            text = json.dumps(decision_to_json(decision), allow_nan=False)
            assert decision_from_json(json.loads(text)) == decision


def test_searchers_non_finite_metrics_travel_as_strict_json():
    for value in (math.inf, -math.inf):
        event = ValidationReported("r", value, 3.0)
        assert event_from_json(json.loads(json.dumps(event_to_json(event), allow_nan=False))) == event
    back = event_from_json(event_to_json(ValidationReported("r", math.nan)))
    assert math.isnan(back.metric)
    assert back.time is None


@pytest.mark.parametrize(
    "data", [{"type": "nonsense"}, {}, {"type": "trial_exited_early", "request_id": "r", "reason": "bored"}]
)
def test_searchers_unreadable_journal_is_an_input_error(data):
    with pytest.raises(SearcherInputError, match="search journal"):
        event_from_json(data)
    with pytest.raises(SearcherInputError, match="search journal"):
        decision_from_json(data)


def recorded(name):
    """Load a journal that the state of detlab at commit `recorded_by` wrote, and what was searched."""
    told = json.loads((JOURNALS / f"{name}.json").read_text(encoding="utf-8"))
    events = [event_from_json(one["event"]) for one in told["journal"]]
    decisions = [[decision_from_json(decision) for decision in one["decisions"]] for one in told["journal"]]
    return (told["searcher"], told["hyperparameters"], told["seed"], events, decisions)


@pytest.mark.parametrize("name", ["async_halving", "asha", "bohb"])
def test_journals_of_earlier_states_are_replayed_to_the_same_decisions(name):
    searcher, space, seed, events, decisions = recorded(name)
    search, decided = replay(searcher, space, seed, events, decisions)
    assert decided == decisions
    assert search.shutdown == Shutdown(cancel=False, failure=False)
    kinds = {type(decision) for one in decisions for decision in one}
    assert kinds >= {CreateTrial, StopTrial if name == "async_halving" else PauseTrial}


def test_a_bohb_search_from_before_max_brackets_keeps_all_of_them():
    searcher, space, seed, events, decisions = recorded("bohb")
    assert "max_brackets" not in searcher
    with pytest.raises(ReplayMismatch):
        replay({**searcher, "max_brackets": 2}, space, seed, events, decisions)
