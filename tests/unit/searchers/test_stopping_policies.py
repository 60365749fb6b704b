"""Stopping policies: when each says that a trial should end, and on what evidence."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable
from time import process_time
from typing import Any

import pytest

from detlab.schemas import expconf
from detlab_hub.core.searchers import (
    RULES,
    CreateTrial,
    PauseTrial,
    ResumeTrial,
    Started,
    StopTrial,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    make_searcher,
)
from detlab_hub.core.searchers.events import COUNTED, StopRequested
from detlab_hub.core.stopping.comparing import CurveForecast, Median, Percentile, forecast
from detlab_hub.core.stopping.folds import EXACT, MOST, Wilcoxon, worse_by_chance
from detlab_hub.core.stopping.policies import Divergence, NoImprovement, Threshold, WallClock
from detlab_hub.core.stopping.policy import Report, StopPolicy


def report(
    metric: float, *, trial: str = "a", larger: bool = False, time: float | None = None, **more: float
) -> Report:
    sign = -1.0 if larger else 1.0
    return Report(trial, sign * metric, metric, time, sign, **more)


def said(policy: StopPolicy, metrics: Iterable[float], *, larger: bool = False) -> list[str | None]:
    return [policy.reported(report(metric, larger=larger)) for metric in metrics]


def test_no_improvement_names_the_best_of_the_last_reports_and_what_was_needed() -> None:
    *before, evidence = said(NoImprovement(2, 0.01), [0.90, 0.92, 0.925, 0.91], larger=True)
    assert before == [None, None, None]
    assert evidence == "the best of the last 2 reports is 0.925, better than 0.93 was needed"
    assert said(NoImprovement(2), [1.0, math.nan, 0.5, 0.6, 0.4, 0.4]) == [None] * 6


def test_threshold_gives_up_and_reaches_goals() -> None:
    assert said(Threshold(None, 0.5, after=2), [0.9, 0.4, 0.6]) == [None, None, "0.6 is above 0.5"]
    assert said(Threshold(0.1, None), [0.9, 0.05, math.nan]) == [None, "0.05 is below 0.1", None]


@pytest.mark.parametrize("larger", [False, True])
def test_divergence_counts_reports_in_a_row(larger: bool) -> None:
    assert said(Divergence(), [1.0, math.nan], larger=larger)[1] == "the metric is nan"
    assert (
        said(Divergence(patience=2), [math.inf, 1.0, math.nan, math.nan])[3] == "the metric is nan, 2 reports in a row"
    )


def test_divergence_by_a_factor_is_on_the_bad_side_only() -> None:
    assert said(Divergence(10), [1.0, 9.0, 0.01, 0.2]) == [
        None, None, None, "0.2 is more than 10 times off the best, 0.01",
    ]  # fmt: skip
    assert said(Divergence(2), [-1.0, -3.0, 0.5], larger=False)[2] == "0.5 is more than 2 times off the best, -3"


def test_wall_clock_counts_what_the_trial_ran() -> None:
    policy = WallClock(60)
    assert policy.reported(report(1.0)) is None
    assert policy.reported(report(1.0, elapsed=59.0)) is None
    assert policy.reported(report(1.0, elapsed=61.2)) == "it has run for 61 s, the limit is 60 s"


def test_a_trial_worse_than_the_median_of_those_that_came_as_far_is_stopped() -> None:
    policy = Median(50, min_trials=3)
    for number in range(4):
        for time in (1, 2, 3):
            assert policy.reported(report(1 / (number + time), trial=f"t{number}", time=time)) is None
    assert policy.reported(report(2.0, trial="bad", time=4)) is None, "nobody came as far"
    assert policy.reported(report(0.22, trial="good", time=2)) is None
    evidence = policy.reported(report(0.9, trial="late", time=3))
    assert evidence == "the best metric is 0.9; 50 % of 4 trials had 0.2 or better by then"


def test_percentile_waits_for_trials_and_for_its_warmup() -> None:
    policy = Percentile(25, min_trials=2, warmup=2)
    for trial in ("a", "b", "c"):
        assert policy.reported(report(0.1, trial=trial, time=2)) is None
    assert policy.reported(report(0.9, trial="d", time=1)) is None
    assert policy.reported(report(0.9, trial="d", time=2)) is not None


def test_a_resumed_trial_reports_a_step_again() -> None:
    policy = Median(50, min_trials=1)
    for metric, time in ((0.5, 1), (0.1, 2), (0.4, 2), (0.3, 3)):
        policy.reported(report(metric, trial="a", time=time))
    assert policy.state()["a"][:2] == [[1, 2, 3], [0.5, 0.4, 0.3]]


def test_the_forecast_of_a_power_law_is_exact_and_sure() -> None:
    points = [(t, 0.2 + 0.8 * t**-0.5) for t in range(1, 9)]
    mean, spread = forecast(points, 100)
    assert mean == pytest.approx(0.28)
    assert spread < 1e-6


def test_a_curve_that_will_end_worse_is_stopped_with_its_probability() -> None:
    policy = CurveForecast(end=100, confidence=0.95)
    for time in (1, 10, 50, 100):
        assert policy.reported(report(0.1 + 0.5 / time, trial="good", time=time)) is None
    said_of = {
        trial: [policy.reported(report(floor + 0.5 * t**-0.5, trial=trial, time=t)) for t in range(1, 7)]
        for trial, floor in (("bad", 0.3), ("promising", 0.01))
    }
    assert said_of["bad"][:4] == [None] * 4
    assert said_of["bad"][4] is not None
    assert said_of["bad"][4].startswith("it is expected to reach 0.35")
    assert said_of["promising"] == [None] * 6


def test_the_config_names_every_mistake_of_its_policies() -> None:
    stopping = [
        {"name": "treshold"},
        {"name": "curve"},
        {"name": "percentile", "percentile": 120},
        {"name": "threshold"},
    ]
    raw = {"searcher": {"name": "single", "metric": "loss"}, "stopping": stopping}
    found = {problem.path: problem for problem in expconf.check(raw)}
    assert found["stopping[0].name"].hint == "did you mean `threshold`?"
    assert found["stopping[1].end"].message == "is required"
    assert "searcher.time_metric" in found["stopping[1]"].message
    assert found["stopping[2].percentile"].message == "must be less than 100, not 120"
    assert "has no limit" in found["stopping[3]"].message


def test_the_first_of_several_metrics_is_the_searcher_metric() -> None:
    metrics = [{"name": "accuracy", "smaller_is_better": False}, {"name": "cost"}]
    searcher = {"name": "random", "max_trials": 3, "metrics": metrics, "constraints": {"memory": {"max": 8}}}
    resolved = expconf.resolve({"searcher": searcher})
    assert (resolved["searcher"]["metric"], resolved["searcher"]["smaller_is_better"]) == ("accuracy", False)
    assert expconf.resolve(resolved) == resolved
    wrong = {**searcher, "metric": "cost", "constraints": {"memory": {"min": 3, "max": 1}, "time": {}}}
    paths = {problem.path for problem in expconf.check({"searcher": wrong}) if problem.level == "error"}
    assert paths == {"searcher.metric", "searcher.constraints.memory", "searcher.constraints.time"}


@pytest.mark.parametrize("count", [4, 10, EXACT, EXACT + 1, 60])
def test_the_signed_rank_test_is_that_of_scipy(count: int) -> None:
    from scipy.stats import wilcoxon

    draw = random.Random(count)
    for _ in range(20):
        differences = [draw.gauss(0.4, 1) for _ in range(count)]
        method = "exact" if count <= EXACT else "asymptotic"
        expected = wilcoxon(differences, alternative="greater", method=method, correction=True).pvalue
        assert worse_by_chance(differences) == pytest.approx(expected, rel=1e-9)


def test_ties_and_zeros_share_their_ranks() -> None:
    signs = list(itertools.product((1, -1), repeat=3))
    assert worse_by_chance([1.0, 1.0, 1.0]) == 1 / len(signs)
    assert worse_by_chance([1.0, 1.0, -1.0]) == 4 / len(signs)
    assert worse_by_chance([0.0, 0.0]) == 1.0
    assert worse_by_chance([0.0, 2.0]) == 0.5


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("means", [False, True])
def test_a_trial_that_is_worse_on_nearly_every_fold_is_stopped(larger: bool, means: bool) -> None:
    policy = Wilcoxon(running_mean=means)
    sign = -1 if larger else 1

    def told(trial: str, losses: list[float]) -> list[str | None]:
        shown = [math.fsum(losses[: at + 1]) / (at + 1) for at in range(len(losses))] if means else losses
        reports = [report(sign * one, trial=trial, larger=larger, time=at) for at, one in enumerate(shown)]
        return [policy.reported(one) for one in reports]

    good = [0.1, 0.4, 0.2, 0.9, 0.3]
    assert told("good", good) == [None] * 5
    worse = told("worse", [one + 0.05 + 0.01 * at for at, one in enumerate(good)])
    assert worse[:3] == [None] * 3
    assert worse[3] is not None
    assert worse[3].startswith("its mean over 4 folds is ")
    assert worse[3].endswith("chance alone would show as much with a probability of 6.25%")
    assert told("mixed", [0.0, 0.6, 0.0, 1.1, 0.1]) == [None] * 5
    assert told("better", [one - 0.05 for one in good]) == [None] * 5


def test_a_trial_is_compared_on_the_folds_that_both_have() -> None:
    policy = Wilcoxon()
    for fold, loss in enumerate([1.0, 1.0, 1.0, 1.0]):
        policy.reported(report(loss, trial="short", time=fold))
    for fold, loss in enumerate([2.0, 2.1, 2.2, 2.3, 2.4, 2.5], start=2):
        assert policy.reported(report(loss, trial="others", time=fold)) is None
    assert policy.reported(report(math.nan, trial="others", time=9)) is None


@pytest.mark.parametrize("means", [False, True])
def test_folds_that_are_too_large_to_be_added_are_none(means: bool) -> None:
    policy = Wilcoxon(running_mean=means)
    for trial in ("first", "second"):
        for fold, loss in enumerate([1.7e308, -1.7e308, 1.7e308, 1.7e308, 1.0, 1e299, -1e299, 1e299, 1e299, 1e299]):
            policy.reported(report(loss if trial == "first" else -loss, trial=trial, time=fold))
    assert policy.reported(report(1e299, trial="second", time=11)) is None


def test_a_trial_that_reports_folds_for_ever_costs_little() -> None:
    policy, begun = Wilcoxon(), process_time()
    for trial in ("first", "second"):
        for fold in range(5000):
            policy.reported(report(fold * 0.5 + (fold % 7) * (trial == "second"), trial=trial, time=fold))
    assert process_time() - begun < 10
    assert all(len(folds) == MOST for folds in policy._folds.values())


RUNGS = {"metric": "loss", "max_trials": 6, "max_time": 12, "time_metric": "epochs", "max_concurrent_trials": 2}
FAMILY = [
    {"name": "asha", **RUNGS, "variant": "promotion"},
    {"name": "asha", **RUNGS, "variant": "stopping"},
    {"name": "adaptive_asha", **RUNGS, "max_rungs": 2},
    {"name": "asha", **RUNGS, "seeds": 2, "max_concurrent_trials": 4},
]
LINE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}


class Trained:
    """A search whose trials report each epoch, and every other of which (of points) diverges at once."""

    def __init__(self, config: dict[str, Any], ends: str, rules: int = RULES) -> None:
        stopping = [{"name": "divergence"}] if ends == "policy" else []
        self.search = make_searcher(config, LINE, 3, stopping=stopping, rules=rules)
        self.seeds = config.get("seeds", 1)
        self.epochs: dict[str, int] = {}
        self.running: list[str] = []
        self.hparams: dict[str, float] = {}
        self.tell(Started(rules))
        while self.running:
            self.train(self.running[0], ends)

    def train(self, name: str, ends: str) -> None:
        epoch = self.epochs[name] = self.epochs[name] + 1
        diverges = list(self.epochs).index(name) // self.seeds % 2 == 0
        if diverges and ends == "user":
            self.tell(StopRequested(name))
        elif diverges and ends == "error":
            self.tell(TrialExitedEarly(name, "errored"))
            self.leave(name)
        else:
            loss = math.nan if diverges else self.hparams[name] / epoch
            self.tell(ValidationReported(name, loss, float(epoch)))
        if name in self.running and epoch == 12:
            self.leave(name)

    def leave(self, name: str) -> None:
        self.running.remove(name)
        self.tell(TrialExited(name))

    def tell(self, event: Any) -> None:
        for one in self.search.step(event):
            if isinstance(one, CreateTrial):
                self.epochs[one.request_id], self.hparams[one.request_id] = 0, one.hparams["lr"]
                self.running.append(one.request_id)
            elif isinstance(one, ResumeTrial):
                self.running.append(one.request_id)
            elif isinstance(one, StopTrial) and one.request_id in self.epochs:
                if one.request_id in self.running:
                    self.leave(one.request_id)
                else:
                    self.tell(TrialExited(one.request_id))
            elif isinstance(one, PauseTrial):
                self.running.remove(one.request_id)


@pytest.mark.parametrize("ends", ["policy", "user", "error"])
@pytest.mark.parametrize("config", FAMILY, ids=lambda one: f"{one['name']}-{one.get('variant', '')}")
def test_a_trial_that_is_stopped_on_its_way_to_a_rung_counts_there(config: dict[str, Any], ends: str) -> None:
    trained = Trained(config, ends)
    assert max(trained.epochs.values()) == 12, "the others waited for results of trials that had been stopped"


def test_journals_of_earlier_rules_do_not_count_trials_that_a_policy_stopped() -> None:
    assert max(Trained(FAMILY[0], "policy", COUNTED - 1).epochs.values()) < 12
