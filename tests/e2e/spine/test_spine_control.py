"""Steering: pause, activate, cancel, kill; and the exit statuses of the commands that wait."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import yaml
from spine_lab import TRIALS, Lab, following, single, until

from detlab.client.resources import Experiment, Trial
from detlab.schemas.wire import AllocationState, EndReason, ExperimentState, TrialState

pytestmark = pytest.mark.hub

LONG = {"steps": 100_000, "save_every": 5, "every": 1000}


def running(lab: Lab, experiment: Experiment, step: int = 5) -> int:
    """Wait until the only trial trains; return its id."""
    return lab.at_step(lab.first_trial(experiment), step).id


def at(lab: Lab, trial_id: int, state: AllocationState) -> Trial | None:
    """The trial if its newest attempt is in this state."""
    now = lab.client.get_trial(trial_id)
    return now if now.view.allocation_state is state else None


def test_pause_frees_the_slot_and_activate_goes_on_from_the_checkpoint(lab: Lab) -> None:
    experiment = lab.submit(single("toy.py", hparams=LONG))
    trial = running(lab, experiment, 6)
    with following(lab.cluster, "e", "wait", str(experiment.id)) as waiter:
        experiment.pause()
        assert experiment.reload().state is ExperimentState.PAUSED
        paused = until("the task has left", lambda: at(lab, trial, AllocationState.TERMINATED), 15)
        assert paused.state is TrialState.PAUSED
        assert not lab.slots_of(experiment)
        ((_, _, (saved,)),) = lab.journal(paused, "preempted")
        assert waiter.poll() is None, "a paused experiment has not ended"
        experiment.activate()
        on = until("it runs again", lambda: at(lab, trial, AllocationState.RUNNING), 20)
        lab.at_step(on, int(saved) + 3)
        assert (on.view.run, on.view.restarts) == (2, 0)
        experiment.kill()
        output, _ = waiter.communicate(timeout=30)
        assert waiter.returncode == 3, output
        assert "CANCELED" in output
    ended = lab.finish(experiment)
    assert ended.state is ExperimentState.CANCELED
    assert [int(more[0]) for _, _, more in lab.journal(on, "start")] == [0, int(saved)]
    steps = lab.steps(on)
    assert steps == list(range(1, len(steps) + 1))


def test_cancel_lets_the_trial_save_and_kill_does_not(lab: Lab) -> None:
    gentle, hard = (lab.submit(single("toy.py", hparams=LONG)) for _ in range(2))
    for experiment in (gentle, hard):
        running(lab, experiment)
    gentle.cancel()
    hard.kill()
    started = time.monotonic()
    for experiment, reason in ((gentle, EndReason.CANCELED), (hard, EndReason.KILLED)):
        ended = lab.finish(experiment, 20)
        assert ended.state is ExperimentState.CANCELED
        (trial,) = ended.list_trials()
        assert trial.state is TrialState.CANCELED
        assert trial.view.end_reason is reason
        assert trial.view.restarts == 0
        assert trial.view.failure is None
    assert time.monotonic() - started < 15
    assert lab.journal(lab.first_trial(gentle), "preempted")
    assert not lab.journal(lab.first_trial(hard), "preempted")
    with pytest.raises(Exception, match="cannot be activated"):
        gentle.activate()


def test_follow_and_wait_exit_0_only_on_completed(lab: Lab, tmp_path: Path) -> None:
    def write(name: str, **more: object) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(single(**more)))
        return str(path)

    good = write("good", script="toy.py", hparams={"steps": 3})
    bad = write("bad", script="dies_on_start.py")
    endless = write("endless", script="toy.py", hparams=LONG)
    with (
        following(lab.cluster, "e", "create", good, str(TRIALS), "--follow") as completes,
        following(lab.cluster, "e", "create", bad, str(TRIALS), "-f") as fails,
        following(lab.cluster, "e", "create", endless, str(TRIALS), "-f") as canceled,
    ):
        output, errors = completes.communicate(timeout=60)
        assert completes.returncode == 0, output + errors
        assert "TOY done" in output
        assert "COMPLETED" in output
        output, errors = fails.communicate(timeout=60)
        assert fails.returncode == 4, output + errors
        assert "I will not start" in output
        live = until("the endless one", lambda: lab.client.list_experiments(limit=1, state="ACTIVE"), 20)
        running(lab, live[0])
        late = lab.cluster.det("e", "wait", str(live[0].id), "--timeout", "0.3")
        assert late.returncode == 5, late.stdout + late.stderr
        live[0].cancel()
        output, errors = canceled.communicate(timeout=60)
        assert canceled.returncode == 3, output + errors


def test_ctrl_c_stops_following_and_never_the_experiment(lab: Lab) -> None:
    experiment = lab.submit(single("toy.py", hparams=LONG))
    trial = running(lab, experiment)
    with following(lab.cluster, "t", "logs", str(trial), "-f") as process:
        assert process.stdout is not None
        assert "TOY" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
        assert process.returncode == 130, output + errors
        assert "Traceback" not in errors
    assert lab.at_step(lab.client.get_trial(trial), lab.client.get_trial(trial).view.steps_completed + 2)
    experiment.kill()


def test_a_pause_that_a_trial_does_not_hear_ends_it_after_the_preemption_timeout_uncounted(lab: Lab) -> None:
    experiment = lab.submit(single("never_exits.py", preemption_timeout=1))
    trial = running(lab, experiment, 1)
    experiment.pause()
    began = time.monotonic()
    paused = until("it has left", lambda: at(lab, trial, AllocationState.TERMINATED), 15)
    assert 0.8 <= time.monotonic() - began <= 6.0
    assert paused.state is TrialState.PAUSED
    assert paused.view.restarts == 0
    assert paused.view.failure is None
    experiment.kill()
    assert lab.finish(experiment).state is ExperimentState.CANCELED


def test_killing_one_trial_of_a_search_lets_the_others_go_on(lab: Lab) -> None:
    config = single("toy.py", hparams={"steps": 40})
    config["searcher"] |= {"name": "random", "max_trials": 3, "max_concurrent_trials": 2}
    search = lab.submit(config)
    victim = lab.at_step(lab.first_trial(search), 2)
    victim.kill()
    ended = lab.completed(search)
    states = {trial.id: trial.view.end_reason for trial in ended.list_trials()}
    assert states.pop(victim.id) is EndReason.KILLED
    assert set(states.values()) == {EndReason.COMPLETED}
    assert len(states) == 2


def test_what_waits_for_a_slot_says_why(lab: Lab) -> None:
    everything = lab.cluster.slots
    wide = lab.submit(single("toy.py", resources={"slots_per_trial": everything}, entrypoint=["sleep", "1000"]))
    until("it holds all slots", lambda: len(lab.slots_of(wide)) == everything, 40)
    late = lab.submit(single("toy.py", hparams={"steps": 1}))
    trial = lab.first_trial(late)
    waiting = until("a reason", lambda: (now := lab.trial(trial)).view.pending_reason and now, 10)
    assert waiting.view.display_state == "QUEUED"
    shown = lab.cluster.det("e", "describe", str(late.id))
    assert "slot" in (waiting.view.pending_reason or "")
    assert (waiting.view.pending_reason or "") in shown.stdout
    wide.kill()
    lab.completed(late)


def test_a_warm_start_begins_with_the_weights_of_another_trial(lab: Lab) -> None:
    source = lab.completed(lab.submit(single("toy.py", hparams={"steps": 4, "save_every": 4})))
    config = single("toy.py", hparams={"steps": 6})
    config["searcher"]["source_trial_id"] = source.list_trials()[0].id
    (warm,) = lab.completed(lab.submit(config)).list_trials()
    assert [more[0] for _, _, more in lab.journal(warm, "start")] == ["4"]
    assert lab.steps(warm) == [5, 6]
