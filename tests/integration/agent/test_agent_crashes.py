"""Deaths: of the agent, of the launcher, of the master, of the connection. No task and no record is lost."""

import json
import os
import signal
import time

import pytest
from agent_helpers import AgentProcess, trial, wait_until

from detlab.launch.host import procfs
from detlab.testing.master import MasterDouble
from detlab.testing.trial_api import TrialApiFault


def launcher_of(agent, task):
    return json.loads((agent.task_dir(task) / "launcher.json").read_text())


def exited(allocation):
    return lambda: allocation.exits


@pytest.mark.slow
def test_a_killed_agent_takes_the_same_process_up_again(master, agent):
    task = master.launch(trial("SlowTrial"))
    master.wait_for(lambda: "step 5" in master.texts(task))
    before = launcher_of(agent, task)
    first = master.hellos[-1].process
    agent.kill()
    wait_until(lambda: not master.connected())
    master.wait_for(lambda: "step 20" in master.texts(task), what="the task goes on and ships without its agent")
    agent.start()
    master.wait_for(master.connected)
    assert [(t.allocation_id, t.exited) for t in master.hellos[-1].tasks] == [(task.launch.allocation_id, False)]
    assert master.hellos[-1].slots[0].allocation_id == task.launch.allocation_id
    assert "" not in {first, master.hellos[-1].process}
    assert master.hellos[-1].process != first, "the master tells two processes of one agent apart by it"
    assert launcher_of(agent, task) == before
    master.wait_for(exited(task), timeout=30)
    assert task.exits[0].exit_code == 7
    assert master.texts(task) == [f"step {n}" for n in range(200)]


def test_a_terminated_agent_leaves_its_tasks_alone(master, agent):
    task = master.launch(trial("NeverExits"))
    master.wait_for(lambda: "up" in master.texts(task))
    before = launcher_of(agent, task)
    assert agent.terminate() == 0
    assert procfs.is_alive(before["pid"], before["start_time"])
    agent.start()
    master.wait_for(master.connected)
    master.send_kill(task)
    master.wait_for(exited(task))
    assert task.exits[0].exit_code == -signal.SIGTERM


def test_a_killed_launcher_costs_no_output_and_leaves_no_process(master, agent):
    task = master.launch(trial("HidesGrandchild"))
    hidden = int(master.wait_for(lambda: master.texts(task))[0])
    assert procfs.is_alive(hidden, None)
    spool = agent.task_dir(task) / "spool"
    master.faults.extend([TrialApiFault("records", 500)] * 100)  # what comes now stays in the spool
    record = {"kind": "metrics", "time": 1.0, "group": "training", "steps_completed": 1, "metrics": {"loss": 0.5}}
    with (spool / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**record, "seq": 1}) + "\n" + json.dumps({**record, "seq": 2}) + "\n" + '{"kind": "met')
    os.chown(spool / "metrics.jsonl", spool.stat().st_uid, spool.stat().st_gid)  # as if the trial had written it
    os.kill(launcher_of(agent, task)["pid"], signal.SIGKILL)
    wait_until(lambda: not agent.processes(task))
    master.faults.clear()
    master.wait_for(exited(task))
    assert task.exits[0].reason == "launcher_lost"
    assert task.exits[0].exit_code is None
    assert [r["seq"] for r in task.records["metrics"]] == [1, 2]
    assert master.texts(task) == [str(hidden)]
    assert not procfs.is_alive(hidden, None), "a daemon without our variables, in a session of its own"


def test_a_launcher_killed_while_the_agent_was_dead_is_found_lost(master, agent):
    task = master.launch(trial("NeverExits"))
    master.wait_for(lambda: "up" in master.texts(task))
    agent.kill()
    os.kill(launcher_of(agent, task)["pid"], signal.SIGKILL)
    agent.start()
    master.wait_for(exited(task))
    assert task.exits[0].reason == "launcher_lost"
    assert agent.processes(task) == []


def test_a_task_that_the_master_does_not_know_any_more_is_ended(master, agent):
    task = master.launch(trial("NeverExits"))
    master.wait_for(lambda: "up" in master.texts(task))
    master.stop()
    master.keep_on_welcome = False
    master.start()
    master.wait_for(exited(task))
    assert agent.processes(task) == []


def test_a_kill_of_an_unknown_task_is_answered(master, agent):
    task = master.allocate("true")
    master.send_kill(task)
    master.wait_for(exited(task))
    assert task.exits[0].reason == "launcher_lost"


def test_a_kill_reaches_a_hidden_daemon(master, agent):
    task = master.launch(trial("HidesGrandchild"))
    hidden = int(master.wait_for(lambda: master.texts(task))[0])
    master.send_kill(task)
    master.wait_for(exited(task))
    assert task.exits[0].exit_code == -signal.SIGTERM
    assert not procfs.is_alive(hidden, None)


def test_grandchildren_do_not_outlive_the_task(master, agent):
    task = master.launch(trial("ForksGrandchild"))
    master.wait_for(exited(task))
    assert task.exits[0].exit_code == 0
    assert agent.processes(task) == []
    assert master.texts(task) == ["parent ends"]


def test_a_launcher_that_starts_while_the_master_is_away_delivers_later(master, agent):
    task = master.launch("sleep 0.2; echo done")
    master.wait_for(lambda: task.started)
    master.stop()
    spool = agent.task_dir(task) / "spool" / "logs.jsonl"
    wait_until(lambda: spool.exists() and spool.stat().st_size > 0)
    time.sleep(1.0)  # let it fail for a while: nothing to wait for but the passing of an outage
    assert not (agent.task_dir(task) / "exit.json").exists()
    master.start()
    master.wait_for(exited(task), timeout=40)
    assert task.exits[0].exit_code == 0
    assert master.texts(task) == ["done"]


def test_ten_thousand_lines_arrive_once_and_in_order_over_three_master_restarts(master, agent):
    program = "import sys, time\nfor n in range(10000):\n    print('line', n)\n    if n % 500 == 0: time.sleep(0.25)\n"
    task = master.allocate(["python3", "-u", "-c", program])
    master.faults.extend([TrialApiFault("records", status) for status in (0, 500, 401, 0)])
    master.send(task.launch)
    for lines in (1000, 3000, 6000):
        master.wait_for(lambda lines=lines: len(task.records["logs"]) >= lines, timeout=40)
        master.stop()
        master.faults.append(TrialApiFault("records", 0))
        master.start()
    master.wait_for(exited(task), timeout=60)
    assert master.texts(task) == [f"line {n}" for n in range(10000)]
    assert [r["seq"] for r in task.records["logs"]] == list(range(1, 10001))


def test_a_flood_of_output_arrives_whole(master, agent):
    task = master.launch(trial("Floods"))
    master.wait_for(exited(task), timeout=120)
    assert task.exits[0].exit_code == 0
    assert [text.split()[0] for text in master.texts(task)] == [str(n) for n in range(200000)]


def test_a_fenced_attempt_is_killed_and_ships_no_more(master, agent):
    task = master.launch(trial("SlowTrial"))
    master.wait_for(lambda: "step 3" in master.texts(task))
    task.fenced = True
    master.wait_for(exited(task))
    assert task.exits[0].exit_code == -signal.SIGKILL
    assert len(master.texts(task)) < 200


def test_task_tokens_renew_themselves(open_tmp):
    with MasterDouble(token_life=2.0) as master:
        options = () if os.geteuid() == 0 else ("--serves-user", "alice")
        agent = AgentProcess(master, open_tmp / "agent", *options)
        agent.start()
        try:
            master.wait_for(master.connected)
            task = master.launch(trial("SlowTrial"))
            first = task.token
            master.wait_for(lambda: master.renewals[task.launch.allocation_id] >= 3, timeout=30)
            assert wait_until(lambda: (agent.task_dir(task) / "token").read_text() != first)
            master.send_kill(task)
            master.wait_for(exited(task))
        finally:
            agent.end()


def test_metrics_and_logs_travel_fast(master, agent):
    program = (
        "import json, os, time\n"
        "spool = os.path.join(os.environ['DET_TASK_DIR'], 'spool', 'metrics.jsonl')\n"
        "time.sleep(1.0)\n"
        "for seq in range(1, 21):\n"
        "    with open(spool, 'a') as f:\n"
        "        f.write(json.dumps({'kind': 'progress', 'seq': seq, 'time': time.time(), 'progress': 0.5}) + '\\n')\n"
        "    print(time.time())\n"
        "    time.sleep(0.2)\n"
    )
    arrived = {}
    seen = []

    def note(record):
        key = (record["kind"], record["seq"])
        arrived[key] = time.time() - record["time"]
        seen.append(key)

    master.refuse_records = note
    task = master.launch(["python3", "-u", "-c", program])
    master.wait_for(exited(task), timeout=40)
    metrics = sorted(delay for (kind, _), delay in arrived.items() if kind == "progress")
    logs = sorted(delay for (kind, _), delay in arrived.items() if kind == "log")
    assert len(metrics) == len(logs) == 20
    # Medians: the bound is the design's, the tail belongs to a shared test machine.
    assert metrics[10] < 0.1
    assert logs[10] < 0.5


def test_what_the_master_refuses_reaches_the_trial(master, agent):
    program = (
        "import json, os, time\n"
        "spool = os.path.join(os.environ['DET_TASK_DIR'], 'spool')\n"
        "with open(os.path.join(spool, 'metrics.jsonl'), 'a') as f:\n"
        "    for seq in (1, 2, 3):\n"
        "        f.write(json.dumps({'kind': 'progress', 'seq': seq, 'time': 1.0, 'progress': seq}) + '\\n')\n"
        "refused = os.path.join(spool, 'refused.jsonl')\n"
        "while not os.path.exists(refused) or not open(refused).read(): time.sleep(0.05)\n"
        "print(open(refused).read().strip())\n"
    )
    master.refuse_records = lambda r: "too much" if r["kind"] == "progress" and r["progress"] == 2 else None
    task = master.launch(["python3", "-c", program])
    master.wait_for(exited(task))
    assert json.loads(master.texts(task)[0]) == {"seq": 2, "code": "bad_record", "message": "too much"}
    assert [r["seq"] for r in task.records["metrics"]] == [1, 3]


def test_an_exit_that_says_not_delivered_makes_the_agent_ship(master, agent):
    program = (
        "import json, os, signal, sys\n"
        "task = os.environ['DET_TASK_DIR']\n"
        "launcher = json.load(open(os.path.join(task, 'launcher.json')))['pid']\n"
        "os.kill(launcher, signal.SIGSTOP)\n"
        "log = {'kind': 'log', 'seq': 1, 'time': 1.0, 'text': 'left behind'}\n"
        "open(os.path.join(task, 'spool', 'logs.jsonl'), 'w').write(json.dumps(log) + '\\n')\n"
        "exit = {'exit_code': 6, 'rank': None, 'time': 1.0, 'delivered': False}\n"
        "json.dump(exit, open(os.path.join(task, 'exit.json'), 'w'))\n"
        "os.kill(launcher, signal.SIGKILL)\n"
    )
    task = master.launch(["python3", "-c", program])
    master.wait_for(exited(task))
    assert (task.exits[0].exit_code, task.exits[0].reason) == (6, "")
    assert master.texts(task) == ["left behind"]


def test_the_first_failing_rank_and_the_rank_of_each_line_are_reported(master, agent):
    wrap = "python3 -m detlab.launch.wrap_rank"
    line = f"{wrap} 0 -- sh -c 'echo zero; sleep 0.5; exit 1' & {wrap} 1 -- sh -c 'echo one; exit 3'; wait; exit 1"
    task = master.launch(line)
    master.wait_for(exited(task))
    assert (task.exits[0].exit_code, task.exits[0].rank) == (1, 1)
    assert {(r["rank"], r["text"]) for r in task.records["logs"]} == {(0, "zero"), (1, "one")}
