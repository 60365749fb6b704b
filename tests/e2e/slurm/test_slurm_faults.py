"""What becomes of trials when Slurm, its daemons, an operator or a time limit get in their way, on a real Slurm."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_lab import SlurmAgent, SlurmLab, slurm_lab
from spine_lab import until

from detlab.client.resources import Experiment, Trial
from detlab.errors import ConfigError, ResourcesError

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(480)]

MINUTE = 60
TRIALS = Path(__file__).parents[1] / "trials"


@pytest.fixture(scope="module")
def place() -> Iterator[SlurmLab]:
    with slurm_lab() as made:
        yield made


@pytest.fixture(autouse=True)
def no_job_is_left(place: SlurmLab) -> Iterator[None]:
    yield
    until("no job is left", lambda: not place.slurm.jobs(), MINUTE)


def submit(place: SlurmLab, slurm: dict[str, Any] | None = None, slots: int = 1, **hparams: Any) -> Experiment:
    config = {
        "name": "toy",
        "entrypoint": "python3 toy.py",
        "runtime": "slurm",
        "hyperparameters": {"x": 1.0, "steps": 40, "pause": 0.25, "save_every": 4, **hparams},
        "searcher": {"name": "single", "metric": "error"},
        "resources": {"resource_pool": "slurm", "slots_per_trial": slots},
        "max_restarts": 0,
        "slurm": slurm or {},
    }
    return place.lab.client.create_experiment(config, TRIALS)


def job_of(place: SlurmLab, trial: Trial) -> str:
    """The number of the trial's live job: there is one."""
    view = place.lab.trial(trial).view
    lines = place.slurm.ask("squeue", "-h", "-o", "%A %j").splitlines()
    (found,) = [number for number, name in map(str.split, lines) if f".{view.request_id}." in name]
    return found


def went_on(place: SlurmLab, made: Experiment, attempts: int, steps: int = 40) -> Trial:
    """Wait for the end; each step was reported once, however many attempts there were, and none counts as a failure."""
    (trial,) = place.lab.completed(made, 4 * MINUTE).list_trials()
    assert (trial.view.run, trial.view.restarts) == (attempts, 0), place.agent.log[-3000:]
    assert place.lab.steps(trial) == list(range(1, steps + 1))
    return trial


def test_a_cancelled_job_is_no_failure_of_its_trial(place: SlurmLab) -> None:
    made = submit(place)
    trial = place.lab.at_step(place.lab.first_trial(made), 6, MINUTE)
    place.slurm.ask("scancel", job_of(place, trial))
    went_on(place, made, 2)


def test_a_job_that_an_operator_requeues_does_not_run_a_second_time(place: SlurmLab) -> None:
    made = submit(place)
    trial = place.lab.at_step(place.lab.first_trial(made), 6, MINUTE)
    job = job_of(place, trial)
    assert "disabled" in place.slurm.ask("scontrol", "requeue", job), "as detlab submits it, Slurm does not even try"
    place.slurm.ask("scontrol", "update", f"JobId={job}", "Requeue=1")
    assert not place.slurm.ask("scontrol", "requeue", job)
    went_on(place, made, 2)
    assert len(place.lab.journal(trial, "start")) == 2


def test_at_the_time_limit_a_trial_has_saved_and_left_and_goes_on_in_the_next_job(place: SlurmLab) -> None:
    made = submit(place, {"time": 1, "leave_seconds": 20}, steps=150)
    (trial,) = place.lab.completed(made, 6 * MINUTE).list_trials()
    assert trial.view.run >= 2
    assert trial.view.restarts == 0
    assert place.lab.steps(trial) == list(range(1, 151)), "no metric is lost or doubled"
    assert "TIMEOUT" not in place.slurm.ask("squeue", "-h", "-t", "all", "-o", "%T")


def test_a_trial_runs_on_while_the_controller_is_dead_and_what_was_submitted_then_starts_once(place: SlurmLab) -> None:
    made = submit(place, steps=80)
    trial = place.lab.at_step(place.lab.first_trial(made), 32, MINUTE)
    place.slurm.controller.kill()
    late = submit(place, steps=4)
    reached = place.lab.trial(trial).view.steps_completed
    place.lab.at_step(trial, reached + 30, MINUTE)
    waiting = until("it waits", lambda: place.lab.first_trial(late).view.pending_reason, MINUTE)
    assert "Slurm does not answer" in waiting
    place.slurm.controller.start()
    went_on(place, made, 1, 80)
    went_on(place, late, 1, 4)


def test_a_job_that_the_dying_controller_forgot_is_started_again_and_counts_for_nothing(place: SlurmLab) -> None:
    """It saves its jobs every five seconds, and gives out the numbers of those that it forgot again."""
    made = submit(place)
    place.lab.at_step(place.lab.first_trial(made), 1, MINUTE)
    place.slurm.controller.kill()
    place.slurm.controller.start()
    (trial,) = place.lab.completed(made, 4 * MINUTE).list_trials()
    assert trial.view.run <= 2, place.agent.log[-3000:]
    assert trial.view.restarts == 0
    assert place.lab.steps(trial) == list(range(1, 41))


def test_a_trial_survives_the_death_of_its_nodes_daemon(place: SlurmLab) -> None:
    made = submit(place)
    trial = place.lab.at_step(place.lab.first_trial(made), 4, MINUTE)
    for node in place.slurm.nodes.values():
        node.kill()
    time.sleep(2)
    for node in place.slurm.nodes.values():
        node.start()
    assert trial.id
    went_on(place, made, 1)


def test_a_trial_is_adopted_by_the_next_agent(place: SlurmLab) -> None:
    made = submit(place)
    place.lab.at_step(place.lab.first_trial(made), 4, MINUTE)
    place.agent.kill()
    time.sleep(2)
    place.agent.start()
    went_on(place, made, 1)


def test_while_a_job_waits_the_reason_is_slurms_own_and_it_is_queued(place: SlurmLab) -> None:
    other = place.slurm.ask(
        "sbatch", "--parsable", "--nodes=2", "--gres=gpu:2", "--output=/dev/null", "--wrap=srun sleep 300"
    )
    third = submit(place, steps=2)
    reason = until("the reason", lambda: place.lab.first_trial(third).view.pending_reason, MINUTE)
    assert re.search(r"Slurm job \d+: (Resources|Priority)", reason), reason
    assert place.lab.first_trial(third).view.display_state == "QUEUED"
    place.slurm.ask("scancel", other.strip())
    went_on(place, third, 1, 2)


def test_a_waiting_job_is_killed_at_once(place: SlurmLab) -> None:
    made = submit(place, {"sbatch_args": ["--begin=now+1hour"]})
    reason = until("the reason", lambda: place.lab.first_trial(made).view.pending_reason, MINUTE)
    assert "BeginTime, expected to start" in reason
    made.kill()
    place.lab.finish(made, MINUTE)


def test_a_partition_that_does_not_exist_is_told_in_slurms_words(place: SlurmLab) -> None:
    made = place.lab.finish(submit(place, {"partition": "nope"}), MINUTE)
    card = place.lab.trial(place.lab.first_trial(made)).view.card
    assert card is not None
    assert "Invalid partition name specified" in card.message or "invalid partition specified: nope" in card.message


def test_more_than_the_cluster_has_is_refused_at_submission(place: SlurmLab) -> None:
    with pytest.raises(ResourcesError, match="needs 5 slots; all nodes of Slurm have 4"):
        submit(place, slots=5)
    with pytest.raises(ResourcesError, match="needs 3 slots of one node; the largest node of Slurm has 2"):
        submit(place, {"slots_per_node": 3})
    with pytest.raises(ResourcesError, match="3 slots, which cannot be divided into nodes of 2"):
        submit(place, {"slots_per_node": 2}, slots=3)
    done = place.lab.cluster.det(
        "cmd", "run", "--slots", "3", "--config", "resources.resource_pool=slurm", "--config", "runtime=slurm", "true"
    )
    assert "needs 3 slots of one node; the largest node of Slurm has 2" in done.stderr, done.stderr


def test_mistakes_in_the_block_are_all_told_at_submission(place: SlurmLab) -> None:
    with pytest.raises(ConfigError) as refused:
        submit(place, {"time": "soon", "sbatch_args": ["--array=1-9"], "container": "podman", "modules": ["a;b"]})
    paths = {problem.path for problem in refused.value.problems}
    assert {"slurm.time", "slurm.sbatch_args", "slurm.container", "slurm.modules[0]"} <= paths


def test_a_pool_has_one_batch_system(place: SlurmLab) -> None:
    folder = place.agent.folder / "second"
    folder.mkdir()
    second = SlurmAgent(place.lab.cluster, place.slurm, folder, ("--name", "second"))
    try:
        second.start(says="the batch system of agent batch places the tasks of pool slurm")
    finally:
        second.end()
