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
from testbed import other_clock, waiting
from testbed.slurm import ACCOUNT

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(480)]

MINUTE = 60
HOUR = 3600
TRIALS = Path(__file__).parents[1] / "trials"


@pytest.fixture(scope="module")
def place() -> Iterator[SlurmLab]:
    with slurm_lab() as made:
        yield made


@pytest.fixture(autouse=True)
def no_job_is_left(place: SlurmLab) -> Iterator[None]:
    yield
    waiting.until(lambda: not place.slurm.jobs(), lambda: f"jobs are left: {place.slurm.ask('squeue')}", MINUTE)


def submit(
    place: SlurmLab,
    slurm: dict[str, Any] | None = None,
    slots: int = 1,
    single: bool = False,
    restarts: int = 0,
    **hparams: Any,
) -> Experiment:
    config = {
        "name": "toy",
        "entrypoint": "python3 toy.py",
        "runtime": "slurm",
        "hyperparameters": {"x": 1.0, "steps": 40, "pause": 0.25, "save_every": 4, **hparams},
        "searcher": {"name": "single", "metric": "error"},
        "resources": {"resource_pool": "slurm", "slots_per_trial": slots, "is_single_node": single},
        "max_restarts": restarts,
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
    told = f"{place.agent.log[-3000:]}\n{place.slurm.logs()}"
    assert (trial.view.run, trial.view.restarts) == (attempts, 0), told
    assert place.lab.steps(trial) == list(range(1, steps + 1))
    return trial


def waits_for(place: SlurmLab, made: Experiment, what: str) -> None:
    """Wait until a pattern is in the reason why a trial waits: Slurm knows the reason a moment after the job."""

    def reason() -> str:
        return place.lab.first_trial(made).view.pending_reason or "none"

    waiting.until(lambda: re.search(what, reason()), reason, MINUTE)


def said_of(place: SlurmLab, made: Experiment) -> str:
    """Wait for the end of what Slurm does not take; return what the card of its trial says."""
    ended = place.lab.finish(made, MINUTE)
    card = place.lab.trial(place.lab.first_trial(ended)).view.card
    assert card is not None, place.lab.tell(ended)
    return card.message


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
    place.slurm.save(job_of(place, trial))
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
    ).strip()
    running = ("squeue", "-h", "-t", "running", "-j", other)
    waiting.until(lambda: place.slurm.ask(*running), lambda: place.slurm.ask("scontrol", "show", "node"), MINUTE)
    third = submit(place, steps=2)
    waits_for(place, third, r"Slurm job \d+: (Resources|Priority)")
    assert place.lab.first_trial(third).view.display_state == "QUEUED"
    place.slurm.ask("scancel", other)
    went_on(place, third, 1, 2)


def test_a_waiting_job_is_killed_at_once(place: SlurmLab) -> None:
    made = submit(place, {"sbatch_args": ["--begin=now+1hour"]})
    waits_for(place, made, "BeginTime, expected to start")
    made.kill()
    place.lab.finish(made, MINUTE)


def test_a_partition_that_does_not_exist_is_told_in_slurms_words(place: SlurmLab) -> None:
    message = said_of(place, submit(place, {"partition": "nope"}))
    assert "Invalid partition name specified" in message or "invalid partition specified: nope" in message


def test_an_account_that_does_not_exist_is_told_in_slurms_words(place: SlurmLab) -> None:
    refused = submit(place, {"account": "nobodys"}, restarts=3)
    message = said_of(place, refused)
    assert "Invalid account or account/partition combination specified" in message
    assert place.lab.first_trial(refused).view.run == 1, "it is not tried again"
    went_on(place, submit(place, {"account": ACCOUNT}, steps=2), 1, 2)


def test_what_no_node_has_is_told_in_slurms_words(place: SlurmLab) -> None:
    message = said_of(place, submit(place, {"gpu_type": "h100"}, slots=2))
    assert "Requested node configuration is not available" in message or "Invalid generic resource" in message


def test_a_job_that_its_partition_is_too_small_for_is_refused_in_slurms_words_and_not_tried_again(
    place: SlurmLab,
) -> None:
    """Slurm takes it, as sites set it up that do not enforce limits at submission: it would wait forever."""
    assert not place.slurm.ask("scontrol", "create", "PartitionName=one", "Nodes=n0", "State=UP")
    made = submit(place, {"partition": "one"}, slots=4, restarts=3)
    assert "PartitionNodeLimit: it asks for more nodes than its partition has" in said_of(place, made)
    assert place.lab.first_trial(made).view.run == 1
    assert not place.slurm.ask("scontrol", "delete", "PartitionName=one")


@pytest.mark.skipif(bool(other_clock.missing()), reason=other_clock.missing())
@pytest.mark.parametrize("hours", [-5, 5])
def test_on_a_node_whose_clock_is_another_one_nothing_is_lost(place: SlurmLab, hours: int) -> None:
    clock = other_clock.other_clock(place.slurm.directory, hours * HOUR)
    began = time.time()
    made = submit(place, {"setup": "\n".join(f"export {name}={value}" for name, value in clock.items())})
    trial = place.lab.at_step(place.lab.first_trial(made), 12, MINUTE)
    place.slurm.ask("scancel", job_of(place, trial))
    trial = went_on(place, made, 2)
    starts = place.lab.journal(trial, "start")
    assert len(starts) == 2
    for _, at, _ in starts:
        assert abs(at - hours * HOUR - began) < 5 * MINUTE, "it had another clock"
    assert int(starts[1][2][0]) >= 4, "it went on from its newest checkpoint"
    for at in (trial.view.started_at, trial.view.ended_at):
        assert at is not None
        assert began - MINUTE < at < time.time() + MINUTE, "the master goes by its own"


def test_more_than_the_cluster_has_is_refused_at_submission(place: SlurmLab) -> None:
    with pytest.raises(ResourcesError, match="needs 5 slots; all nodes of Slurm have 4"):
        submit(place, slots=5)
    with pytest.raises(ResourcesError, match="needs 3 slots of one node; the largest node of Slurm has 2"):
        submit(place, slots=3, single=True)
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
    assert {"slurm.time", "slurm.sbatch_args[0]", "slurm.container", "slurm.modules[0]"} <= paths


def test_a_pool_has_one_batch_system(place: SlurmLab) -> None:
    folder = place.agent.folder / "second"
    folder.mkdir()
    second = SlurmAgent(place.lab.cluster, place.slurm, folder, ("--name", "second"))
    try:
        second.start(says="the batch system of agent batch places the tasks of pool slurm")
    finally:
        second.end()
