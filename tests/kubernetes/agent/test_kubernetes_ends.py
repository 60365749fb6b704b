"""How tasks end, and whose fault that is: pods are ended by others, launchers cannot speak, nothing starts."""

import signal
import time

import pytest
from kubernetes_agents import NOT_ITS_FAULT, ON_FAKE, STEPS, WAITS, allocate, ended, launch, python, started

from detlab.schemas.podspec import MAIN_CONTAINER
from detlab.schemas.wire import ContainerSpec
from detlab.testing.runtimes import COUNTS_UNTIL_SIGTERM, IGNORES_SIGTERM
from testbed.kubernetes import images
from testbed.kubernetes.api_client import Answer
from testbed.waiting import until

KILLS_ITS_LAUNCHER = """
import json, os, pathlib, time
for step in range(200):
    print("step", step, flush=True)
time.sleep(0.1)
found = json.loads((pathlib.Path.cwd().parent / "launcher.json").read_text())
os.kill(found["pid"], 9)
time.sleep(60)
"""


class TestWhoEndsPods:
    """An end that is not the trial's fault is told as one, so that it does not count as its restart."""

    def test_a_pod_that_is_deleted_by_hand(self, master, agent, kube):
        task = started(master, launch(master, python(WAITS)))
        kube.admin.delete(f"{kube.site.pods}/{kube.the_pod()}", {"gracePeriodSeconds": 1})
        exit_ = ended(master, task)
        assert exit_.reason == NOT_ITS_FAULT, exit_
        assert "was deleted, not by detlab" in exit_.message
        agent.none_left()

    def test_a_pod_that_is_deleted_by_force(self, master, agent, kube):
        task = started(master, launch(master, python(WAITS)))
        kube.admin.delete(f"{kube.site.pods}/{kube.the_pod()}", {"gracePeriodSeconds": 0})
        assert ended(master, task).reason == NOT_ITS_FAULT
        agent.none_left()

    def test_a_node_that_is_drained(self, master, agent, kube):
        def offered():
            return [slot.id for node in master.hellos[-1].nodes for slot in node.slots if slot.enabled]

        task = started(master, launch(master, python(WAITS)))
        node = "/api/v1/nodes/real-1"
        kube.admin.patch(node, {"spec": {"unschedulable": True}})
        try:
            name = kube.the_pod()
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
        kube.site.run_out_of_memory(kube.the_pod())
        exit_ = ended(master, task)
        assert exit_.reason == "oom", exit_
        assert "memory limit" in exit_.message
        agent.none_left()

    @ON_FAKE
    def test_an_eviction_by_the_node(self, master, agent, kube):
        task = started(master, launch(master, python(WAITS)))
        kube.cluster.evict(kube.the_pod(), kube.namespace)
        exit_ = ended(master, task)
        assert exit_.reason == NOT_ITS_FAULT
        assert "Evicted" in exit_.message
        assert "low on resource" in exit_.message
        agent.none_left()

    @ON_FAKE
    def test_a_node_that_is_lost_takes_its_tasks_with_it(self, master, agent, kube):
        task = started(master, launch(master, python(WAITS)))
        kube.cluster.remove_node("real-1")
        assert ended(master, task).reason == NOT_ITS_FAULT
        master.wait_for(lambda: not master.hellos[-1].nodes, 30, "the node is offered no more")


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

    @pytest.mark.soak
    @pytest.mark.parametrize("task", [STEPS.replace("int(sys.argv[1])", "5")], indirect=True)
    def test_what_the_launcher_could_not_deliver_comes_from_the_log_of_its_pod(self, master, agent, kube, task):
        """On a slow machine it was killed before its program had said anything: "ended before it started"."""
        until(lambda: "step 4" in kube.spooled(), kube.spooled, 60)
        time.sleep(1)  # the program ends, and the launcher goes on trying to deliver
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
    """A cluster that lets nobody run commands in pods: a signal goes by the pod's deletion."""

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

    @ON_FAKE
    @pytest.mark.parametrize(
        "task", [COUNTS_UNTIL_SIGTERM.replace("sys.exit", "time.sleep(3)\nsys.exit")], indirect=True
    )
    def test_a_program_of_which_its_node_has_not_told_yet_gets_its_time_too(self, master, agent, kube, task):
        """It was killed at once, as one that never began."""
        states = [{"name": MAIN_CONTAINER, "state": {"waiting": {"reason": "ContainerCreating"}}}]
        kube.cluster.set_pod(kube.the_pod(), {"phase": "Pending", "containerStatuses": states}, kube.namespace)
        kube.cluster.add_node("late-1")  # that the agent has heard of the pod shows when it tells of this
        master.wait_for(lambda: "late-1" in {node.name for node in master.hellos[-1].nodes})
        master.send_kill(task, grace=30.0)
        exit_ = ended(master, task)
        assert exit_.exit_code == 3, exit_
        assert master.texts(task, "stdout")[-1].startswith("last")
        agent.none_left()


def test_an_agent_that_begins_without_exec_says_what_that_costs(master, agents, kube):
    for verb in ("get", "create"):
        kube.take_right(verb, "pods/exec")
    agent = agents()
    assert "without the rights get pods/exec, create pods/exec the last output" in agent.log.read_text()
    task = started(master, launch(master, python(IGNORES_SIGTERM)))
    master.send_kill(task, grace=4.0)
    assert ended(master, task).exit_code == -9
    agent.none_left()


class TestNotStarted:
    """What cannot start says why, in words."""

    def test_an_image_that_nobody_has(self, master, agent, kube):
        task = launch(master, python(WAITS), container=ContainerSpec(image="localhost/no-such:7"))
        exit_ = ended(master, task)
        assert exit_.reason == "setup"
        assert "image cannot be had" in exit_.message
        assert "localhost/no-such:7" in exit_.message
        agent.none_left()

    @ON_FAKE
    def test_a_volume_that_its_node_cannot_have(self, master, agents, kube):
        """It was "starting" for ever, and kept its slots."""
        agent = agents(settings={"start_limit": 2, "allow_config_maps": ["no-such"]})
        volume = {"name": "v", "configMap": {"name": "no-such"}}
        config = {"environment": {"pod_spec": {"spec": {"volumes": [volume]}}}}
        exit_ = ended(master, launch(master, python(WAITS), config=config))
        assert exit_.reason == "setup"
        assert "its container cannot start: ContainerCreating on node real-1 for 2 s" in exit_.message
        assert "no-such" in exit_.message, "and why, by the pod's events"
        agent.none_left()

    def test_an_image_without_python(self, master, agent, kube):
        task = launch(master, python(WAITS), container=ContainerSpec(image=images.BARE))
        exit_ = ended(master, task)
        assert exit_.reason == "setup"
        assert "needs python3" in exit_.message
        agent.none_left()

    @ON_FAKE
    def test_an_image_without_the_package(self, master, agent, kube):
        """The launcher cannot speak then; the last output of the container is what is left."""
        kube.cluster.add_node("idle-1", gpus=1)
        master.wait_for(lambda: len(master.hellos[-1].nodes) == 2)
        task = launch(master, python(WAITS), node="idle-1")
        said = "python3: Error while finding module specification: No module named 'detlab'"
        over = {"exitCode": 1, "reason": "Error", "message": said}
        states = [{"name": MAIN_CONTAINER, "state": {"terminated": over}}]
        name = kube.pod_of(task)["metadata"]["name"]
        kube.cluster.set_pod(name, {"phase": "Failed", "containerStatuses": states}, kube.namespace)
        exit_ = ended(master, task)
        assert exit_.reason == "setup"
        assert "needs Python 3.11 and the package detlab" in exit_.message
        assert said in exit_.message
        agent.none_left()

    @ON_FAKE
    def test_a_task_that_is_killed_before_it_runs(self, master, agent, kube):
        kube.cluster.add_node("idle-1", gpus=1)
        master.wait_for(lambda: len(master.hellos[-1].nodes) == 2)
        task = launch(master, python(WAITS), node="idle-1")
        kube.pod_of(task)
        master.send_kill(task)
        exit_ = ended(master, task)
        assert (exit_.exit_code, exit_.message) == (-signal.SIGTERM, "ended before it started")
        agent.none_left()

    @ON_FAKE
    def test_a_node_that_takes_nothing_new_refuses_at_once(self, master, agent, kube):
        task = started(master, launch(master, python(WAITS)))
        kube.cluster.cordon("real-1")
        kube.cluster.add_node("idle-1", gpus=1)
        # That the agent has heard of the first shows when it tells of the second, which came later.
        master.wait_for(lambda: "idle-1" in {node.name for node in master.hellos[-1].nodes})
        exit_ = ended(master, launch(master, python(WAITS), slots=["gpu1"]))
        assert exit_.reason == "refused"
        assert "node real-1 is cordoned" in exit_.message
        assert "real-1" in {node.name for node in master.hellos[-1].nodes}, "its task is still there"
        assert not task.exits

    def test_devices_that_others_have(self, master, agents, kube):
        """The pod waits in the cluster for its time, and is refused with its scheduler's words."""
        agent = agents(settings={"pending_limit": 3})
        limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
        kube.site.start("greedy", "sleep", "60", container=limits, terminationGracePeriodSeconds=0)
        kube.site.phase("greedy", "Running")
        task = launch(master, python(WAITS))
        exit_ = ended(master, task)
        assert exit_.reason == "refused"
        assert "Insufficient nvidia.com/gpu" in exit_.message
        assert any("Insufficient nvidia.com/gpu" in stage.message for stage in task.stages)
        assert not task.started
        agent.none_left()

    @pytest.mark.soak
    def test_more_than_the_node_has_now(self, master, agent, kube):
        """Others use the node, too: the pod waits for its time, says why, and is refused so that the master goes on."""
        container = ContainerSpec(image=images.PYTHON, memory=100 << 40)
        task = launch(master, python(WAITS), container=container)
        master.wait_for(lambda: any("nsufficient memory" in one.message for one in task.stages), 30)
        exit_ = ended(master, task)
        assert exit_.reason == "refused"
        assert "Insufficient memory" in exit_.message
        agent.none_left()

    @pytest.mark.soak
    @ON_FAKE
    def test_a_pod_that_no_scheduler_looks_at_started_for_ever(self, master, agents, kube):
        """`schedulerName: volcano` where there is none: the pod has no condition, no event and no node."""
        agent = agents(settings={"pending_limit": 7})
        kube.cluster.scheduler.paused = True
        task = launch(master, python(WAITS))
        master.wait_for(lambda: task.stages, 30)
        exit_ = ended(master, task)
        assert exit_.reason == "refused"
        assert "in 7 s: no scheduler has looked at the pod: is the scheduler 'default-scheduler'" in exit_.message
        assert {stage.stage for stage in task.stages if "no scheduler" in stage.message} == {"queued"}
        assert not task.started
        agent.none_left()

    def test_a_quota_that_is_used_up(self, master, agent, kube):
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        kube.admin.post(f"{kube.site.at}/resourcequotas", quota)
        until(lambda: _is_refused(kube), "the quota is not there", 20)
        exit_ = ended(master, launch(master, python(WAITS)))
        assert exit_.reason == "refused"
        assert "exceeded quota: none" in exit_.message
        agent.none_left()


def _is_refused(kube):
    try:
        kube.site.start("probe", "true")
    except Answer as error:
        return "exceeded quota" in str(error)
    kube.admin.delete(f"{kube.site.pods}/probe", {"gracePeriodSeconds": 0})
    return False
