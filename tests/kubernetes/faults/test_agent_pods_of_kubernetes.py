"""What the agent tells of a cluster, and what it makes there."""

import re
import urllib.request

import pytest
from pod_helpers import ended, gone, main_container, pod_of, running, start

from detlab.schemas.wire import ContainerSpec
from testbed.kubernetes import images
from testbed.waiting import until

SERVES = """
import http.server, os
address = os.environ["DET_SERVICE_ADDRESS"], int(os.environ["DET_SERVICE_PORT"])
server = http.server.HTTPServer(address, http.server.SimpleHTTPRequestHandler)
print("serves", os.environ["DET_NODE_ADDRESS"], flush=True)
server.handle_request()
"""


def test_nodes_are_told_with_their_gpus_and_labels(master, cluster, agent):
    hello = master.hellos[-1]
    idle, real = sorted(hello.nodes, key=lambda node: node.name)
    assert (hello.slots, hello.max_zero_slot_tasks, hello.address) == ([], 0, "")
    assert [slot.id for slot in real.slots] == ["gpu0", "gpu1"]
    assert (real.slots[0].name, real.slots[0].kind, real.labels["rack"]) == ("H100", "cuda", "r1")
    assert (real.cpus, real.memory) == (64.0, 512 << 30)
    assert (len(idle.slots), idle.slots[0].name) == (7, "nvidia.com/mig-1g.5gb")


def test_nodes_come_and_go(master, cluster, agent):
    def notes():
        return {node.name: node.note for node in master.hellos[-1].nodes}

    cluster.add_node("late-1", gpus=8)
    master.wait_for(lambda: notes().get("late-1") == "")
    cluster.cordon("late-1")
    master.wait_for(lambda: notes()["late-1"].startswith("cordoned, so it takes no new pods"))
    (late,) = [node for node in master.hellos[-1].nodes if node.name == "late-1"]
    assert not any(slot.enabled for slot in late.slots)
    cluster.remove_node("idle-1")
    master.wait_for(lambda: "idle-1" not in notes())
    cluster.lose_node("real-1")
    master.wait_for(lambda: notes()["real-1"] == "not ready: NodeStatusUnknown")
    cluster.cordon("late-1", on=False)
    master.wait_for(lambda: notes()["late-1"] == "")


def test_a_node_that_is_not_ready_under_a_task_is_away_with_its_reason(master, cluster, agent):
    """The master waits for it and then takes the task for lost, and people see why."""
    task, _ = running(master, cluster)
    silent = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    cluster.change_node("real-1", lambda node: node["status"].update(conditions=[silent]))

    def away():
        return {node.name: node.note for node in master.hellos[-1].nodes if node.away}

    master.wait_for(lambda: away() == {"real-1": "not ready: Kubelet stopped posting node status."})
    cluster.change_node("real-1", lambda node: node["status"].update(conditions=[{**silent, "status": "True"}]))
    master.wait_for(lambda: not away())
    assert not task.exits, "it is still there"


def test_a_pod_has_what_its_config_says(master, cluster, agents):
    agents("--allow-mount", "/srv", settings={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    spec = {
        "metadata": {"labels": {"team": "vision"}},
        "spec": {
            "priorityClassName": "",
            "nodeSelector": {"rack": "r1"},
            "tolerations": [{"key": "mine", "operator": "Exists"}],
            "containers": [{"name": "determined-container", "resources": {"limits": {"example.com/x": "1"}}}],
        },
    }
    asked = ContainerSpec(
        image="",
        memory=1 << 30,
        cpus=1.5,
        shm_size=1 << 20,
        mounts=[{"host_path": "/srv/data", "container_path": "/data", "read_only": True}],
    )
    task = start(
        master, "", node="idle-1", slots=["gpu0", "gpu1"], container=asked, config={"environment": {"pod_spec": spec}}
    )
    until(lambda: cluster.objects("pods"), lambda: "no pod", 20)
    pod = pod_of(cluster, task)
    main = main_container(pod)
    assert main["image"] == images.PYTHON
    assert main["resources"]["limits"] == {
        "nvidia.com/mig-1g.5gb": "2",
        "memory": str(1 << 30),
        "cpu": "1500m",
        "example.com/x": "1",
    }
    uid = task.launch.uid
    assert main["securityContext"] == {
        "runAsUser": uid,
        "runAsGroup": uid,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["idle-1"]
    assert {one["key"] for one in pod["spec"]["tolerations"]} >= {"gpu", "mine"}
    assert pod["metadata"]["labels"]["team"] == "vision"
    host = next(one for one in pod["spec"]["volumes"] if "hostPath" in one)
    assert host["hostPath"]["path"] == "/srv/data"
    assert {"name": host["name"], "mountPath": "/data", "readOnly": True} in main["volumeMounts"]
    secret = next(one for one in cluster.objects("secrets") if one["metadata"]["name"] == pod["metadata"]["name"])
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert task.launch.task_token not in str(pod)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"hostNetwork": True}, r"spec.hostNetwork is not configurable"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}, r"does not allow mounts of /etc"),
        ({"volumes": [{"name": "x", "secret": {"secretName": "det-other"}}]}, r"the secret det-other is not one of"),
        ({"volumes": [{"name": "x", "projected": {}}]}, r"volumes\[0\].projected: this agent allows no such volume"),
        ({"serviceAccountName": "root"}, r"root is not one of allow_service_accounts"),
        (
            {"initContainers": [{"name": "i", "securityContext": {}}]},
            "initContainers.0..securityContext",
        ),
        (
            {"containers": [{"name": "s", "envFrom": [{"secretRef": {"name": "det-a"}}]}]},
            "the secret det-a is not one of",
        ),
    ],
)
def test_a_pod_spec_with_what_is_not_allowed_ends_the_task_with_its_name(master, cluster, agent, spec, said):
    task = start(master, "", config={"environment": {"pod_spec": {"spec": spec}}})
    exit_ = ended(master, task)
    assert exit_.reason == "setup"
    assert re.search(said, exit_.message), exit_.message
    assert not cluster.objects("pods")


def test_everything_that_a_pod_spec_may_not_have_is_named_at_once(master, cluster, agent):
    """Only the first mistake was named, and each new attempt showed the next one."""
    volumes = [{"name": f"v{number}", "hostPath": {"path": f"/etc/{number}"}} for number in range(20)]
    spec = {"hostNetwork": True, "serviceAccountName": "root", "priorityClassName": "high", "volumes": volumes}
    exit_ = ended(master, start(master, "", config={"environment": {"pod_spec": {"spec": spec}}}))
    for said in (
        "environment.pod_spec.spec.hostNetwork is not configurable",
        "serviceAccountName: root is not one of allow_service_accounts",
        "priorityClassName: high is not one of allow_priority_classes",
        "volumes[4]: the agent does not allow mounts of /etc/4",
        "; and 15 more",
    ):
        assert said in exit_.message
    assert not cluster.objects("pods")


def test_a_service_is_reached_at_the_address_of_its_pod(master, cluster, agent):
    task, name = running(master, cluster, SERVES, service={})
    address = cluster.pod(name)["status"]["podIP"]
    assert (task.starts[-1].address, task.starts[-1].port) == (address, 8888)
    assert master.texts(task, "stdout") == [f"serves {address}"]
    urllib.request.urlopen(f"http://{address}:8888/", timeout=10).close()
    assert ended(master, task).exit_code == 0


def test_parts_of_a_gang_are_pods_of_their_own(master, cluster, agent):
    cluster.add_node("real-2", gpus=2, runs=True)
    master.wait_for(lambda: "real-2" in {node.name for node in master.hellos[-1].nodes})
    task, _ = running(master, cluster)
    other = task.launch.model_copy(update={"node": "real-2", "entrypoint": ["true"]})
    master.send(other)
    assert (ended(master, task).node, task.exits[-1].exit_code) == ("real-2", 0)
    master.send_kill(task, grace=0)
    master.wait_for(lambda: "real-1" in {one.node for one in task.exits}, timeout=40)
    gone(cluster)


def test_pods_that_kueue_admits_are_a_group_and_wait_with_its_reason(master, cluster, agents):
    """They are bound to their node as ever; Kueue only opens their gate, and detlab gives none of them up."""
    agents(settings={"gang": "kueue", "kueue_queue": "team", "pending_limit": 1})
    cluster.serve("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
    asked = {"runtime": "kubernetes", "node": "idle-1", "slots": ["gpu0"], "container": ContainerSpec(image="")}
    task = master.allocate("true", **asked)
    task.launch.info.container_addrs = ["127.0.0.1", "127.0.0.1"]
    cluster.scheduler.stop()
    master.send(task.launch)
    until(lambda: cluster.objects("pods"), lambda: "no pod", 20)
    pod = pod_of(cluster, task)
    group = pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
    said = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": said}
    workload = {"metadata": {"name": group}, "spec": {}, "status": {"conditions": [reserved]}}
    cluster.create("workloads", workload, group="kueue.x-k8s.io")
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked"}
    cluster.set_pod(pod["metadata"]["name"], {"conditions": [gate]})
    master.wait_for(lambda: [stage for stage in task.stages if stage.message == f"Kueue: {said}"])
    assert task.stages[-1].stage == "queued", "the master shows it as queued, with this reason"
    assert not task.exits
    cluster.delete_pod(pod["metadata"]["name"], grace=0)
    assert ended(master, task).reason == "machine_restarted", "Kueue preempts by deleting"


def test_pods_are_a_group_of_the_clusters_own_scheduler_where_it_has_groups(master, cluster, agents):
    settings = {"gang": "native"}
    process = agents(settings=settings, wait=False)
    assert process.process.wait(40) == 1
    assert "gang: native needs PodGroups of scheduling.k8s.io/v1beta1" in process.log.read_text()

    cluster.serve("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
    agents(settings=settings)
    asked = {"runtime": "kubernetes", "node": "real-1", "slots": ["gpu0"], "container": ContainerSpec(image="")}
    task = master.allocate(["sleep", "60"], **asked)
    task.launch.info.container_addrs = ["127.0.0.1", "127.0.0.1"]
    master.send(task.launch)
    master.wait_for(lambda: task.started, 40)
    (group,) = cluster.objects("podgroups", group="scheduling.k8s.io")
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    pod = pod_of(cluster, task)
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
    master.send_kill(task, grace=0.0)
    ended(master, task)
    until(lambda: not cluster.objects("podgroups", group="scheduling.k8s.io"), "the group stays", 20)
    alone = master.launch(["true"], **asked)
    ended(master, alone)
    assert not cluster.objects("podgroups", group="scheduling.k8s.io")
    gone(cluster)
