"""One launch for several nodes: a launcher on each, told apart, and one end for all."""

import json
import signal

import pytest

from testbed.waiting import until

SAYS_WHERE = """
import json, os, pathlib, signal, sys, time
here = pathlib.Path(sys.argv[1])
info = json.loads(pathlib.Path(os.environ["DET_TASK_DIR"], "info.json").read_text())
rank = info["container_rank"]
def tell(what, value):
    partial = here / f"partial.{what}.{rank}"
    partial.write_text(json.dumps(value))
    partial.rename(here / f"{what}.{rank}")
def ended(number, frame):
    tell("ended", number)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else ended)
tell("where", [info["agent_id"], info["slot_ids"], os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["DET_SLOT_IDS"]])
while not (here / f"go.{rank}").exists():
    time.sleep(0.05)
sys.exit(int((here / f"go.{rank}").read_text()))
"""


@pytest.fixture
def place(open_tmp):
    found = open_tmp / "said"
    found.mkdir()
    found.chmod(0o777)
    return found


def start(master, agent, place, counts, *words):
    slots = [f"any{number}" for number in range(sum(counts))]
    task = master.allocate(["python3", "-c", SAYS_WHERE, str(place), *words], runtime="slurm", slots=slots)
    task.launch.info.container_slot_counts = list(counts)
    task.launch.info.container_addrs = ["127.0.0.1"] * len(counts)
    master.send(task.launch)
    master.wait_for(lambda: task.exits or task.started, timeout=60)
    until(lambda: len(list(place.glob("where.*"))) == len(counts), lambda: agent.log.read_text()[-3000:], 60)
    return task


def go(place, rank, status):
    partial = place / f"partial.go.{rank}"
    partial.write_text(str(status))
    partial.rename(place / f"go.{rank}")


def told(place, what, rank):
    return json.loads((place / f"{what}.{rank}").read_text())


def nothing_is_left(agent, task):
    name = task.launch.allocation_id
    until(lambda: f"detlab-{name}" not in agent.slurm.jobs(), "the job stays", 40)
    places = (agent.directory / "tasks", agent.directory / "slurm")

    def left():
        return [path for place in places for path in place.iterdir() if path.name.startswith(name)]

    until(lambda: not left(), left, 20)


def test_each_node_gets_its_part_and_the_trial_ends_well_when_all_have(master, agent, place):
    task = start(master, agent, place, [2, 2])
    assert told(place, "where", 0) == ["agent/n0", [0, 1], "0,1", "[0, 1]"]
    assert told(place, "where", 1) == ["agent/n1", [0, 1], "0,1", "[0, 1]"]
    assert len([name for name in agent.slurm.jobs() if name.startswith("detlab-")]) == 1
    go(place, 1, 0)
    ended = f"{task.launch.allocation_id}.*.exit.1"
    until(lambda: [*(agent.directory / "slurm").glob(ended)], "rank 1 does not end", 20)
    assert not task.exits, "the others go on"
    go(place, 0, 0)
    master.wait_for(lambda: task.exits, timeout=40)
    assert (task.exits[0].exit_code, task.exits[0].reason) == (0, "")
    nothing_is_left(agent, task)


def test_the_others_are_asked_to_end_when_one_has_failed_and_its_status_is_told(master, agent, place):
    task = start(master, agent, place, [1, 1])
    go(place, 1, 7)
    master.wait_for(lambda: task.exits, timeout=40)
    assert told(place, "ended", 0) == signal.SIGTERM
    assert task.exits[0].exit_code == 7
    nothing_is_left(agent, task)


def test_a_gang_that_is_killed_is_asked_on_all_nodes_and_then_killed_on_all(master, agent, place):
    task = start(master, agent, place, [1, 1])
    master.send_kill(task, grace=30.0)
    master.wait_for(lambda: task.exits, timeout=40)
    assert [told(place, "ended", rank) for rank in (0, 1)] == [signal.SIGTERM] * 2
    nothing_is_left(agent, task)


def test_a_gang_that_does_not_listen_is_killed(master, agent, place):
    task = start(master, agent, place, [1, 1], "deaf")
    master.send_kill(task, grace=1.0)
    master.wait_for(lambda: task.exits, timeout=60)
    # The request to kill reaches the launchers; where Slurm has no cgroups, all processes below them as well.
    assert task.exits[0].exit_code in {-signal.SIGKILL, -signal.SIGUSR1}
    nothing_is_left(agent, task)


def test_a_gang_is_adopted_by_the_next_agent(master, agent, place):
    task = start(master, agent, place, [1, 1])
    agent.kill()
    master.wait_for(lambda: not master.connected())
    agent.start()
    master.wait_for(master.connected)
    go(place, 0, 0)
    go(place, 1, 5)
    master.wait_for(lambda: task.exits, timeout=40)
    assert task.exits[0].exit_code == 5
    nothing_is_left(agent, task)
