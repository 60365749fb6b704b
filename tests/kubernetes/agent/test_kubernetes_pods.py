"""What the agent makes in a cluster: pods with all that their configs say, and nothing that they may not."""

import re
import urllib.request

import pytest
from kubernetes_agents import ON_FAKE, WAITS, allocate, ended, launch, python, started

from detlab.schemas.podspec import MAIN_CONTAINER
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


pytestmark = ON_FAKE


@pytest.fixture(autouse=True)
def idle(kube):
    """A second node, which takes pods and does not run them."""
    kube.cluster.add_node("idle-1", gpus=4, resources={"nvidia.com/mig-1g.5gb": "7"})


def main_container(pod):
    return next(one for one in pod["spec"]["containers"] if one["name"] == MAIN_CONTAINER)


def test_a_pod_has_what_its_config_says(master, kube, agents):
    settings = {"tolerations": [{"key": "gpu", "operator": "Exists"}], "allow_tolerations": ["mine"]}
    agents("--allow-mount", "/srv", settings={**settings, "allow_resources": {"example.com/x": 1}})
    spec = {
        "metadata": {"labels": {"user.detlab.io/team": "vision"}},
        "spec": {
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
    config = {"environment": {"pod_spec": spec}}
    task = launch(master, python(""), node="idle-1", slots=["gpu0", "gpu1"], container=asked, config=config)
    pod = kube.pod_of(task)
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
    assert pod["metadata"]["labels"]["user.detlab.io/team"] == "vision"
    host = next(one for one in pod["spec"]["volumes"] if "hostPath" in one)
    assert host["hostPath"] == {"path": "/srv", "type": "Directory"}, "what the operator named; no link leads out of it"
    mount = {"name": host["name"], "mountPath": "/data", "readOnly": True, "subPath": "data"}
    assert mount in main["volumeMounts"]
    secret = until(lambda: kube.owned_secret(pod), "the secret has no owner", 20)
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert task.launch.task_token not in str(pod)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"hostNetwork": True}, r"spec.hostNetwork is not allowed in a pod_spec \(pods have a network of their own; "),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}, r"volumes\[0\]: pods of this agent have no host"),
        ({"volumes": [{"name": "x", "secret": {"secretName": "det-other"}}]}, r"the secret det-other is not one of"),
        ({"volumes": [{"name": "x", "projected": {}}]}, r"volumes\[0\].projected is not allowed in a pod_spec"),
        ({"serviceAccountName": "root"}, r"root is not one of allow_service_accounts"),
        (
            {"initContainers": [{"name": "i", "image": "x", "securityContext": {"runAsUser": 0}}]},
            "initContainers.0..securityContext",
        ),
        (
            {"containers": [{"name": "s", "image": "x", "envFrom": [{"secretRef": {"name": "det-a"}}]}]},
            "the secret det-a is not one of",
        ),
    ],
)
def test_a_pod_spec_with_what_is_not_allowed_ends_the_task_with_its_name(master, kube, agent, spec, said):
    task = launch(master, python(""), config={"environment": {"pod_spec": {"spec": spec}}})
    exit_ = ended(master, task)
    assert exit_.reason == "setup"
    assert re.search(said, exit_.message), exit_.message
    assert not kube.pods()


def test_everything_that_a_pod_spec_may_not_have_is_named_at_once(master, kube, agents):
    """Only the first mistake was named, and each new attempt showed the next one."""
    agents("--allow-mount", "/srv")
    volumes = [{"name": f"v{number}", "hostPath": {"path": f"/etc/{number}"}} for number in range(20)]
    spec = {"hostNetwork": True, "serviceAccountName": "root", "priorityClassName": "high", "volumes": volumes}
    exit_ = ended(master, launch(master, python(WAITS), config={"environment": {"pod_spec": {"spec": spec}}}))
    for said in (
        "environment.pod_spec.spec.hostNetwork is not allowed in a pod_spec",
        "serviceAccountName: root is not one of allow_service_accounts",
        "priorityClassName: high is not one of allow_priority_classes",
        "volumes[4]: the agent does not allow mounts of /etc/4",
        "; and 15 more",
    ):
        assert said in exit_.message
    assert not kube.pods()


def test_a_service_is_reached_at_the_address_of_its_pod(master, kube, agent):
    task = started(master, launch(master, python(SERVES), service={}))
    address = kube.pod_of(task)["status"]["podIP"]
    assert (task.starts[-1].address, task.starts[-1].port) == (address, 8888)
    assert master.texts(task, "stdout") == [f"serves {address}"]
    urllib.request.urlopen(f"http://{address}:8888/", timeout=10).close()
    assert ended(master, task).exit_code == 0


def test_parts_of_a_gang_are_pods_of_their_own(master, kube, agent):
    kube.cluster.add_node("real-2", gpus=2, runs=True)
    master.wait_for(lambda: "real-2" in {node.name for node in master.hellos[-1].nodes})
    task = started(master, launch(master, python(WAITS)))
    other = task.launch.model_copy(update={"node": "real-2", "entrypoint": ["true"]})
    master.send(other)
    assert (ended(master, task).node, task.exits[-1].exit_code) == ("real-2", 0)
    master.send_kill(task, grace=0)
    master.wait_for(lambda: "real-1" in {one.node for one in task.exits}, timeout=40)
    agent.none_left()


def test_pods_that_kueue_admits_are_a_group_and_wait_with_its_reason(master, kube, agents):
    """They are bound to their node as ever; Kueue only opens their gate, and detlab gives none of them up."""
    agents(settings={"gang": "kueue", "kueue_queue": "team", "pending_limit": 1})
    cluster = kube.cluster
    cluster.serve("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
    task = allocate(master, "true", node="idle-1")
    task.launch.info.container_addrs = ["127.0.0.1", "127.0.0.1"]
    cluster.scheduler.stop()
    master.send(task.launch)
    pod = kube.pod_of(task)
    group = pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
    said = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": said}
    workload = {"metadata": {"name": group}, "spec": {}, "status": {"conditions": [reserved]}}
    cluster.create("workloads", workload, kube.namespace, "kueue.x-k8s.io")
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked"}
    cluster.set_pod(pod["metadata"]["name"], {"conditions": [gate]}, kube.namespace)
    master.wait_for(lambda: [stage for stage in task.stages if stage.message == f"Kueue: {said}"])
    assert task.stages[-1].stage == "queued", "the master shows it as queued, with this reason"
    assert not task.exits
    cluster.delete_pod(pod["metadata"]["name"], kube.namespace, grace=0)
    assert ended(master, task).reason == "machine_restarted", "Kueue preempts by deleting"


@pytest.mark.soak
def test_pods_are_a_group_of_the_clusters_own_scheduler_where_it_has_groups(master, kube, agents):
    cluster = kube.cluster
    cluster.serve("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
    agent = agents(settings={"gang": "native"})
    task = allocate(master, ["sleep", "60"])
    task.launch.info.container_addrs = ["127.0.0.1", "127.0.0.1"]
    master.send(task.launch)
    master.wait_for(lambda: task.started, 40)
    (group,) = cluster.objects("podgroups", group="scheduling.k8s.io")
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    pod = kube.pod_of(task)
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
    master.send_kill(task, grace=0.0)
    ended(master, task)
    until(lambda: not cluster.objects("podgroups", group="scheduling.k8s.io"), "the group stays", 20)
    ended(master, launch(master, ["true"]))
    assert not cluster.objects("podgroups", group="scheduling.k8s.io")
    agent.none_left()
