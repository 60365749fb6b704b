"""The searchers against cases worked by hand."""

import math

import pytest

from detlab_hub.core.searchers import (
    CreateTrial,
    ProgressReported,
    SearcherConfigError,
    SearcherInputError,
    Shutdown,
    Started,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    make_searcher,
)
from detlab_hub.core.searchers.halving.adaptive import bracket_rungs, plan_brackets
from detlab_hub.core.searchers.halving.rungs import Rung, rung_units
from detlab_hub.core.searchers.objectives import Score

SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}


class Runner:
    """Feeds a search and names trials by creation index."""

    def __init__(self, config, space=None, seed=7):
        self.search = make_searcher(config, SPACE if space is None else space, seed)
        self.ids: list[str] = []
        self.hparams: list[dict] = []
        self.started = self.take(Started())

    def take(self, event):
        """Step; return creates as ('create', n), stops as ('stop', n), else the decision."""
        readable = []
        for decision in self.search.step(event):
            match decision:
                case CreateTrial(request_id=request_id, hparams=hparams, index=index):
                    assert index == len(self.ids)
                    self.ids.append(request_id)
                    self.hparams.append(hparams)
                    readable.append(("create", index))
                    assert self.search.step(TrialCreated(request_id)) == []
                case StopTrial(request_id=request_id):
                    readable.append(("stop", self.ids.index(request_id)))
                case _:
                    readable.append(decision)
        return readable

    def report(self, trial, metric, time=None):
        return self.take(ValidationReported(self.ids[trial], metric, time))

    def early(self, trial, reason):
        return self.take(TrialExitedEarly(self.ids[trial], reason))

    def exit(self, trial):
        return self.take(TrialExited(self.ids[trial]))


def creates(*indices):
    return [("create", index) for index in indices]


def halving(**fields):
    return {
        "name": "async_halving",
        "num_rungs": 3,
        "max_trials": 10,
        "divisor": 3,
        "max_concurrent_trials": 3,
        "time_metric": "batches",
        "max_time": 900,
        "smaller_is_better": True,
        **fields,
    }


# --- single, random, grid ---------------------------------------------------------------------------------


def test_searchers_single_makes_one_trial_and_never_replaces_it():
    run = Runner({"name": "single"})
    assert run.started == creates(0)
    assert run.report(0, 0.5) == []
    assert run.early(0, "invalid_hp") == []
    assert run.exit(0) == [Shutdown(cancel=False, failure=False)]


def test_searchers_random_keeps_max_concurrent_until_the_budget_is_spent():
    run = Runner({"name": "random", "max_trials": 5, "max_concurrent_trials": 2})
    assert run.started == creates(0, 1)
    assert run.exit(1) == creates(2)
    assert run.exit(0) == creates(3)
    assert run.exit(2) == creates(4)
    assert run.exit(4) == []
    assert run.exit(3) == [Shutdown(cancel=False, failure=False)]


@pytest.mark.parametrize(("limit", "first"), [(None, 16), (0, 40), (7, 7), (100, 40)])
def test_searchers_random_first_trials(limit, first):
    run = Runner({"name": "random", "max_trials": 40, "max_concurrent_trials": limit})
    assert len(run.started) == first


def test_searchers_random_replaces_invalid_trials_outside_the_budget():
    run = Runner({"name": "random", "max_trials": 2, "max_concurrent_trials": 1})
    assert run.early(0, "init_invalid_hp") == []
    assert run.exit(0) == creates(1)
    assert run.exit(1) == creates(2)
    assert run.exit(2) == [Shutdown(cancel=False, failure=False)]
    assert run.search.trials_invalid == 1


def test_searchers_random_counts_a_failed_trial():
    run = Runner({"name": "random", "max_trials": 2, "max_concurrent_trials": 2})
    run.early(0, "errored")
    run.exit(0)
    run.early(1, "user_canceled")
    assert run.exit(1) == [Shutdown(cancel=False, failure=False)]


@pytest.mark.parametrize(
    ("reason", "shutdown"),
    [
        ("errored", Shutdown(cancel=False, failure=True)),
        ("user_canceled", Shutdown(cancel=True, failure=False)),
    ],
)
def test_searchers_shutdown_says_if_every_trial_failed_or_was_canceled(reason, shutdown):
    run = Runner({"name": "random", "max_trials": 2, "max_concurrent_trials": 2})
    run.early(0, reason)
    run.exit(0)
    run.early(1, reason)
    assert run.exit(1) == [shutdown]
    assert run.search.shutdown == shutdown


def test_searchers_grid_walks_from_the_last_point_and_keeps_invalid_ones():
    space = {
        "a": {"type": "categorical", "vals": [1, 2]},
        "b": {"type": "int", "minval": 0, "maxval": 2, "count": 3},
    }
    run = Runner({"name": "grid", "max_concurrent_trials": 2}, space)
    assert run.search.trials_total == 6
    assert run.started == creates(0, 1)
    run.early(0, "invalid_hp")
    assert [run.exit(i) for i in range(6)] == [
        creates(2),
        creates(3),
        creates(4),
        creates(5),
        [],
        [Shutdown(cancel=False, failure=False)],
    ]
    assert [(h["a"], h["b"]) for h in run.hparams] == [(2, 2), (2, 1), (2, 0), (1, 2), (1, 1), (1, 0)]


def test_searchers_grid_of_constants_is_one_trial():
    assert Runner({"name": "grid"}, {"a": 1, "n": {}}).hparams == [{"a": 1, "n": {}}]
    assert Runner({"name": "grid"}, {}).hparams == [{}]


def test_searchers_sweep_progress_is_the_done_part_of_the_budget():
    run = Runner({"name": "random", "max_trials": 4, "max_concurrent_trials": 2})
    run.exit(0)
    run.take(ProgressReported(run.ids[1], 0.5))
    assert run.search.progress() == pytest.approx(1.5 / 4)
    run.take(ProgressReported(run.ids[1], math.nan))
    assert run.search.progress() == pytest.approx(1.5 / 4)
    run.take(ProgressReported(run.ids[1], math.inf))
    assert run.search.progress() == pytest.approx(2 / 4)
    run.early(1, "invalid_hp")
    assert run.search.progress() == pytest.approx(1 / 4)


# --- async_halving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_rungs", "divisor", "max_time", "units"),
    [
        (3, 3, 9, [1, 3, 9]),
        (4, 2, 10, [1, 2, 5, 10]),
        (1, 3, 9, [9]),
        (3, 3, 900, [100, 300, 900]),
        (5, 4, 16, [1, 1, 1, 4, 16]),
        (3, 2.5, 100, [16, 40, 100]),
    ],
)
def test_searchers_rung_units(num_rungs, divisor, max_time, units):
    assert rung_units(num_rungs, divisor, max_time) == units


def test_searchers_a_score_of_minus_infinity_is_not_the_best():
    rung = Rung(units_needed=1)
    assert rung.insert("diverged", Score(0.0, (-math.inf,))) == 0
    assert rung.insert("good", Score(0.0, (0.5,))) == 0
    assert rung.insert("bad", Score(0.0, (math.inf,))) == 1
    assert [entry[1] for entry in rung.entries] == ["good", "bad", "diverged"]


def test_searchers_rung_inserts_before_equals_and_nan_after_everything():
    rung = Rung(1)
    assert rung.insert("a", Score(0.0, (1.0,))) == 0
    assert rung.insert("b", Score(0.0, (1.0,))) == 0
    assert rung.insert("nan", Score(0.0, (math.nan,))) == 2
    assert rung.insert("inf", Score(0.0, (math.inf,))) == 2
    assert rung.insert("nan2", Score(0.0, (math.nan,))) == 3
    assert rung.insert("best", Score(0.0, (-1e308,))) == 0
    assert [entry[1] for entry in rung.entries] == ["best", "b", "a", "inf", "nan2", "nan"]


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({}, 3),
        ({"max_concurrent_trials": 16}, 10),
        ({"max_concurrent_trials": 0}, 9),
        ({"max_concurrent_trials": 0, "max_trials": 5}, 5),
        ({"max_concurrent_trials": 0, "num_rungs": 1}, 1),
        ({"max_concurrent_trials": 0, "divisor": 2.5}, 6),
    ],
)
def test_searchers_halving_first_trials(fields, first):
    assert Runner(halving(**fields)).started == creates(*range(first))


def test_searchers_halving_ever_worse_trials_only_the_first_goes_on():
    """max_trials 10, three at a time, each new trial worse: all but trial 0 stop at the first rung."""
    run = Runner(halving())
    assert run.report(0, 1.0, 100) == []
    for trial in range(1, 8):
        assert run.report(trial, 1.0 + trial, 100) == [("stop", trial), ("create", trial + 2)]
    assert run.report(8, 9.0, 100) == [("stop", 8)]
    assert run.report(9, 10.0, 100) == [("stop", 9)]
    assert run.report(0, 50.0, 299) == []
    assert run.report(0, 50.0, 300) == []
    assert run.report(0, 50.0, 900) == [("stop", 0)]
    for trial in range(9):
        assert run.exit(trial) == []
    assert run.exit(9) == [Shutdown(cancel=False, failure=False)]


def test_searchers_halving_ever_better_trials_all_go_on():
    run = Runner(halving(max_concurrent_trials=16))
    for trial in range(10):
        assert run.report(trial, -float(trial), 100) == []


def test_searchers_halving_keeps_the_best_third_of_those_seen_so_far():
    """Rung of 6: two are kept, so the third best is stopped and the second best goes on."""
    run = Runner(halving(max_concurrent_trials=10))
    for trial, metric in enumerate([0.1, 0.3, 0.4, 0.5, 0.6]):
        assert run.report(trial, metric, 100) == ([] if trial == 0 else [("stop", trial)])
    assert run.report(5, 0.2, 100) == []  # place 1 of 6, 6 // 3 = 2 are kept
    assert run.report(6, 0.25, 100) == [("stop", 6)]  # place 2 of 7


def test_searchers_halving_a_tie_ranks_before_its_equals():
    run = Runner(halving())
    assert run.report(0, 0.5, 100) == []
    assert run.report(1, 0.5, 100) == []


def test_searchers_halving_a_late_report_passes_several_rungs():
    run = Runner(halving())
    assert run.report(0, 0.5, 350) == []
    assert run.search.method.level_of(run.ids[0]) == 2
    assert [len(rung.entries) for rung in run.search.method.rungs] == [1, 1, 0]
    assert run.report(1, 0.4, 10_000) == [("stop", 1), ("create", 3)]
    assert run.search.method.level_of(run.ids[1]) == 2


def test_searchers_halving_larger_is_better_is_negated():
    run = Runner(halving(smaller_is_better=False))
    assert run.report(0, 0.9, 100) == []
    assert run.report(1, 0.8, 100) == [("stop", 1), ("create", 3)]
    assert run.report(2, 0.95, 100) == []


def test_searchers_halving_nan_ranks_worst_whatever_came_before():
    run = Runner(halving(max_concurrent_trials=10))
    assert run.report(0, math.nan, 100) == []  # the first to reach a rung goes on, whatever its metric
    assert run.report(1, math.inf, 100) == []  # better than NaN
    assert run.report(2, 5.0, 100) == []
    assert run.report(3, math.nan, 100) == [("stop", 3)]
    for smaller in (True, False):
        nan_last = Runner(halving(smaller_is_better=smaller))
        nan_last.report(0, 3.0, 100)
        assert nan_last.report(1, math.nan, 100) == [("stop", 1), ("create", 3)]


def test_searchers_halving_time_is_cut_to_whole_units():
    run = Runner(halving())
    assert run.report(0, 0.1, 99.9) == []
    assert run.search.method.level_of(run.ids[0]) == 0
    run.report(0, 0.1, 100.9)
    assert run.search.method.level_of(run.ids[0]) == 1
    assert run.report(1, 0.2, -5) == []


@pytest.mark.parametrize("time", [None, math.nan, math.inf])
def test_searchers_halving_without_the_time_metric_is_an_input_error_that_changes_nothing(time):
    run = Runner(halving())
    before = run.search.fingerprint()
    with pytest.raises(SearcherInputError, match="time_metric 'batches'"):
        run.report(0, 0.5, time)
    assert run.search.fingerprint() == before


def test_searchers_halving_an_error_counts_as_worst_and_is_replaced():
    run = Runner(halving())
    assert run.early(0, "errored") == creates(3)
    assert run.report(1, 1e300, 100) == []  # still better than the failed one
    assert run.exit(0) == []
    run = Runner(halving(max_trials=3))
    assert run.early(0, "user_canceled") == []


def test_searchers_halving_an_invalid_trial_is_forgotten_and_replaced():
    run = Runner(halving(max_trials=3))
    run.report(0, 0.1, 300)
    assert run.early(0, "invalid_hp") == [("stop", 0), ("create", 3)]
    assert [len(rung.entries) for rung in run.search.method.rungs] == [0, 0, 0]
    assert run.report(1, 9.0, 100) == []  # the first in the rung again
    for trial in (0, 1, 2):
        assert run.exit(trial) == []
    assert run.exit(3) == [Shutdown(cancel=False, failure=False)]


def test_searchers_halving_a_trial_that_ends_by_itself_is_not_replaced():
    run = Runner(halving())
    assert run.report(0, 0.1, 100) == []
    assert [run.exit(trial) for trial in range(3)] == [[], [], [Shutdown(cancel=False, failure=False)]]


def test_searchers_halving_last_words_after_a_stop_do_not_count_again():
    """A stopped trial reports until the Stop reaches it: no second Stop, no second replacement."""
    run = Runner(halving())
    run.report(0, 0.1, 100)
    assert run.report(1, 0.2, 100) == [("stop", 1), ("create", 3)]
    assert run.report(1, 0.05, 300) == []
    assert run.report(1, 0.05) == []
    assert [len(rung.entries) for rung in run.search.method.rungs] == [2, 0, 0]
    assert run.early(1, "errored") == []
    assert run.exit(1) == []


def test_searchers_halving_progress_holds_a_sixth_back_for_the_upper_rungs():
    run = Runner(halving(max_trials=3))
    assert run.search.progress() == 0.0
    run.report(0, 0.1, 100)
    assert run.search.progress() == pytest.approx(1 / 3.6)
    run.report(1, 0.2, 100)
    run.report(2, 0.3, 100)
    assert run.search.progress() == pytest.approx(3 / 3.6)
    run.exit(1)
    assert run.search.progress() == pytest.approx(3 / 3.6)
    run.exit(2)
    run.exit(0)
    assert run.search.progress() == 1.0


def test_searchers_halving_progress_follows_the_ended_trials_once_the_first_rung_is_full():
    run = Runner(halving(max_concurrent_trials=10))
    for trial in range(10):
        run.report(trial, float(trial), 100)
    assert run.search.progress() == pytest.approx(10 / 12)
    for trial in range(1, 10):
        run.exit(trial)
    assert run.search.progress() == pytest.approx(0.9)


# --- adaptive_asha ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "max_rungs", "max_time", "max_trials", "divisor", "rungs"),
    [
        ("aggressive", 5, 256, 1000, 4, [5]),
        ("standard", 5, 256, 1000, 4, [5, 4, 3]),
        ("conservative", 5, 256, 1000, 4, [5, 4, 3, 2, 1]),
        ("standard", 4, 1000, 1000, 4, [4, 3, 2]),
        ("standard", 5, 1000, 16, 4, [3, 2]),
        ("standard", 5, 1, 1000, 4, [1]),
        ("standard", 5, 1000, 1, 4, [1]),
        ("conservative", 2, 900, 5, 3, [2, 1]),
    ],
)
def test_searchers_adaptive_rungs_per_bracket(mode, max_rungs, max_time, max_trials, divisor, rungs):
    assert bracket_rungs(mode, max_rungs, max_time, max_trials, divisor) == rungs


def test_searchers_adaptive_brackets_share_trials_by_cost_and_places_evenly():
    """Weights 4**2/3 and 4**1/2: 16 trials go 11 (with the remainder 12) and 4."""
    brackets = plan_brackets([2, 3], max_trials=16, max_concurrent=5, divisor=4)
    assert [(b.num_rungs, b.max_trials, b.max_concurrent) for b in brackets] == [(3, 12, 3), (2, 4, 2)]


def test_searchers_adaptive_brackets_are_never_empty():
    brackets = plan_brackets([1, 2, 3], max_trials=2, max_concurrent=1, divisor=4)
    assert [(b.num_rungs, b.max_trials, b.max_concurrent) for b in brackets] == [
        (3, 1, 1),
        (2, 1, 1),
        (1, 1, 1),
    ]


def test_searchers_adaptive_default_concurrency_is_the_smallest_brackets():
    brackets = plan_brackets([3, 2], max_trials=100, max_concurrent=0, divisor=4)
    assert [(b.max_trials, b.max_concurrent) for b in brackets] == [(73, 27), (27, 27)]
    brackets = plan_brackets([3, 2], max_trials=4, max_concurrent=0, divisor=4)
    assert [b.max_concurrent for b in brackets] == [4, 4]


ADAPTIVE = {
    "name": "adaptive_asha",
    "max_trials": 16,
    "time_metric": "epochs",
    "max_time": 16,
    "max_concurrent_trials": 4,
    "smaller_is_better": False,
}


def test_searchers_adaptive_brackets_judge_their_own_trials():
    run = Runner(ADAPTIVE)
    assert run.started == creates(0, 1, 2, 3)
    tournament = run.search.method
    assert [tournament.bracket_of(request_id) for request_id in run.ids] == [0, 0, 1, 1]
    assert [tournament.units_of(run.ids[0]), tournament.units_of(run.ids[2])] == [[1, 4, 16], [4, 16]]
    assert run.report(0, 0.9, 1) == []
    assert run.report(2, 0.1, 4) == []  # first of its own bracket, though worse than trial 0
    assert run.report(1, 0.5, 1) == [("stop", 1), ("create", 4)]
    assert tournament.bracket_of(run.ids[4]) == 0
    assert run.report(3, 0.05, 4) == [("stop", 3), ("create", 5)]
    assert tournament.bracket_of(run.ids[5]) == 1


def test_searchers_adaptive_given_bracket_rungs_win():
    run = Runner({**ADAPTIVE, "bracket_rungs": [1, 3], "mode": "aggressive"})
    assert [len(bracket.rungs) for bracket in run.search.method.brackets] == [3, 1]


# --- what every search does ---------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [{"name": "random", "max_trials": 4}, halving(), ADAPTIVE])
def test_searchers_repeated_events_are_ignored(config):
    run = Runner(config)
    run.early(0, "errored")
    before, revision = run.search.fingerprint(), run.search.revision
    assert run.early(0, "errored") == []
    assert run.early(0, "invalid_hp") == []
    assert run.take(Started()) == []
    assert run.take(TrialCreated(run.ids[0])) == []
    assert (run.search.fingerprint(), run.search.revision) == (before, revision)
    run.exit(0)
    before, revision = run.search.fingerprint(), run.search.revision
    assert run.exit(0) == []
    assert run.early(0, "errored") == []
    assert run.report(0, 0.1, 1000) == []
    assert run.take(ProgressReported(run.ids[0], 0.3)) == []
    assert (run.search.fingerprint(), run.search.revision) == (before, revision)


def test_searchers_a_foreign_trial_is_an_input_error():
    run = Runner({"name": "single"})
    with pytest.raises(SearcherInputError, match="does not belong to this search"):
        run.take(TrialExited("00000000-0000-4000-8000-000000000000"))


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"name": "bayes"}, "no search method 'bayes' here; installed: adaptive_asha, asha, async_halving, bayesian"),
        ({"name": "random"}, "searcher.max_trials: random needs it"),
        ({"name": "random", "max_trials": 0}, "searcher.max_trials: must be at least 1"),
        ({"name": "random", "max_trials": 1, "max_concurrent_trials": -1}, "must not be negative"),
        (halving(divisor=1), "searcher.divisor: must be above 1"),
        (halving(time_metric=None), "searcher.time_metric: async_halving needs it"),
        (halving(max_time=0), "searcher.max_time: must be at least 1"),
        (halving(num_rungs=5000), "searcher.num_rungs: 5000 rungs are too many"),
        ({**ADAPTIVE, "mode": "wild"}, "searcher.mode: 'wild'"),
        ({**ADAPTIVE, "bracket_rungs": [2, 0]}, "at least 1 rung"),
        ({**ADAPTIVE, "bracket_rungs": [5000]}, "searcher.bracket_rungs: 5000 rungs are too many"),
    ],
)
def test_searchers_unusable_config_is_refused(config, complaint):
    with pytest.raises(SearcherConfigError, match=complaint):
        make_searcher(config, SPACE, 0)
