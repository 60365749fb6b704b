"""Simulated searches, checked against a second, naive implementation of the published pseudo-code."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab_hub.core.searchers import CreateTrial, make_searcher
from detlab_hub.core.searchers.simulation import (
    EndlessSearchError,
    ObjectiveError,
    random_curve,
    simulate,
)

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine is no failure."""

SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}


class NaiveBracket:
    """Stopping ASHA as one would write it on a blackboard: plain lists, sorted anew at each report."""

    def __init__(self, num_rungs, max_trials, at_a_time, divisor, max_time):
        self.needed = [max(1, math.floor(max_time / divisor ** (num_rungs - 1 - i))) for i in range(num_rungs)]
        self.scores = [[] for _ in range(num_rungs)]
        self.max_trials, self.divisor, self.created = max_trials, divisor, 0
        self.first = min(at_a_time, max_trials)

    def stops(self, state, score, time):
        """state: one-element list with the trial's rung."""
        while True:
            rung = state[0]
            if time < self.needed[rung]:
                return False
            better = sum(1 for other in self.scores[rung] if other < score)
            self.scores[rung].append(score)
            if rung == len(self.needed) - 1:
                return True
            if better >= max(int(len(self.scores[rung]) / self.divisor), 1):
                return True
            state[0] += 1


def naive_search(brackets, objective, every, length, seed):
    """Trials one after another in creation order; returns (x, steps, ended) of each."""
    rng = np.random.RandomState(seed)
    queue = []

    def create(bracket):
        bracket.created += 1
        x = rng.uniform(0.0, 1.0)
        rng.bytes(16)
        rng.randint(0, 2**31)
        queue.append((bracket, x))

    for bracket in brackets:
        for _ in range(bracket.first):
            create(bracket)
    results = []
    while queue:
        bracket, x = queue.pop(0)
        index, state, ended, steps = len(results), [0], "completed", length
        for step in [*range(every, length, every), length]:
            if bracket.stops(state, objective(index, x, step), step):
                ended, steps = "stopped", step
                if bracket.created < bracket.max_trials:
                    create(bracket)
                break
        results.append((x, steps, ended))
    return results


def seen(trials):
    return [(t.trial.hparams["x"], t.steps, t.ended) for t in trials]


@calm
@given(
    num_rungs=st.integers(1, 4),
    max_trials=st.integers(1, 20),
    at_a_time=st.integers(1, 8),
    divisor=st.sampled_from([2, 3, 4, 2.5]),
    max_time=st.integers(1, 50),
    every=st.integers(1, 10),
    seed=st.integers(0, 1000),
    wobble=st.floats(0, 2),
)
def test_searchers_simulated_halving_is_the_blackboards(
    num_rungs, max_trials, at_a_time, divisor, max_time, every, seed, wobble
):
    config = {
        "name": "async_halving",
        "num_rungs": num_rungs,
        "max_trials": max_trials,
        "max_concurrent_trials": at_a_time,
        "divisor": divisor,
        "time_metric": "batches",
        "max_time": max_time,
    }

    def metric(index, x, step):
        return round(x + wobble * math.sin(index + step), 1)  # rounded: many ties

    trials = simulate(
        make_searcher(config, SPACE, seed),
        lambda trial, step: metric(trial.index, trial.hparams["x"], step),
        every,
        max_time,
    )
    bracket = NaiveBracket(num_rungs, max_trials, at_a_time, divisor, max_time)
    assert seen(trials) == naive_search([bracket], metric, every, max_time, seed)


@pytest.mark.slow
@calm
@given(seed=st.integers(0, 1000), every=st.integers(1, 5), wobble=st.floats(0, 2))
def test_searchers_simulated_adaptive_asha_is_the_blackboards(seed, every, wobble):
    """40 trials to 64 with divisor 4, standard: brackets of 3 and 2 rungs, worked out by hand.

    ln 40 / ln 4 = 2.66, so 3 rungs at most, and the modes' middle is 2. Weights 16/3 and 4/2: 29 (and the
    remainder 1) and 10 trials; 5 places: 3 and 2.
    """
    config = {
        "name": "adaptive_asha",
        "max_trials": 40,
        "max_concurrent_trials": 5,
        "time_metric": "batches",
        "max_time": 64,
    }

    def metric(index, x, step):
        return x + wobble * math.sin(index + step)

    trials = simulate(
        make_searcher(config, SPACE, seed),
        lambda trial, step: metric(trial.index, trial.hparams["x"], step),
        every,
        64,
    )
    brackets = [NaiveBracket(3, 30, 3, 4, 64), NaiveBracket(2, 10, 2, 4, 64)]
    assert seen(trials) == naive_search(brackets, metric, every, 64, seed)
    assert [list(b.needed) for b in brackets] == [[4, 16, 64], [16, 64]]


def test_searchers_simulated_trials_run_in_creation_order():
    config = {"name": "random", "max_trials": 6, "max_concurrent_trials": 2}
    order = []

    def objective(trial, step):
        order.append((trial.index, step))
        return 0.0

    trials = simulate(make_searcher(config, SPACE, 0), objective, 2, 5)
    assert order == [(index, step) for index in range(6) for step in (2, 4, 5)]
    assert [(t.steps, t.ended, t.metric) for t in trials] == [(5, "completed", 0.0)] * 6


def test_searchers_simulated_error_ends_the_trial_at_its_last_report():
    def objective(trial, step):
        if trial.index == 1 and step == 3:
            raise ObjectiveError("boom")
        return 1.0

    config = {"name": "random", "max_trials": 3}
    trials = simulate(make_searcher(config, SPACE, 0), objective, 1, 4)
    assert [(t.steps, t.ended, t.error) for t in trials] == [
        (4, "completed", None),
        (2, "error", "boom"),
        (4, "completed", None),
    ]


def test_searchers_simulated_invalid_trials_are_replaced():
    def objective(trial, step):
        if trial.hparams["x"] < 0.5:
            raise ObjectiveError("too small", invalid=True)
        return 1.0

    for name in ("random", "async_halving"):
        config = {"name": name, "max_trials": 8, "num_rungs": 1, "time_metric": "t", "max_time": 2}
        trials = simulate(make_searcher(config, SPACE, 3), objective, 1, 2)
        assert sum(not t.invalid for t in trials) == 8
        assert any(t.invalid for t in trials)


def test_searchers_simulated_search_of_invalid_points_only_gives_up():
    def objective(trial, step):
        raise ObjectiveError("never", invalid=True)

    with pytest.raises(EndlessSearchError, match="201 trials were invalid"):
        simulate(make_searcher({"name": "random", "max_trials": 2}, SPACE, 0), objective, 1, 1)


def test_searchers_random_curve_is_seeded_and_bounded():
    search = make_searcher({"name": "random", "max_trials": 20}, SPACE, 0)
    values = []
    simulate(search, lambda t, s: values.append((t, s)) or 0.0, 1, 10)
    for trial, step in values:
        for smaller in (True, False):
            value = random_curve(trial, step, 10, smaller)
            assert value == random_curve(trial, step, 10, smaller)
            assert 0.0 <= value <= 1.0
    assert len({random_curve(trial, 10, 10, True) for trial, _ in values}) == 20


@pytest.mark.parametrize("name", ["asha", "hyperband", "bohb", "tpe"])
def test_simulation_knows_methods_that_pause_and_ask(name: str) -> None:
    block = {"name": name, "metric": "loss", "max_trials": 12, "max_concurrent_trials": 2}
    if name != "tpe":
        block |= {"time_metric": "step", "max_time": 9, "divisor": 3}
    space = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
    search = make_searcher(block, space, 3)
    trials = simulate(search, lambda trial, step: trial.hparams["lr"] + 1 / step, 1, 9)
    assert search.shutdown is not None
    assert [one.trial.index for one in trials] == list(range(12))
    assert max(one.steps for one in trials) == 9
    if name != "tpe":
        assert 1 in {one.steps for one in trials}


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_simulated_clones_train_on_from_where_their_parents_were(name: str) -> None:
    block = {
        "name": name,
        "metric": "loss",
        "time_metric": "step",
        "population_size": 4,
        "num_rounds": 3,
        "length_per_round": 3,
        "replace_function": {"truncate_fraction": 0.25},
    }
    space = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
    search = make_searcher(block, space, 3)
    trials = simulate(search, lambda trial, step: trial.hparams["lr"] + 1 / step, 1, 9)
    assert len(trials) == 6
    assert sum(one.steps for one in trials) == 4 * 9, "the population trains all rounds"
    assert [one.trial.parent is not None for one in trials] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("name", ["pbt", "pb2"])
@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("goal", [None, 0.9, 0.5, 0.2])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_population_with_seeds_and_a_goal_is_simulated_to_its_end(
    name: str, seeds: int, goal: float | None, every: int
) -> None:
    block = {"name": name, "metric": "loss", "time_metric": "batches", "population_size": 4, "num_rounds": 3,
             "length_per_round": 3, "seeds": seeds}  # fmt: skip
    block |= {} if goal is None else {"goal": goal}
    space = {"lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10}}
    reached: list[float] = []

    def loss(trial: CreateTrial, step: int) -> float:
        assert seeds > 1 or not reached, "nothing trains beyond the goal"
        found = random_curve(trial, step, 9, True)
        reached.extend([found] if goal is not None and found <= goal else [])
        return found

    trials = simulate(make_searcher(block, space, 1), loss, every, 9)
    assert len({trial.trial.request_id for trial in trials}) == len(trials)
    assert len(trials) % seeds == 0, "each point has all of its seeds"
