"""The searchers against models that are obviously right (`searchers_naive`): decisions and books after every event."""

import json
import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from searchers_naive import has_diverged, make_naive

from detlab_hub.core.searchers import (
    CreateTrial,
    ProgressReported,
    SearcherInputError,
    Shutdown,
    Started,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    event_from_json,
    event_to_json,
    replay,
)
from detlab_hub.core.searchers.scores import is_lost

SPACE = {
    "act": {"type": "categorical", "vals": ["relu", "tanh"]},
    "depth": {"type": "int", "minval": 1, "maxval": 3, "count": 3},
    "lr": 0.1,
}
AXES = [("act", ["relu", "tanh"]), ("depth", [1, 2, 3]), ("lr", [0.1])]
SEED = 11

halving_fields = {
    "max_trials": st.integers(1, 12),
    "divisor": st.sampled_from([1.5, 2, 3, 4]),
    "max_concurrent_trials": st.integers(0, 6),
    "time_metric": st.just("batches"),
    "max_time": st.integers(1, 40),
    "smaller_is_better": st.booleans(),
}
halvings = st.fixed_dictionaries({"name": st.just("async_halving"), "num_rungs": st.integers(1, 4), **halving_fields})
adaptives = st.fixed_dictionaries(
    {
        "name": st.just("adaptive_asha"),
        "mode": st.sampled_from(["aggressive", "standard", "conservative"]),
        "max_rungs": st.integers(1, 4),
        "bracket_rungs": st.lists(st.integers(1, 3), max_size=3),
        **halving_fields,
    }
)
sweeps = st.one_of(
    st.just({"name": "single"}),
    st.fixed_dictionaries(
        {"name": st.just("random"), "max_trials": st.integers(1, 9), "max_concurrent_trials": st.integers(0, 4)}
    ),
    st.fixed_dictionaries({"name": st.just("grid"), "max_concurrent_trials": st.integers(0, 4)}),
)

# Few values, so that many are equal.
metrics = st.sampled_from(
    [0.0, 0.25, 0.5, 0.75, 1.0, -0.0, -1.0, math.inf, -math.inf, math.nan, 1.7976931348623157e308]
)
times = st.one_of(
    st.integers(0, 48).map(float),  # out of order, as reports of an earlier run are
    st.sampled_from([None, math.nan, math.inf, -3.0, 1.999]),
)
trial_numbers = st.integers(0, 30)
occurrences = st.one_of(
    st.tuples(st.just("report"), trial_numbers, metrics, times),
    st.tuples(st.just("report"), trial_numbers, metrics, st.integers(1, 48).map(float)),
    st.tuples(st.just("early"), trial_numbers, st.sampled_from(["errored", "user_canceled", "invalid_hp"])),
    st.tuples(st.just("early"), trial_numbers, st.just("init_invalid_hp")),
    st.tuples(st.just("exit"), trial_numbers),
    st.tuples(st.just("progress"), trial_numbers),
    st.tuples(st.just("restart")),
)
courses = st.lists(occurrences, max_size=70)
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)


STEERING = {"max_trials", "max_concurrent", "running", "added", "added_left", "beyond", "passes"}
"""What methods remember for users who steer them: the models are not steered."""


def unsteered(state):
    """A method's state without what only matters once it is steered, brackets included."""
    kept = {name: value for name, value in state.items() if name not in STEERING}
    if "brackets" in kept:
        kept["brackets"] = [unsteered(bracket) for bracket in kept["brackets"]]
    return kept


class Pair:
    """The search and its model, given the same events; each step compares all that they say of themselves."""

    def __init__(self, config):
        self.config = config
        self.model = make_naive(config, AXES)
        self.journal = []
        self.ids = []
        self.hparams = []
        self.search, _ = replay(config, SPACE, SEED, [])
        if config["name"] == "adaptive_asha":  # fewer places than brackets: test_rung_limits.py
            assume(not 0 < config["max_concurrent_trials"] < len(self.search.method.brackets))
        self.compare(Started(), self.model.start())

    def step(self, event):
        said = []
        try:
            decisions = self.search.step(event)
        except SearcherInputError:
            return ["refused"]
        self.journal.append(event)
        for decision in decisions:
            match decision:
                case CreateTrial(request_id=request_id, index=index, hparams=hparams):
                    assert index == len(self.ids)
                    self.ids.append(request_id)
                    self.hparams.append(hparams)
                    said.append(("create", index))
                case StopTrial(request_id=request_id, finished=finished):
                    said.append(("stop", self.ids.index(request_id), finished))
                case Shutdown(cancel=cancel, failure=failure):
                    said.append(("shutdown", cancel, failure))
        for created in [decision for decision in decisions if isinstance(decision, CreateTrial)]:
            self.journal.append(TrialCreated(created.request_id))
            assert self.search.step(self.journal[-1]) == []
        return said

    def compare(self, event, expected):
        assert self.step(event) == expected
        self.compare_books()

    def compare_books(self):
        assert self.readable(unsteered(self.search.method.state())) == comparable(self.model.state())
        assert self.search.trials_requested == len(self.model.created)
        assert self.search.trials_closed == len(self.model.closed)
        assert self.search.trials_invalid == len(self.model.invalid())
        if hasattr(self.model, "progress") and self.search.shutdown is None:
            assert self.search.progress() == pytest.approx(min(max(self.model.progress(), 0.0), 1.0))

    def readable(self, state):
        """The search's own state with numbers for request ids."""
        if "brackets" in state:
            return {
                "brackets": [self.readable(bracket) for bracket in state["brackets"]],
                "bracket_of": {self.ids.index(rid): bracket for rid, bracket in state["bracket_of"].items()},
            }
        if "rungs" not in state:
            return state
        rungs = [
            (
                rung["units_needed"],
                [(self.ids.index(rid), "NaN" if is_lost(loss) else loss) for _, (loss,), rid in rung["entries"]],
            )
            for rung in state["rungs"]
        ]
        return {
            **state,
            "rungs": rungs,
            "level": {self.ids.index(rid): level for rid, level in state["level"].items()},
            "active": sorted(self.ids.index(rid) for rid in state["active"]),
        }

    def take(self, occurrence):
        if occurrence == ("restart",):
            # A master that starts again has the journal only.
            stored = json.loads(json.dumps([event_to_json(event) for event in self.journal]))
            before = self.search.fingerprint()
            self.search, _ = replay(self.config, SPACE, SEED, map(event_from_json, stored))
            assert self.search.fingerprint() == before
            self.compare_books()
            return
        kind, number, *rest = occurrence
        trial = number % len(self.ids)
        request_id = self.ids[trial]
        match kind:
            case "report":
                metric, time = rest
                self.compare(ValidationReported(request_id, metric, time), self.model.report(trial, metric, time))
            case "early":
                self.compare(TrialExitedEarly(request_id, rest[0]), self.model.exit_early(trial, rest[0]))
            case "exit":
                self.compare(TrialExited(request_id), self.model.exit(trial))
            case "progress":
                self.compare(ProgressReported(request_id, 0.5), [])


def comparable(state):
    """A model's state with a text for what has diverged, since NaN is not equal to itself."""
    if "brackets" in state:
        return {**state, "brackets": [comparable(bracket) for bracket in state["brackets"]]}
    if "rungs" not in state:
        return state
    rungs = [
        (units, [(trial, "NaN" if has_diverged(score) else score) for trial, score in order])
        for units, order in state["rungs"]
    ]
    return {**state, "rungs": rungs}


def follow(config, course):
    pair = Pair(config)
    for occurrence in course:
        pair.take(occurrence)
    return pair


@pytest.mark.slow
@calm
@given(config=halvings, course=courses)
def test_searchers_halving_is_its_model(config, course):
    follow(config, course)


@pytest.mark.slow
@calm
@given(config=adaptives, course=courses)
def test_searchers_adaptive_is_its_model(config, course):
    follow(config, course)


@pytest.mark.slow
@calm
@given(config=sweeps, course=courses)
def test_searchers_sweeps_are_their_models(config, course):
    pair = follow(config, course)
    if config["name"] == "grid":
        assert pair.hparams == pair.model.points[: len(pair.hparams)]


@pytest.mark.parametrize("reason", ["errored", "user_canceled"])
def test_searchers_early_exit_counts_in_the_rung_where_the_trial_was(reason):
    config = {
        "name": "async_halving",
        "num_rungs": 3,
        "max_trials": 6,
        "divisor": 2,
        "max_concurrent_trials": 2,
        "time_metric": "batches",
        "max_time": 16,
        "smaller_is_better": True,
    }
    pair = follow(config, [("report", 0, 0.5, 8.0), ("early", 0, reason)])
    pair.take(("restart",))
    rungs = pair.readable(pair.search.method.state())["rungs"]
    assert [[trial for trial, _ in order] for _, order in rungs] == [[0], [0], [0]]
    assert rungs[0][1] == rungs[1][1] == [(0, 0.5)]
    assert rungs[2][1] == [(0, 1.7976931348623157e308)]
