"""What processes add to the contract of runtimes: stops that reach behind a shell, and shares of devices."""

import shlex
import sys
import time

from agent_helpers import trial


def exited(allocation):
    return lambda: allocation.exits


def test_a_stop_gives_the_program_its_time_though_the_shell_around_it_dies(master, agent):
    # A string entrypoint runs under `sh -c`, and dash dies of SIGTERM at once: the program had one second then, and
    # was sent SIGTERM a second time.
    program = """
import signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append("asked"))
print("up", flush=True)
while not asked:
    time.sleep(0.02)
time.sleep(2.5)
print("saved after", *asked, flush=True)
"""
    task = master.launch(f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}")
    master.wait_for(lambda: "up" in master.texts(task))
    began = time.monotonic()
    master.send_kill(task, grace=20.0)
    master.wait_for(exited(task))
    assert master.texts(task) == ["up", "saved after asked"]
    assert time.monotonic() - began < 15
    assert agent.processes(task) == []


def test_a_program_that_ignores_its_stop_is_killed_after_the_grace_though_its_shell_died(master, agent):
    task = master.launch(shlex.join(trial("IgnoresSigterm")))
    master.wait_for(lambda: "up" in master.texts(task))
    began = time.monotonic()
    master.send_kill(task, grace=3.0)
    master.wait_for(exited(task))
    assert 3.0 <= time.monotonic() - began < 6.0
    assert agent.processes(task) == []


def test_two_tasks_share_a_device_and_each_sees_it_once(master, agent):
    """A share is a slot of its own: a task waits for who has the same share, and for nobody else."""
    say = "echo $OMP_NUM_THREADS $DET_UNIQUE_PORT_OFFSET $DET_DEVICE_SHARES; exec sleep 300"

    def shares(slots, parts):
        task = master.allocate(say, slots=slots)
        info = task.launch.info.model_copy(update={"slot_ids": [0], "device_shares": parts})
        master.send(task.launch.model_copy(update={"info": info}))
        return task

    first, second = shares(["cpu1.0", "cpu1.2"], [0.5]), shares(["cpu1.1"], [0.25])
    master.wait_for(lambda: master.texts(first) and master.texts(second), what="both run at the same time")
    assert not first.exits
    assert master.texts(first) == ["1 1 [0.5]"]
    assert master.texts(second) == ["1 3 [0.25]"], "programs choose ports by it: no other task has it"
    third = shares(["cpu1.2"], [0.25])
    master.send_kill(first, grace=0.2)
    master.wait_for(lambda: master.texts(third), what="its share is free")
    assert first.exits
    for task in (second, third):
        master.send_kill(task, grace=0.2)
        master.wait_for(exited(task))


def test_a_share_of_a_device_that_is_not_here_is_refused(master, agent):
    task = master.launch("true", slots=["cpu9.0"])
    master.wait_for(exited(task))
    assert task.exits[0].reason == "refused"
    assert "no slot cpu9" in task.exits[0].message
