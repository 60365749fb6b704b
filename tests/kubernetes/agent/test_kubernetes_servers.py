"""The API server and its store fail, and the agent dies: nothing is lost, doubled or leaked."""

import shutil
import signal
import threading
import time
from contextlib import suppress

import pytest
from kubernetes_agents import (
    NOT_ITS_FAULT,
    ON_FAKE,
    STEPS,
    WAITS,
    ClusterAgent,
    allocate,
    ended,
    launch,
    python,
    started,
)
from tornado.websocket import WebSocketClosedError


class TestApiServer:
    """The API server is away, comes back, and has forgotten what was before."""

    def test_it_is_killed_under_a_task(self, master, agent, kube):
        task = started(master, launch(master, python(STEPS, 120)))
        kube.restart_api()
        ended(master, task)
        assert {(one.exit_code, one.reason) for one in task.exits} == {(0, "")}
        assert master.texts(task, "stdout") == [f"step {n}" for n in range(120)]
        agent.none_left()

    def test_it_is_killed_while_a_task_ends(self, master, agent, kube):
        """Its exit is known when the server is back, and the next task starts."""
        task = started(master, launch(master, python(STEPS, 5)))
        kube.restart_api()
        assert ended(master, task).exit_code == 0
        other = launch(master, python(STEPS, 2))
        assert ended(master, other).exit_code == 0
        agent.none_left()

    def test_a_launch_while_it_is_away_is_made_once_it_is_back(self, master, agent, kube):
        restart = threading.Thread(target=kube.restart_api)
        restart.start()
        task = launch(master, python(STEPS, 3))
        restart.join()
        exit_ = ended(master, task)
        assert (exit_.exit_code, exit_.reason) == (0, ""), exit_
        assert master.texts(task, "stdout") == ["step 0", "step 1", "step 2"]
        agent.none_left()

    @ON_FAKE
    def test_a_pod_whose_maker_hears_no_answer_is_made_once(self, master, agent, kube):
        kube.cluster.drop_replies = 1
        task = launch(master, python(STEPS, 1))
        assert ended(master, task).exit_code == 0
        assert master.texts(task, "stdout") == ["step 0"]
        agent.none_left()

    def test_its_connections_are_cut_again_and_again(self, master, agent, kube):
        """What happens between two watches is not missed, and a task that ends in that time has ended once."""
        task = started(master, launch(master, python(STEPS, 40)))
        other = launch(master, python(STEPS, 3), slots=["gpu1"])
        cuts = 0
        while not task.exits:
            cuts += kube.cut_watches()
            time.sleep(0.7)
        assert cuts >= 3
        for one, steps in ((task, 40), (other, 3)):
            exit_ = ended(master, one)
            assert (exit_.exit_code, exit_.reason) == (0, ""), exit_
            assert master.texts(one, "stdout") == [f"step {n}" for n in range(steps)]
        agent.none_left()


class TestStore:
    """The store behind the API server, which is etcd in a real cluster, hangs: nothing is answered meanwhile."""

    @pytest.mark.soak
    def test_it_hangs_again_and_again_under_tasks(self, master, agent, kube):
        """One runs, and one is launched into the hanging cluster: it is made once."""
        task = started(master, launch(master, python(STEPS, 150)))
        with kube.stalled():
            other = launch(master, python(STEPS, 3), slots=["gpu1"])
            time.sleep(4)
        for _ in range(2):
            time.sleep(0.5)
            with kube.stalled():
                time.sleep(4)
        for one, steps in ((other, 3), (task, 150)):
            exit_ = ended(master, one)
            assert (exit_.exit_code, exit_.reason) == (0, ""), exit_
            assert master.texts(one, "stdout") == [f"step {n}" for n in range(steps)]
        agent.none_left()

    @pytest.mark.soak
    def test_it_hangs_while_a_task_ends_and_another_is_killed(self, master, agent, kube):
        task = started(master, launch(master, python(STEPS, 10)))
        killed = started(master, launch(master, python(WAITS), slots=["gpu1"]))
        with kube.stalled():
            master.send_kill(killed, 1.0)
            time.sleep(5)
        assert ended(master, task).exit_code == 0
        assert ended(master, killed).exit_code in {-signal.SIGTERM, -signal.SIGKILL}
        agent.none_left()


class TestAgents:
    """The agent is killed, or there is another."""

    def test_a_second_agent_of_the_namespace_is_refused(self, master, agent, kube, open_tmp):
        (open_tmp / "second").mkdir()
        second = ClusterAgent(master, open_tmp / "second/agent", kube)
        second.start()
        try:
            assert second.process.wait(40) == 1
        finally:
            second.end()
        said = second.log.read_text()
        assert f"serves the namespace {kube.namespace}" in said
        assert "--namespace" in said
        task = launch(master, python(STEPS, 2))
        assert ended(master, task).exit_code == 0

    def test_one_whose_lease_was_taken_starts_nothing(self, master, agent, kube):
        """It was cut off for so long that another one has begun; two would start tasks twice."""
        kube.give_lease("another")
        master.wait_for(lambda: master.hellos[-1].runtimes == [], 30, "it says that it runs nothing")
        exit_ = ended(master, launch(master, python(STEPS, 1)))
        assert exit_.reason == "refused"
        assert "another agent serves the namespace" in exit_.message

    @pytest.mark.soak
    def test_a_pod_is_adopted_by_its_labels_where_the_agents_directory_is_lost(self, master, agent, kube):
        task = started(master, launch(master, python(STEPS, 200)))
        agent.kill()
        master.wait_for(lambda: not master.connected())
        seen = len(master.hellos)
        shutil.rmtree(agent.directory)
        kube.give_lease("")
        agent.start()
        agent.connected()
        assert [one.allocation_id for one in master.hellos[seen].tasks] == [task.launch.allocation_id]
        assert ended(master, task).exit_code == 0
        assert master.texts(task, "stdout") == [f"step {n}" for n in range(200)]
        agent.none_left()

    @pytest.mark.soak
    @pytest.mark.parametrize("moment", ["before the pod", "pod asked for", "pod made", "running"])
    def test_it_is_killed_in_the_middle_of_a_launch(self, master, agent, kube, moment):
        """The next agent goes on from what it finds, or says that nothing was: the program runs once."""
        if moment == "running":
            task = started(master, launch(master, python(STEPS, 30)))
            agent.kill()
        else:
            killed = kube.kill_at(moment, agent)
            task = allocate(master, python(STEPS, 30))
            with suppress(WebSocketClosedError):  # it may be dead before all of the message is written
                master.send(task.launch)
            assert killed.wait(60)
            agent.process.wait()
        agent.start()
        agent.connected()
        master.wait_for(lambda: not master.hellos[-1].tasks or task.started or task.exits, 60)
        if all(one.allocation_id != task.launch.allocation_id for one in master.hellos[-1].tasks) and not task.exits:
            master.send(task.launch)  # a master sends again what the agent does not know
        exit_ = ended(master, task)
        if exit_.reason == NOT_ITS_FAULT:
            assert not master.texts(task)
            task = launch(master, python(STEPS, 30))  # as a master does: its next run
            exit_ = ended(master, task)
        assert (exit_.exit_code, exit_.reason) == (0, ""), exit_
        assert master.texts(task, "stdout") == [f"step {n}" for n in range(30)]
        agent.none_left()
