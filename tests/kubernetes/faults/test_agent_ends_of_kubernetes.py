"""How a pod ends, and whose fault that is."""

from contextlib import closing

from pod_helpers import ended, gone, pod_of, running, start

from detlab.schemas.wire import ContainerSpec
from testbed.kubernetes import images
from testbed.kubernetes.api_client import ApiClient
from testbed.kubernetes.fake.cluster import ADMIN
from testbed.waiting import until


def test_memory_that_is_used_up_is_told_as_that(master, cluster, agent):
    task, name = running(master, cluster)
    cluster.kill_container(name, reason="OOMKilled")
    exit_ = ended(master, task)
    assert exit_.reason == "oom"
    assert "memory limit" in exit_.message
    gone(cluster)


def test_an_eviction_is_not_the_tasks_own_fault(master, cluster, agent):
    task, name = running(master, cluster)
    cluster.evict(name)
    exit_ = ended(master, task)
    assert exit_.reason == "machine_restarted"
    assert "Evicted" in exit_.message
    assert "low on resource" in exit_.message


def test_a_pod_that_somebody_deletes_is_not_the_tasks_own_fault(master, cluster, agent):
    """Its program gets SIGTERM and may end with any code; nobody counts that as its failure."""
    task, name = running(master, cluster, "import time; print('up', flush=True); time.sleep(600)")
    cluster.delete_pod(name, grace=2)
    exit_ = ended(master, task)
    assert exit_.reason == "machine_restarted"
    assert "was deleted, not by detlab" in exit_.message
    gone(cluster)


def test_a_pod_that_is_removed_by_force_is_not_the_tasks_own_fault(master, cluster, agent):
    task, name = running(master, cluster)
    cluster.delete_pod(name, grace=0)
    assert ended(master, task).reason == "machine_restarted"


def test_a_node_that_is_lost_takes_its_tasks_with_it(master, cluster, agent):
    task, _ = running(master, cluster)
    cluster.remove_node("real-1")
    assert ended(master, task).reason == "machine_restarted"
    master.wait_for(lambda: "real-1" not in {node.name for node in master.hellos[-1].nodes})


def test_an_image_that_is_not_there_is_told_as_that(master, cluster, agent):
    cluster.do(lambda: setattr(cluster.kubelet, "images", {images.PYTHON: {}}))
    task = start(master, "", container=ContainerSpec(image="registry.example/no/such:1"))
    exit_ = ended(master, task)
    assert exit_.reason == "setup"
    assert "registry.example/no/such:1" in exit_.message
    assert "image cannot be had" in exit_.message
    gone(cluster)


def test_an_image_without_the_package_is_told_with_its_own_words(master, cluster, agent):
    """The launcher cannot speak then; the last output of the container is what is left."""
    task = start(master, "", node="idle-1")
    until(lambda: cluster.objects("pods"), lambda: "no pod", 20)
    said = "python3: Error while finding module specification: No module named 'detlab'"
    over = {"exitCode": 1, "reason": "Error", "message": said}
    states = [{"name": "determined-container", "state": {"terminated": over}}]
    cluster.set_pod(pod_of(cluster, task)["metadata"]["name"], {"phase": "Failed", "containerStatuses": states})
    exit_ = ended(master, task)
    assert exit_.reason == "setup"
    assert "needs Python 3.11 and the package detlab" in exit_.message
    assert said in exit_.message


def test_a_pod_without_a_place_says_why_and_is_given_back(master, cluster, agents):
    agents(settings={"pending_limit": 2})
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    spec = {"nodeSelector": {"rack": "r1"}, "containers": [container]}
    greedy = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "greedy"}, "spec": spec}
    admin = ApiClient(cluster.url, ADMIN)
    with closing(admin.http):
        admin.post("/api/v1/namespaces/default/pods", greedy)
    until(lambda: cluster.pod("greedy")["spec"].get("nodeName"), lambda: "not bound", 10)
    task = start(master, "")
    exit_ = ended(master, task)
    assert exit_.reason == "refused"
    assert "Insufficient nvidia.com/gpu" in exit_.message
    assert any("Insufficient nvidia.com/gpu" in stage.message for stage in task.stages)
    assert not task.started


def test_a_tainted_node_is_refused_at_once(master, cluster, agent):
    task, _ = running(master, cluster)
    cluster.cordon("real-1")
    cluster.remove_node("idle-1")  # that the agent has heard of it shows when it tells of this, which comes later
    master.wait_for(lambda: "idle-1" not in {node.name for node in master.hellos[-1].nodes})
    refused = ended(master, start(master, "", slots=["gpu1"]))
    assert refused.reason == "refused"
    assert "node real-1 is cordoned" in refused.message
    assert "real-1" in {node.name for node in master.hellos[-1].nodes}, "its tasks are still there"
    assert not task.exits


def test_a_killed_task_that_never_ran_is_gone(master, cluster, agent):
    task = start(master, "", node="idle-1")
    until(lambda: cluster.objects("pods"), lambda: "no pod", 20)
    master.send_kill(task)
    exit_ = ended(master, task)
    assert (exit_.exit_code, exit_.message) == (-15, "ended before it started")
    gone(cluster)


def test_a_task_is_killed_where_commands_in_containers_are_forbidden(master, cluster, agent):
    """Its last output may be lost, but it ends."""
    cluster.forbid("get", "pods/exec")
    cluster.forbid("create", "pods/exec")
    task, _ = running(master, cluster)
    master.send_kill(task, grace=1)
    assert ended(master, task)
    gone(cluster)
