"""Many small tasks as one job array: few submissions, and each still starts, ends and is found again on its own."""

import json

import pytest

from detlab.testing.runtimes import COUNTS_UNTIL_SIGTERM, IGNORES_SIGTERM
from detlab_agent.runtimes.slurm.client import THE_AGENTS, Commands
from testbed.waiting import until

SBATCH = """#!/bin/sh
# sbatch that counts its calls, and what may go wrong in one: the agent dies before, after or long before the array is
# there, the answer gets lost, or Slurm refuses.
echo "$@" >> {here}/calls
mode=$(cat {here}/mode 2>/dev/null); rm -f {here}/mode
case "$mode" in
before) kill -9 $(cat {here}/pid); exit 1 ;;
after) out=$(/usr/bin/sbatch "$@"); kill -9 $(cat {here}/pid); echo "$out" ;;
late) cat > {here}/script; kill -9 $(cat {here}/pid)
    for n in $(seq 600); do [ ! -e {here}/go ] || break; sleep 0.1; done
    /usr/bin/sbatch "$@" < {here}/script; touch {here}/done ;;
lost) /usr/bin/sbatch "$@" > /dev/null; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
full) echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)" >&2
    exit 1 ;;
*) exec /usr/bin/sbatch "$@" ;;
esac
"""
SAYS_WHO = "import os, sys; print('I am', sys.argv[1]); sys.exit(int(sys.argv[1]))"


@pytest.fixture
def agent_options():
    return ("--slurm-array-size", "20")


@pytest.fixture(autouse=True)
def sbatch(agent):
    program = agent.programs / "sbatch"
    program.write_text(SBATCH.format(here=agent.programs))
    program.chmod(0o755)


def calls(agent):
    path = agent.programs / "calls"
    return path.read_text().splitlines() if path.exists() else []


def launch(master, count, **options):
    """Launch tasks at the same time; the cluster has room for four of them."""
    program = ["python3", "-u", "-c", COUNTS_UNTIL_SIGTERM]
    return [master.launch(program, runtime="slurm", slots=["any0"], **options) for _ in range(count)]


def dies_in_a_launch(master, agent, mode, count=3):
    """Launch tasks, whose agent dies in the submission; start the next agent."""
    (agent.programs / "pid").write_text(str(agent.process.pid))
    (agent.programs / "mode").write_text(mode)
    tasks = launch(master, count)
    until(lambda: agent.process.poll() is not None, "the agent does not die", 30)
    agent.process.wait()
    next_agent(master, agent)
    return tasks


def next_agent(master, agent):
    master.wait_for(lambda: not master.connected())
    agent.start()
    master.wait_for(master.connected)


def members(agent, states="all"):
    """What Slurm has of arrays: id and state of each job."""
    lines = agent.slurm.ask("squeue", "-h", "--array", f"--states={states}", "-o", "%i %T %j").splitlines()
    return {line.split()[0]: line.split()[1] for line in lines if "_" in line.split()[0]}


def job_of(agent, task):
    record = json.loads((agent.directory / "tasks" / f"{task.launch.allocation_id}.json").read_text())
    return record["job_id"]


def run(master, tasks):
    for task in tasks:
        master.wait_for(lambda task=task: master.texts(task, "stdout"), timeout=40)


def run_to_their_ends(master, tasks):
    """All run, are asked to end, and have run once."""
    for task in tasks:
        master.wait_for(lambda task=task: master.texts(task, "stdout"), timeout=60)
        master.send_kill(task, grace=40.0)
        master.wait_for(lambda task=task: task.exits, timeout=60)
        assert task.exits[0].exit_code == 3
        words = [text.split() for text in master.texts(task, "stdout")]
        assert words == [*(["step", str(n)] for n in range(len(words) - 1)), ["last", str(len(words) - 1)]]


def nothing_is_left(agent):
    until(lambda: not members(agent, "pending,running,completing"), lambda: members(agent), 40)
    folder = agent.directory / "slurm"
    until(lambda: not list(folder.iterdir()), lambda: sorted(folder.iterdir()), 30)


def test_many_are_submitted_at_once_and_each_ends_as_itself(master, agent):
    tasks = [
        master.launch(["python3", "-c", SAYS_WHO, str(number)], runtime="slurm", slots=["any0"]) for number in range(7)
    ]
    for number, task in enumerate(tasks):
        master.wait_for(lambda task=task: task.exits, timeout=60)
        assert (task.exits[0].exit_code, master.texts(task, "stdout")) == (number, [f"I am {number}"])
    assert len(calls(agent)) == 1
    assert "--array=0,1,2,3,4,5,6" in calls(agent)[0]
    nothing_is_left(agent)


def test_the_kill_of_one_that_runs_and_of_one_that_waits_leaves_the_others(master, agent):
    tasks = launch(master, 7)
    first, others = tasks[0], tasks[1:4]
    run(master, [first, *others])
    waiting = tasks[4:]
    for task in waiting:
        master.wait_for(lambda task=task: task.stages and "Slurm job" in task.stages[-1].message, timeout=40)
    master.send_kill(waiting[0])
    master.wait_for(lambda: waiting[0].exits, timeout=40)
    assert not master.texts(waiting[0])
    assert [members(agent)[job_of(agent, task)] for task in waiting[1:]] == ["PENDING"] * 2
    master.send_kill(first, grace=40.0)
    master.wait_for(lambda: first.exits, timeout=40)
    assert first.exits[0].exit_code == 3
    run(master, waiting[1:2])
    assert not [task for task in [*others, *waiting[1:]] if task.exits]
    run_to_their_ends(master, [*others, *waiting[1:]])
    assert len(calls(agent)) == 1
    nothing_is_left(agent)


@pytest.mark.soak
def test_one_that_does_not_listen_is_killed_alone(master, agent):
    program = ["python3", "-u", "-c", IGNORES_SIGTERM]
    tasks = [master.launch(program, runtime="slurm", slots=["any0"]) for _ in range(6)]
    run(master, tasks[:4])
    master.send_kill(tasks[0], grace=1.0)
    master.wait_for(lambda: tasks[0].exits, timeout=60)
    run(master, tasks[4:5])
    assert not [task for task in tasks[1:] if task.exits]
    for task in tasks[1:]:
        master.send_kill(task, grace=0.0)
    for task in tasks[1:]:
        master.wait_for(lambda task=task: task.exits, timeout=60)
    nothing_is_left(agent)


@pytest.mark.soak
def test_one_that_an_operator_requeues_does_not_run_a_second_time_and_the_others_run_on(master, agent):
    tasks = launch(master, 6)
    run(master, tasks[:4])
    job = job_of(agent, tasks[0])
    agent.slurm.ask("scontrol", "update", f"JobId={job}", "Requeue=1")
    assert not agent.slurm.ask("scontrol", "requeue", job)
    master.wait_for(lambda: tasks[0].exits, timeout=60)
    assert (tasks[0].exits[0].exit_code, tasks[0].exits[0].reason) == (None, "machine_restarted")
    assert not [task for task in tasks[1:] if task.exits]
    run_to_their_ends(master, tasks[1:])
    nothing_is_left(agent)


@pytest.mark.soak
def test_an_array_that_an_operator_cancels_is_no_failure_of_any(master, agent):
    program = ["python3", "-u", "-c", "import time; print('up'); time.sleep(600)"]
    tasks = [master.launch(program, runtime="slurm", slots=["any0"]) for _ in range(7)]
    run(master, tasks[:4])
    # With a filter Slurm ends those that wait as one job, of which it knows no index any more.
    number = job_of(agent, tasks[0]).partition("_")[0]
    name = agent.slurm.ask("squeue", "-h", "-o", "%j").split()[0]
    agent.slurm.ask("scancel", f"--name={name}", number)
    for task in tasks:
        master.wait_for(lambda task=task: task.exits, timeout=60)
        assert (task.exits[0].exit_code, task.exits[0].reason) == (None, "machine_restarted"), task.exits
    nothing_is_left(agent)


@pytest.mark.soak
def test_an_array_that_was_submitted_is_adopted_though_its_number_was_never_noted(master, agent):
    before = set(members(agent))
    run_to_their_ends(master, dies_in_a_launch(master, agent, "after", 6))
    assert len(calls(agent)) == 1
    assert len(set(members(agent)) - before) == 6
    nothing_is_left(agent)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["before", "late"])
def test_launches_without_an_array_are_told_as_lost_and_one_that_comes_late_is_cancelled(master, agent, mode):
    tasks = dies_in_a_launch(master, agent, mode)
    for task in tasks:
        master.wait_for(lambda task=task: task.exits, timeout=40)
        assert (task.exits[0].exit_code, task.exits[0].reason) == (None, "machine_restarted")
    if mode == "late":
        (agent.programs / "go").touch()
        until((agent.programs / "done").exists, "sbatch hangs", 30)
    run_to_their_ends(master, launch(master, 3))
    nothing_is_left(agent)


def test_an_array_is_adopted_by_the_next_agent_with_those_that_run_and_those_that_wait(master, agent):
    tasks = launch(master, 6)
    run(master, tasks[:4])
    agent.kill()
    next_agent(master, agent)
    run_to_their_ends(master, tasks)
    assert len(calls(agent)) == 1
    nothing_is_left(agent)


def test_an_agent_that_is_killed_while_it_gathers_has_submitted_nothing(master, agent):
    tasks = launch(master, 3)
    records = agent.directory / "tasks"
    until(lambda: len(list(records.glob("*.json"))) == 3, "no records", 20)
    agent.kill()
    assert not calls(agent)
    next_agent(master, agent)
    for task in tasks:
        master.wait_for(lambda task=task: task.exits, timeout=40)
        assert task.exits[0].reason == "machine_restarted"
    nothing_is_left(agent)


@pytest.mark.soak
def test_an_array_whose_submission_got_no_answer_is_not_submitted_a_second_time(master, agent):
    (agent.programs / "mode").write_text("lost")
    run_to_their_ends(master, launch(master, 3))
    assert len(calls(agent)) == 1
    nothing_is_left(agent)


def test_each_of_an_array_that_is_refused_is_submitted_alone(master, agent):
    (agent.programs / "mode").write_text("full")
    run_to_their_ends(master, launch(master, 3))
    assert len(calls(agent)) == 4
    nothing_is_left(agent)


@pytest.mark.soak
def test_an_array_waits_for_a_controller_that_is_away(master, agent):
    agent.slurm.controller.kill()
    try:
        tasks = launch(master, 3)
        master.wait_for(lambda: tasks[0].stages, timeout=60)
        assert "Slurm does not answer" in tasks[0].stages[-1].message
        master.send_kill(tasks[1], grace=0.0)
    finally:
        agent.slurm.controller.start()
    run_to_their_ends(master, [tasks[0], tasks[2]])
    master.wait_for(lambda: tasks[1].exits, timeout=40)
    assert not master.texts(tasks[1])
    nothing_is_left(agent)


def test_arrays_of_any_size_are_listed_job_by_job_and_those_of_others_as_they_are(slurm):
    client = Commands(environ=slurm.environ, everyone=True)
    options = ("--begin=now+1hour", "--output=/dev/null", "--array=0-199")
    own = client.submit(("--job-name=detlab-array-1.a.1", *options), "#!/bin/sh\n", THE_AGENTS)
    others = client.submit(("--job-name=sweep", *options), "#!/bin/sh\n", THE_AGENTS)
    try:
        gone = [index for index in range(200) if index % 7 in {1, 2, 4}]
        slurm.ask("scancel", *(f"{own}_{index}" for index in gone))
        waiting = [job for job in client.jobs() if job.pending]
        assert sorted(int(job.label.rpartition("_")[2]) for job in waiting if job.name != "sweep") == [
            index for index in range(200) if index not in gone
        ]
        assert [job.id for job in waiting if job.name == "sweep"] == [f"{others}_[0-199]"]
        client.cancel(f"{own}_0", "detlab-array-1.a.1", at_once=True)
        client.cancel(f"{own}_3", "detlab-array-9.z.1", at_once=True)
        waiting = [job.id for job in client.jobs() if job.pending]
        assert (f"{own}_0" in waiting, f"{own}_3" in waiting) == (False, True)
    finally:
        slurm.ask("scancel", own, others)


def test_what_asks_for_something_else_is_in_another_array(master, agent):
    one = launch(master, 2)
    other = launch(master, 2, config={"slurm": {"time": "60"}})
    run_to_their_ends(master, [*one, *other])
    assert len(calls(agent)) == 2
    nothing_is_left(agent)
