"""What `det` says of searches: the Pareto front, why trials were stopped, budgets."""

from __future__ import annotations

import pytest

from detlab.cli.output.experiment_progress import Story, budgets_left
from detlab.client.facts import TrialFacts
from detlab.schemas.wire import (
    BestView,
    BudgetView,
    CreateExperiment,
    ExperimentState,
    ExperimentView,
    ParentView,
    ReplayedSearch,
    ReplayedTrial,
    SeriesView,
    TrialState,
    TrialView,
)
from testbed.fake_master.api import FakeMaster


@pytest.fixture
def two_metrics(master: FakeMaster) -> FakeMaster:
    """Experiment 1: trial 1 breaks the constraint, 2 and 3 are on the front, 4 is dominated."""
    metrics = [{"name": "loss"}, {"name": "size"}]
    searcher = {"name": "random", "metrics": metrics, "constraints": {"size": {"max": 9}}}
    master.create(CreateExperiment(config={"name": "x", "searcher": searcher}))
    for loss, size in ((0.1, 50.0), (0.3, 4.0), (0.25, 8.0), (0.4, 5.0)):
        trial = master.add_trial(1).id
        master.series[trial] = [
            SeriesView(trial_id=trial, group="validation", name=name, steps=[7], values=[value], times=[20.0])
            for name, value in (("loss", loss), ("size", size))
        ]
    return master


def test_an_experiment_is_described_with_its_pareto_front(two_metrics, det, det_json) -> None:
    lines = det("e", "describe", 1).stdout.splitlines()
    at = lines.index("Pareto front:")
    assert [line.split() for line in (lines[at + 1], *lines[at + 3 : at + 5])] == [
        ["Trial", "Steps", "loss", "size"],
        ["3", "7", "0.25", "8"],
        ["2", "7", "0.3", "4"],
    ]
    front = det_json("e", "describe", 1)["pareto_front"]
    assert front[0] == {"trial_id": 3, "steps_completed": 7, "metrics": {"size": 8.0, "loss": 0.25}}


def test_a_search_by_one_metric_has_no_front(master, det, det_json) -> None:
    master.create(CreateExperiment(config={"name": "x", "searcher": {"name": "single", "metric": "loss"}}))
    assert "Pareto" not in det("e", "describe", 1).stdout
    assert "pareto_front" not in det_json("e", "describe", 1)


def test_what_is_left_of_budgets_is_said_in_words() -> None:
    budgets = [
        BudgetView(name="slot_hours", limit=4, used=2.75),
        BudgetView(name="wall_clock", limit=7200, used=9000),
    ]
    assert budgets_left(budgets) == "1.25 of 4 slot hours left, 0s of 2h 00m left"


def test_trials_are_listed_with_why_they_were_stopped(master, det) -> None:
    master.add_experiment()
    master.add_trial(1)
    assert "Why" not in det("e", "list-trials", 1).stdout
    master.add_trial(1, stop_evidence="at epoch 30: 0.912, needed 0.915 (threshold)")
    master.add_trial(1, would_stop=["at epoch 2: 0.4 (median)"])
    shown = det("e", "describe", 1).stdout
    assert "at epoch 30: 0.912, needed 0.915 (threshold)" in shown
    assert "not stopped: at epoch 2: 0.4 (median)" in shown


def test_clones_of_a_population_are_listed_with_their_parents(master, det) -> None:
    master.add_experiment()
    master.add_trial(1, stop_evidence="place 2 of 2 in round 1: replaced by a clone of the best")
    assert "Parent" not in det("trial", "list", 1).stdout
    clone = master.add_trial(1, parent=ParentView(trial_id=2, parent_id=41, steps_completed=9))
    head, *_, last = det("trial", "list", 1).stdout.splitlines()
    assert head.split()[:2] == ["Trial", "Parent"]
    assert last.split()[:2] == [str(clone.id), "41"]
    assert "trial 41, step 9" in det("trial", "describe", clone.id).stdout
    assert "replaced by a clone of the best" in det("trial", "describe", 1).stdout
    one = ReplayedTrial(id=2, index=1, request_id="b", hparams={}, state="running", parent=clone.parent)
    master.replays[1] = [ReplayedSearch(at=1, events=1, progress=0.5, trials_total=2, trials=[one], over=False)]
    assert det("search", "replay", 1).stdout.splitlines()[-1].split()[:2] == ["2", "41"]


@pytest.mark.parametrize(
    ("state", "phase", "told"),
    [
        ("ACTIVE", "waiting", "drawn when it starts"),
        ("CANCELED", "ended", "none: it ended before it started"),
    ],
)
def test_a_trial_without_a_point_says_whether_it_gets_one(master, det, state, phase, told) -> None:
    master.add_experiment()
    view = master.add_trial(1, state=TrialState(state), hparams={}, point_due=True)
    assert told in det("trial", "list", 1).stdout
    assert f"hyperparameters: {told}" in det("trial", "describe", view.id).stdout
    assert told in TrialFacts(view)._repr_html_()
    one = ReplayedTrial(id=view.id, index=0, request_id="a", hparams={}, state=phase, point_due=True)
    master.replays[1] = [ReplayedSearch(at=1, events=1, progress=0.5, trials_total=2, trials=[one], over=False)]
    assert told in det("search", "replay", 1).stdout


def test_a_search_with_two_objectives_shows_both_and_the_size_of_the_front(two_metrics, det) -> None:
    shown = det("search", "show", 1).stdout
    assert ", for the least loss and the least size" in shown
    assert "2 trials: det experiment describe 1" in shown
    assert "metrics=" not in shown
    assert "best val_loss so far" in shown or "best loss so far" in shown


def test_a_trial_that_breaks_a_constraint_says_why_it_has_no_best(two_metrics, det) -> None:
    two_metrics.update_trial(1, latest_validation=0.1)
    two_metrics.update_trial(2, latest_validation=0.3, best_validation=0.3)
    told = "no best: no report keeps the constraints on size"
    assert det("trial", "list", 1).stdout.count(told) == 1


def test_following_tells_once_what_a_policy_would_have_stopped() -> None:
    trial = TrialView(id=3, index=0, experiment_id=1, request_id="r", state=TrialState.ACTIVE)
    story = Story()
    story.trial(trial)
    noted = trial.model_copy(update={"would_stop": ["at epoch 2: 0.4 (median)"]})
    assert story.trial(noted) == ["trial 3: a policy would have stopped it at epoch 2: 0.4 (median)"]
    assert story.trial(noted) == []


def test_following_tells_what_is_left_of_budgets_with_each_new_best() -> None:
    best = BestView(trial_id=3, trial_index=0, steps_completed=5, value=0.5)
    budget = BudgetView(name="slot_hours", limit=4, used=1)
    view = ExperimentView(
        id=1, name="x", owner="alice", state=ExperimentState.ACTIVE, metric="loss", best=best, budgets=[budget]
    )
    [line] = Story().experiment(view)
    assert line.endswith(", 3 of 4 slot hours left")


def test_the_best_point_of_several_seeds_is_told_by_mean_and_deviation(master, det) -> None:
    master.create(CreateExperiment(config={"name": "x", "searcher": {"name": "random", "seeds": 2, "metric": "loss"}}))
    number = max(master.experiments)
    for lr, value in ((0.1, 0.1), (0.1, 0.9), (0.2, 0.25), (0.2, 0.35), (0.3, 0.01)):
        master.add_trial(number, hparams={"lr": lr}, best_validation=value)
    told = det("e", "describe", number).stdout
    assert " 0.3 ± 0.071 over 2 seeds (trials 3, 4)" in told  # not the trial with the best value, nor one seed alone
    listed = det("trial", "list", number).stdout.splitlines()
    assert "Mean ± sd" in listed[0]
    assert ["0.3 ± 0.071" in line for line in listed[2:]] == [False, False, True, True, False]
    master.create(CreateExperiment(config={"name": "y", "searcher": {"name": "random", "metric": "loss"}}))
    assert "best point" not in det("e", "describe", max(master.experiments)).stdout


@pytest.mark.parametrize("words", [("t", "list", 1), ("e", "list-trials", 1)])
def test_any_metric_is_a_column_of_trials_and_the_front_is_marked(two_metrics, det, det_json, words) -> None:
    """Only the searcher's metric was there, and of several objectives the first."""
    shown = det(*words, "--metric", "nowhere")
    header = next(line for line in shown.stdout.splitlines() if line.startswith("Trial"))
    for title in ("Best", "Latest", "Last loss", "Last size", "Last nowhere", "Pareto"):
        assert header.count(title) == 1
    assert "has reported 'nowhere'" in shown.stderr
    told = det_json(*words)
    front = {one["trial_id"] for one in det_json("e", "describe", 1)["pareto_front"]}
    assert {one["id"] for one in told if one["pareto"]} == front
    assert all({"loss", "size"} <= one["metrics"].keys() for one in told if one["pareto"])
    assert "metrics.size" in det(*words, "--csv").stdout.splitlines()[0].split(",")
