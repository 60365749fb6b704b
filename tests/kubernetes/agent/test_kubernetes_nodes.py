"""What an agent tells of the nodes of a cluster: they come and go, others use them, an autoscaler brings them."""

from typing import ClassVar

import pytest
from kubernetes_agents import ON_FAKE, STEPS, WAITS, ended, launch, python, started


@ON_FAKE
class TestTold:
    """Each node with what it has, while it takes pods."""

    def test_a_node_is_told_with_its_gpus_and_labels(self, master, kube, agents):
        kube.cluster.add_node("idle-1", gpus=4, resources={"nvidia.com/mig-1g.5gb": "7"})
        agents()
        hello = master.hellos[-1]
        idle, real = sorted(hello.nodes, key=lambda node: node.name)
        assert (hello.slots, hello.max_zero_slot_tasks, hello.address) == ([], 0, "")
        assert [slot.id for slot in real.slots] == ["gpu0", "gpu1"]
        assert (real.slots[0].name, real.slots[0].kind, real.labels["rack"]) == ("H100", "cuda", "r1")
        assert (real.cpus, real.memory) == (8.0, 32 << 30)
        assert (len(idle.slots), idle.slots[0].name) == (7, "nvidia.com/mig-1g.5gb")

    def test_nodes_come_and_go(self, master, kube, agent):
        def notes():
            return {node.name: node.note for node in master.hellos[-1].nodes}

        kube.cluster.add_node("idle-1", gpus=4)
        master.wait_for(lambda: notes().get("idle-1") == "")
        kube.cluster.add_node("late-1", gpus=8)
        master.wait_for(lambda: notes().get("late-1") == "")
        kube.cluster.cordon("late-1")
        master.wait_for(lambda: notes()["late-1"].startswith("cordoned, so it takes no new pods"))
        (late,) = [node for node in master.hellos[-1].nodes if node.name == "late-1"]
        assert not any(slot.enabled for slot in late.slots)
        kube.cluster.remove_node("idle-1")
        master.wait_for(lambda: "idle-1" not in notes())
        kube.cluster.lose_node("real-1")
        master.wait_for(lambda: notes()["real-1"] == "not ready: NodeStatusUnknown")
        kube.cluster.cordon("late-1", on=False)
        master.wait_for(lambda: notes()["late-1"] == "")

    def test_a_node_that_is_not_ready_under_a_task_is_away_with_its_reason(self, master, kube, agent):
        """The master waits for it and then takes the task for lost, and people see why."""
        task = started(master, launch(master, python(WAITS)))
        silent = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
        kube.cluster.change_node("real-1", lambda node: node["status"].update(conditions=[silent]))

        def away():
            return {node.name: node.note for node in master.hellos[-1].nodes if node.away}

        master.wait_for(lambda: away() == {"real-1": "not ready: Kubelet stopped posting node status."})
        back = {**silent, "status": "True"}
        kube.cluster.change_node("real-1", lambda node: node["status"].update(conditions=[back]))
        master.wait_for(lambda: not away())
        assert not task.exits, "it is still there"


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


@ON_FAKE
class TestAutoscaler:
    """Nodes that are there once pods wait for them; the tests are the autoscaler."""

    GROUP: ClassVar = {"name": "big", "node_labels": {"pool": "big"}, "slots": 2, "most": 1, "limit": 3}

    @pytest.fixture
    def task(self, master, agents, request):
        process = agents(settings={"autoscaled": [{**self.GROUP, "limit": request.param}]})
        assert {node.name: len(node.slots) for node in master.hellos[-1].nodes} == {"real-1": 2, "big-to-come-1": 2}
        made = launch(master, python(STEPS, 20), node="big-to-come-1")
        master.wait_for(lambda: any("scaling up big" in one.message for one in made.stages), 30)
        yield made
        process.none_left()

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
