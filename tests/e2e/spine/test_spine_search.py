"""A search on the real cluster: two at a time, and a Stop that is delivered."""

from __future__ import annotations

import pytest
from spine_lab import Lab, asha

from detlab.client.resources import Experiment, Trial
from detlab.schemas.wire import EndReason, TrialState

pytestmark = [pytest.mark.hub, pytest.mark.alone]


@pytest.fixture(scope="module")
def search(lab: Lab) -> Experiment:
    """An ASHA search of 8 toy trials, ended."""
    config = asha("toy.py", 8, 16, at_once=2, rungs=3, hparams={"steps": 400}, resources={"max_slots": 2})
    return lab.completed(lab.submit(config), 60)


def stop_times(lab: Lab, experiment: Experiment) -> dict[int, float]:
    """When the searcher stopped each trial: trial id -> seconds since the epoch."""
    query = "SELECT trial_id, preempt_at FROM allocations WHERE experiment_id = ? AND preempt_reason = 'stop'"
    return {row["trial_id"]: row["preempt_at"] for row in lab.rows(query, experiment.id)}


def test_asha_of_8_trials_runs_two_at_a_time(lab: Lab, search: Experiment) -> None:
    trials = search.list_trials()
    assert [trial.view.index for trial in trials] == list(range(8))
    assert {trial.state for trial in trials} == {TrialState.COMPLETED}
    stopped = [trial for trial in trials if trial.view.end_reason is EndReason.STOPPED]
    assert len(stopped) >= 4
    edges = sorted(
        edge
        for trial in trials
        if trial.view.started_at and trial.view.ended_at
        for edge in ((trial.view.started_at, 1), (trial.view.ended_at, -1))
    )
    assert len(edges) == 16
    running = [sum(change for _, change in edges[: index + 1]) for index in range(len(edges))]
    assert max(running) == 2
    best = min(trials, key=lambda trial: trial.view.best_validation or 9.0)
    assert search.view.best is not None
    assert search.view.best.trial_id == best.id
    assert all(trial.view.restarts == 0 for trial in trials)


def test_a_stopped_trial_that_polls_frees_its_slot_within_two_seconds_of_its_next_question(
    lab: Lab, search: Experiment
) -> None:
    times = stop_times(lab, search)
    assert set(times) == {trial.id for trial in search.list_trials()}
    for trial in search.list_trials():
        stop, ended = times[trial.id], trial.view.ended_at or float("inf")
        questions = [when for what, when, _ in lab.journal(trial) if what in ("asked", "preempted") and when >= stop]
        assert questions, f"trial {trial.id} never asked after its stop"
        assert ended - questions[0] <= 2.0, f"trial {trial.id}: {ended - questions[0]:.2f} s"


def test_slot_seconds_after_a_stop_are_about_nought(lab: Lab, search: Experiment) -> None:
    times = stop_times(lab, search)
    spent = [(trial.view.ended_at or 0) - times[trial.id] for trial in search.list_trials() if trial.id in times]
    assert len(spent) >= 4
    assert sum(spent) / len(spent) <= 1.5, spent


def _only_trial(lab: Lab, experiment: Experiment) -> Trial:
    (trial,) = lab.completed(experiment, 60).list_trials()
    assert trial.view.end_reason is EndReason.COMPLETED, "stopped at the end of what the search ever trains"
    return trial


def test_a_stopped_trial_that_never_polls_gets_sigterm_at_10_s(lab: Lab, stubborn: dict[str, Experiment]) -> None:
    experiment = stubborn["never_exits"]
    trial = _only_trial(lab, experiment)
    stop = stop_times(lab, experiment)[trial.id]
    assert trial.view.ended_at is not None
    assert 9.9 <= trial.view.ended_at - stop <= 12.5
    assert trial.view.failure is None


def test_a_stopped_trial_that_ignores_sigterm_gets_sigkill_5_s_later(lab: Lab, stubborn: dict[str, Experiment]) -> None:
    experiment = stubborn["ignores_sigterm"]
    trial = _only_trial(lab, experiment)
    stop = stop_times(lab, experiment)[trial.id]
    ((_, term, _),) = lab.journal(trial, "sigterm")
    last_sign = lab.journal(trial)[-1][1]
    assert trial.view.ended_at is not None
    assert 9.9 <= term - stop <= 11.5
    assert 4.8 <= last_sign - term <= 6.0
    assert 0.0 <= trial.view.ended_at - last_sign <= 2.0
