"""An agent that is killed at each step of a launch: no run is doubled, no job is left."""

import json
import sys
from pathlib import Path

import pytest

from detlab.testing.runtimes import COUNTS_UNTIL_SIGTERM
from testbed.waiting import until

SBATCH = """#!/bin/sh
# sbatch, and the death of the agent that calls it: before, after, or long before the job is there.
mode=$(cat {here}/mode 2>/dev/null); rm -f {here}/mode
case "$mode" in
before) kill -9 $(cat {here}/pid); exit 1 ;;
after) out=$(/usr/bin/sbatch "$@"); kill -9 $(cat {here}/pid); echo "$out" ;;
late) cat > {here}/script; kill -9 $(cat {here}/pid); sleep 3
    /usr/bin/sbatch "$@" < {here}/script; touch {here}/done ;;
*) exec /usr/bin/sbatch "$@" ;;
esac
"""


def dies_in_a_launch(master, agent, mode):
    """Launch a task, whose agent dies; start the next agent."""
    program = agent.programs / "sbatch"
    program.write_text(SBATCH.format(here=agent.programs))
    program.chmod(0o755)
    (agent.programs / "pid").write_text(str(agent.process.pid))
    (agent.programs / "mode").write_text(mode)
    task = launch(master)
    until(lambda: agent.process.poll() is not None, "the agent does not die", 30)
    agent.process.wait()
    master.wait_for(lambda: not master.connected())
    agent.start()
    master.wait_for(master.connected)
    return task


def launch(master):
    return master.launch(["python3", "-u", "-c", COUNTS_UNTIL_SIGTERM], runtime="slurm", slots=["any0"])


def jobs_of(agent, task, states="all"):
    name = f"detlab-{task.launch.allocation_id}"
    lines = agent.slurm.ask("squeue", "-h", f"--states={states}", "-o", "%A %j").splitlines()
    return [line.split()[0] for line in lines if line.split()[1] == name]


def runs_to_its_end(master, task):
    master.wait_for(lambda: master.texts(task, "stdout"), timeout=40)
    master.send_kill(task, grace=40.0)
    master.wait_for(lambda: task.exits, timeout=40)
    assert task.exits[0].exit_code == 3
    words = [text.split() for text in master.texts(task, "stdout")]
    assert words == [*(["step", str(n)] for n in range(len(words) - 1)), ["last", str(len(words) - 1)]]


def test_a_job_that_was_submitted_is_adopted_though_its_number_was_never_noted(master, agent):
    task = dies_in_a_launch(master, agent, "after")
    runs_to_its_end(master, task)
    assert len(jobs_of(agent, task)) == 1


@pytest.mark.parametrize("mode", ["before", "late"])
def test_a_launch_without_a_job_is_told_as_lost_and_a_job_that_comes_late_is_cancelled(master, agent, mode):
    task = dies_in_a_launch(master, agent, mode)
    master.wait_for(lambda: task.exits, timeout=40)
    assert (task.exits[0].exit_code, task.exits[0].reason) == (None, "machine_restarted")
    runs_to_its_end(master, launch(master))
    if mode == "late":
        until((agent.programs / "done").exists, "sbatch hangs", 30)
        until(lambda: not jobs_of(agent, task, "pending,running,completing"), "the late job stays", 40)
    else:
        assert not jobs_of(agent, task)


def test_what_the_setup_script_sets_reaches_the_task(master, agent):
    setup = "export CUDA_HOME=/apps/cuda PATH=/apps/cuda/bin:$PATH SLURM_NTASKS=8"
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    task = master.launch(
        ["python3", "-c", program], runtime="slurm", slots=["any0"], config={"slurm": {"setup": setup}}
    )  # fmt: skip
    master.wait_for(lambda: task.exits, timeout=60)
    (text,) = master.texts(task, "stdout")
    found = json.loads(text)
    places = found["PATH"].split(":")
    assert found["CUDA_HOME"] == "/apps/cuda"
    assert places[:2] == ["/apps/cuda/bin", str(Path(sys.executable).parent)]
    assert not [name for name in found if name.startswith("SLURM")]
    assert found["CUDA_VISIBLE_DEVICES"] in {"0", "1"}


@pytest.mark.soak
def test_a_launch_waits_for_a_controller_that_is_away(master, agent):
    agent.slurm.controller.kill()
    try:
        task = launch(master)
        master.wait_for(lambda: task.stages, timeout=60)
        assert task.stages[0].stage == "queued"
        assert "Slurm does not answer" in task.stages[0].message
    finally:
        agent.slurm.controller.start()
    runs_to_its_end(master, task)
    assert len(jobs_of(agent, task)) == 1


@pytest.mark.soak
def test_an_agent_that_starts_while_the_controller_is_away_adopts_its_jobs(master, agent):
    task = launch(master)
    master.wait_for(lambda: master.texts(task, "stdout"), timeout=60)
    agent.slurm.save(*jobs_of(agent, task))
    agent.slurm.controller.kill()
    try:
        agent.kill()
        master.wait_for(lambda: not master.connected())
        agent.start()
        master.wait_for(master.connected, timeout=60)
        assert [one.allocation_id for one in master.hellos[-1].tasks] == [task.launch.allocation_id]
    finally:
        agent.slurm.controller.start()
    runs_to_its_end(master, task)
    assert len(jobs_of(agent, task)) == 1
