"""What goes wrong in a cluster: pods are ended, servers are away, agents die. Nothing is lost, doubled or leaked."""

import re
import signal
import threading
import time
from contextlib import suppress
from typing import ClassVar

import pytest
from kubernetes_agents import ClusterAgent, FakeKube, allocate, launch
from tornado.websocket import WebSocketClosedError

from detlab.schemas.wire import ContainerSpec
from detlab.testing.runtimes import COUNTS_UNTIL_SIGTERM, IGNORES_SIGTERM
from testbed.kubernetes import images
from testbed.waiting import until

NOT_ITS_FAULT = "machine_restarted"
STEPS = """
import sys, time
for step in range(int(sys.argv[1])):
    print("step", step, flush=True)
    time.sleep(0.1)
"""
KILLS_ITS_LAUNCHER = """
import json, os, pathlib, time
for step in range(200):
    print("step", step, flush=True)
time.sleep(0.1)
found = json.loads((pathlib.Path.cwd().parent / "launcher.json").read_text())
os.kill(found["pid"], 9)
time.sleep(60)
"""
WAITS = "import time; print('up', flush=True); time.sleep(600)"


def python(text, *words):
    return ["python3", "-u", "-c", text, *map(str, words)]


def started(master, task):
    master.wait_for(lambda: master.texts(task, "stdout"), 60)
    return task


def ended(master, task, seconds=90.0):
    master.wait_for(lambda: task.exits, seconds, "the task ends")
    return task.exits[0]


def the_pod(kube):
    return next(iter(kube.of("pods")))


class TestWhoEndsPods:
    """An end that is not the trial's fault is told as one, so that it does not count as its restart."""

    def test_a_pod_that_is_deleted_by_hand(self, master, agent, kube):
        task = started(master, launch(master, python(WAITS)))
        kube.admin.delete(f"{kube.site.pods}/{the_pod(kube)}", {"gracePeriodSeconds": 1})
        exit_ = ended(master, task)
        assert exit_.reason == NOT_ITS_FAULT, exit_
        agent.none_left()

    def test_a_pod_that_is_deleted_by_force(self, master, agent, kube):
        task = started(master, launch(master, python(WAITS)))
        kube.admin.delete(f"{kube.site.pods}/{the_pod(kube)}", {"gracePeriodSeconds": 0})
        assert ended(master, task).reason == NOT_ITS_FAULT
        agent.none_left()

    def test_a_node_that_is_drained(self, master, agent, kube):
        def offered():
            return [slot.id for node in master.hellos[-1].nodes for slot in node.slots if slot.enabled]

        task = started(master, launch(master, python(WAITS)))
        node = "/api/v1/nodes/real-1"
        kube.admin.patch(node, {"spec": {"unschedulable": True}})
        try:
            name = the_pod(kube)
            body = {
                "kind": "Eviction",
                "apiVersion": "policy/v1beta1",
                "metadata": {"name": name, "namespace": kube.namespace},
                "deleteOptions": {"gracePeriodSeconds": 1},
            }
            kube.admin.post(f"{kube.site.pods}/{name}/eviction", body)
            assert ended(master, task).reason == NOT_ITS_FAULT
            # Its slots are offered no more, so that the master places nothing there.
            master.wait_for(lambda: not offered(), 30, "the node is offered no more")
            assert master.hellos[-1].nodes[0].note == "cordoned, so it takes no new pods: kubectl uncordon real-1"
        finally:
            kube.admin.patch(node, {"spec": {"unschedulable": None}})
        master.wait_for(offered, 40, "the node is offered again")
        agent.none_left()

    def test_a_program_that_uses_up_its_memory(self, master, agent, kube):
        text = "print('up', flush=True); import time; time.sleep(1); x = bytearray(900 << 20); time.sleep(60)"
        container = ContainerSpec(image=images.PYTHON, memory=256 << 20)
        task = started(master, launch(master, python(text), container=container))
        kube.site.run_out_of_memory(the_pod(kube))
        exit_ = ended(master, task)
        assert exit_.reason == "oom", exit_
        agent.none_left()


class TestWithoutMaster:
    """The network of pods does not lead to the master; the agent's does."""

    @pytest.fixture
    def task(self, master, agent, kube, request):
        made = allocate(master, python(request.param))
        info = made.launch.info.model_copy(update={"master_url": "http://192.0.2.1:9/services/detlab/"})
        made.launch = made.launch.model_copy(update={"info": info})
        master.send(made.launch)
        master.wait_for(lambda: made.started, 60)
        return made

    @pytest.mark.parametrize("task", [STEPS.replace("int(sys.argv[1])", "5")], indirect=True)
    def test_what_the_launcher_could_not_deliver_comes_from_the_log_of_its_pod(self, master, agent, task):
        time.sleep(4)
        assert not master.texts(task)
        master.send_kill(task, grace=0.0)
        exit_ = ended(master, task)
        assert exit_.exit_code == -9, exit_
        assert master.texts(task, "stdout") == [f"step {number}" for number in range(5)]
        agent.none_left()
        until(lambda: not agent.left_behind(task), lambda: f"{agent.left_behind(task)}", 20)

    def test_the_last_lines_of_a_launcher_that_dies_arrive_and_its_end_says_so(self, master, agent):
        task = launch(master, python(KILLS_ITS_LAUNCHER))
        exit_ = ended(master, task)
        assert (exit_.exit_code, exit_.reason) == (None, "launcher_lost"), exit_
        assert "without a report" in exit_.message
        assert master.texts(task, "stdout") == [f"step {number}" for number in range(200)]
        agent.none_left()


class TestWithoutExec:
    """A cluster that lets nobody run commands in pods: a signal goes by the pod's deletion.

    On the fake cluster only, where a right is gone at once.
    """

    @pytest.fixture
    def kube(self, fake, open_tmp):
        found = FakeKube(fake, open_tmp)
        yield found
        found.end()

    @pytest.fixture
    def task(self, master, agent, kube, request):
        for verb in ("get", "create"):
            kube.take_right(verb, "pods/exec")
        return started(master, launch(master, python(request.param)))

    @pytest.mark.parametrize("task", [IGNORES_SIGTERM], indirect=True)
    def test_a_program_that_ignores_the_signal_is_ended_within_its_grace(self, master, agent, task):
        began = time.monotonic()
        master.send_kill(task, grace=4.0)
        exit_ = ended(master, task)
        assert 3.0 < time.monotonic() - began < 14.0, "the pod's own grace is 30 s"
        assert exit_.exit_code == -9, exit_
        agent.none_left()

    @pytest.mark.parametrize(
        "task", [COUNTS_UNTIL_SIGTERM.replace("sys.exit", "time.sleep(3)\nsys.exit")], indirect=True
    )
    def test_a_program_that_may_need_more_than_the_pods_own_grace_gets_it(self, master, agent, kube, task):
        master.send_kill(task, grace=90.0)

        def grace():
            return next((pod["metadata"].get("deletionGracePeriodSeconds") for pod in kube.pods()), None)

        until(grace, "the pod is not deleted", 20)
        assert 80 <= grace() <= 90
        exit_ = ended(master, task)
        assert exit_.exit_code == 3, exit_
        assert master.texts(task, "stdout")[-1].startswith("last")
        agent.none_left()


class TestNotStarted:
    """What cannot start says why, in words."""

    def test_an_image_that_nobody_has(self, master, agent, kube):
        task = launch(master, python(WAITS), container=ContainerSpec(image="localhost/no-such:7"))
        exit_ = ended(master, task)
        assert exit_.reason == "setup"
        assert "image" in exit_.message
        assert "localhost/no-such:7" in exit_.message
        agent.none_left()

    def test_an_image_without_python(self, master, agent, kube):
        task = launch(master, python(WAITS), container=ContainerSpec(image=images.BARE))
        exit_ = ended(master, task)
        assert exit_.reason == "setup"
        assert "needs python3" in exit_.message
        agent.none_left()

    def test_more_than_the_node_has_now(self, master, agent, kube):
        """Others use the node, too: the pod waits for its time, says why, and is refused so that the master goes on."""
        container = ContainerSpec(image=images.PYTHON, memory=100 << 40)
        task = launch(master, python(WAITS), container=container)
        master.wait_for(lambda: any("nsufficient memory" in one.message for one in task.stages), 30)
        exit_ = ended(master, task)
        assert exit_.reason == "refused"
        assert "Insufficient memory" in exit_.message
        agent.none_left()

    def test_a_quota_that_is_used_up(self, master, agent, kube):
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        kube.admin.post(f"{kube.site.at}/resourcequotas", quota)
        until(lambda: _is_refused(kube), "the quota is not there", 20)
        exit_ = ended(master, launch(master, python(WAITS)))
        assert exit_.reason == "refused"
        assert "exceeded quota: none" in exit_.message
        agent.none_left()


class TestOthers:
    """Others use the cluster, too."""

    def test_gpus_of_others_are_not_offered_and_those_of_our_tasks_stay(self, master, agent, kube):
        """The master placed tasks on them; their pods waited for five minutes and were refused."""

        def offered():
            (node,) = [node for node in master.hellos[-1].nodes if node.name == "real-1"]
            return [slot.id for slot in node.slots if slot.enabled]

        def agreed(*slots):
            master.wait_for(lambda: offered() == list(slots), 30, lambda: f"offered: {offered()}")

        agreed("gpu0", "gpu1")
        task = started(master, launch(master, python(STEPS, 300), slots=["gpu1"]))
        gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        kube.site.start("theirs", "sleep", "60", container=gpu, terminationGracePeriodSeconds=0)
        kube.site.phase("theirs", "Running")
        agreed("gpu1")
        notes = {slot.id: slot.note for node in master.hellos[-1].nodes for slot in node.slots if node.name == "real-1"}
        assert notes == {"gpu0": "used by others on the cluster", "gpu1": ""}
        assert not task.exits, "the task has its device, and others another one"
        kube.admin.delete(f"{kube.site.pods}/theirs", {"gracePeriodSeconds": 0})
        agreed("gpu0", "gpu1")
        master.send_kill(task, grace=0.0)
        ended(master, task)
        agent.none_left()


class TestAutoscaler:
    """Nodes that are there once pods wait for them; the tests are the autoscaler."""

    GROUP: ClassVar = {"name": "big", "node_labels": {"pool": "big"}, "slots": 2, "most": 1, "limit": 3}

    @pytest.fixture
    def kube(self, fake, open_tmp):
        found = FakeKube(fake, open_tmp)
        yield found
        found.end()

    @pytest.fixture
    def task(self, master, kube, open_tmp, request):
        group = {**self.GROUP, "limit": request.param}
        process = ClusterAgent(master, open_tmp / "agent", kube, settings={"autoscaled": [group]})
        process.start()
        try:
            process.connected()
            assert {node.name: len(node.slots) for node in master.hellos[-1].nodes} == {"real-1": 2, "big-to-come-1": 2}
            made = launch(master, python(STEPS, 20), node="big-to-come-1")
            master.wait_for(lambda: any("scaling up big" in one.message for one in made.stages), 30)
            yield made
            process.none_left()
        finally:
            process.end()

    @pytest.mark.parametrize("task", [60.0], indirect=True)
    def test_a_task_for_a_node_to_come_runs_once_it_has_come(self, master, kube, task):
        kube.cluster.add_node("new-1", gpus=2, cpu="8", memory="32Gi", labels={"pool": "big"}, runs=True)

        def told():
            return {node.name: [slot.id for slot in node.slots if slot.enabled] for node in master.hellos[-1].nodes}

        wanted = {"big-to-come-1": ["gpu0"], "new-1": ["gpu0"], "real-1": ["gpu0", "gpu1"]}
        master.wait_for(lambda: told() == wanted, 30, "what is left of it is offered once")
        exit_ = ended(master, task)
        assert (exit_.exit_code, exit_.reason) == (0, ""), exit_
        assert kube.cluster.pod(task.launch.allocation_id) is None
        master.wait_for(lambda: told() == {"new-1": ["gpu0", "gpu1"], "real-1": ["gpu0", "gpu1"]}, 30)

    @pytest.mark.parametrize("task", [3.0], indirect=True)
    def test_a_node_that_does_not_come_is_given_up_with_the_autoscalers_reason(self, master, kube, task):
        (pod,) = kube.pods()
        about = {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": kube.namespace}
        event = {"metadata": {"generateName": "e-"}, "reason": "NotTriggerScaleUp", "involvedObject": about}
        kube.admin.post(f"{kube.site.at}/events", {**event, "message": "max node group size reached"})
        exit_ = ended(master, task)
        assert exit_.reason == "refused"
        assert exit_.message == "no new node of big in 3 s: max node group size reached"


def _is_refused(kube):
    from testbed.kubernetes.api_client import Answer

    try:
        kube.site.start("probe", "true")
    except Answer as error:
        return "exceeded quota" in str(error)
    kube.admin.delete(f"{kube.site.pods}/probe", {"gracePeriodSeconds": 0})
    return False


class TestApiServer:
    """The API server is away, comes back, and has forgotten what was before."""

    def test_it_is_killed_under_a_task(self, master, agent, kube):
        task = started(master, launch(master, python(STEPS, 120)))
        kube.restart_api()
        exit_ = ended(master, task)
        assert (exit_.exit_code, exit_.reason) == (0, "")
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
        assert "another agent" in second.log.read_text()
        task = launch(master, python(STEPS, 2))
        assert ended(master, task).exit_code == 0

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


def refused(master, kube, directory, *options, settings=None, environ=None):
    """Start an agent that cannot work, and return what it says."""
    directory.mkdir()
    agent = ClusterAgent(master, directory / "agent", kube, *options, settings=settings)
    agent.environ = environ or {}
    agent.start()
    try:
        assert agent.process.wait(90) == 1
    finally:
        agent.end()
    return agent.log.read_text()


class TestRefusals:
    """What an operator has done wrong is said at the start."""

    def test_a_right_that_lacks_is_named(self, master, kube, open_tmp):
        kube.take_right("create", "pods")
        said = refused(master, kube, open_tmp / "other")
        assert "create pods" in said

    def test_a_namespace_that_is_not_there(self, master, kube, open_tmp):
        said = refused(master, kube, open_tmp / "other", "--namespace", "no-such")
        assert "no-such" in said

    def test_a_kubeconfig_that_is_wrong(self, master, kube, open_tmp):
        bad = open_tmp / "bad.yaml"
        bad.write_text("clusters: []\n")
        said = refused(master, kube, open_tmp / "other", "--kubeconfig", str(bad))
        assert str(bad) in said or "kubeconfig" in said
        text = kube.kubeconfig.read_text()
        token = re.search(r'"token": "([^"]+)"', text)[1]
        bad.write_text(text.replace(token, "wrong"))
        said = refused(master, kube, open_tmp / "more", "--kubeconfig", str(bad))
        assert "does not accept the credentials" in said
