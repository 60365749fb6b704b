"""`DetKubeSpawner` against an API server: real requests, real watches, and nodes whose pods go as each test says."""

from __future__ import annotations

import asyncio

import pytest
from kube_spawning import POD, failure, reach, starting

from detlab.schemas.wire import AllocationState
from detlab_hub.spawners import kube
from testbed.kubernetes.fake.cluster import ADMIN, FakeCluster
from testbed.waiting import soon


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster of one node with four GPUs."""
    with FakeCluster(tmp_path) as found:
        found.add_node("node-7", gpus=4)
        reach(monkeypatch, found.url, ADMIN)
        yield found


async def placed(cluster, master, said, node="kubernetes/node-7", slots=("any0", "any1")):
    master.put("notebook-0", place=2, reason="2 slots of pool default are taken")
    await soon(lambda: any("place 2" in line for line in said))
    assert cluster.pod(POD) is None, "no pod before its slots"
    master.put("notebook-0", allocation_state=AllocationState.RUNNING, agent_id=node, slots=list(slots))
    await soon(lambda: cluster.pod(POD) is not None)


def waiting(reason, message="", **more):
    return {
        "containerStatuses": [
            {"name": "notebook", "state": {"waiting": {"reason": reason, "message": message}}, **more}
        ]
    }


RUNS = {
    "phase": "Running",
    "podIP": "10.0.0.7",
    "containerStatuses": [{"name": "notebook", "ready": True, "state": {"running": {}}}],
}


async def test_the_page_shows_place_and_reason_and_then_how_the_pod_is(cluster):
    async with starting() as (master, _mine, task, said):
        await placed(cluster, master, said)
        pod = cluster.pod(POD)
        near = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert near["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-7"]
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
        await soon(lambda: "node-7 prepares the pod" in said)
        cluster.set_pod(POD, RUNS)
        assert (await asyncio.wait_for(task, 20)).startswith("http://10.0.0.7:")
        await soon(lambda: not [line for line in said if line is None])
        assert "Waiting in the queue, place 2: 2 slots of pool default are taken" in said
        assert said.index("kubernetes/node-7 has room; the server is being started") < said.index(
            "node-7 prepares the pod"
        )
        assert master.deleted == []


async def test_a_pod_that_no_node_takes_says_why_and_goes_on_when_one_does(cluster):
    cluster.cordon("node-7")
    async with starting() as (master, _mine, task, said):
        await placed(cluster, master, said)
        await soon(lambda: any(line.startswith("No node takes the pod yet: 0/1 nodes are available") for line in said))
        cluster.cordon("node-7", on=False)
        await soon(lambda: cluster.pod(POD)["spec"].get("nodeName"))
        cluster.set_pod(POD, RUNS)
        await asyncio.wait_for(task, 20)


@pytest.mark.parametrize(
    ("status", "said", "reason"),
    [
        (
            waiting("InvalidImageName", "couldn't parse image"),
            "registry.example/lab:4 cannot be used: couldn't",
            "image",
        ),
        (
            waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            "image will run as root. The image names no user by number: set c.DetKubeSpawner.uid",
            "container",
        ),
        (waiting("CreateContainerConfigError", 'secret "x" not found'), 'cannot be made: secret "x" not', "container"),
        (
            waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 1, "message": "no such module"}}),
            "ended with exit code 1: no such module",
            "crashed",
        ),
        (
            waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            "needed more memory",
            "crashed",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "Evicted low on memory", "pod_ended"),
    ],
)
async def test_a_pod_that_cannot_start_ends_the_start_with_its_reason(cluster, status, said, reason):
    async with starting() as (master, _, task, _):
        await placed(cluster, master, _)
        cluster.set_pod(POD, status)
        error = await failure(task)
        assert said in error.jupyterhub_message
        assert error.reason == reason
        await soon(lambda: master.deleted == ["notebook-0"])  # the slots are free again


async def test_an_image_that_cannot_be_pulled_is_given_time_and_then_up(cluster, monkeypatch):
    monkeypatch.setattr(kube, "IMAGE_PATIENCE", 1.0)
    async with starting() as (master, _, task, said):
        await placed(cluster, master, said)
        cluster.set_pod(POD, waiting("ErrImagePull", "registry.example/lab:4: not found"))
        await soon(lambda: any("cannot be pulled" in line for line in said))
        assert not task.done()
        error = await failure(task)
        assert "registry.example/lab:4: not found" in error.jupyterhub_message
        assert "kubectl --namespace default describe pod jupyter-ada" in error.jupyterhub_html_message


async def test_an_image_that_is_there_after_all_starts(cluster):
    async with starting() as (master, _, task, said):
        await placed(cluster, master, said)
        cluster.set_pod(POD, waiting("ErrImagePull", "timeout"))
        await soon(lambda: any("cannot be pulled" in line for line in said))
        cluster.set_pod(POD, RUNS)
        await asyncio.wait_for(task, 20)


async def test_a_pod_that_takes_too_long_is_given_up_though_the_queue_may_take_days(cluster):
    async with starting(pod_timeout=1) as (master, mine, task, said):
        assert mine.start_timeout > 86400
        await placed(cluster, master, said)
        error = await failure(task)
        assert "did not start within 1 s. node-7 prepares the pod" in error.jupyterhub_message


async def test_a_pod_that_someone_deletes_ends_the_start(cluster):
    async with starting() as (master, _, task, said):
        await placed(cluster, master, said)
        await soon(lambda: "node-7 prepares the pod" in said)
        cluster.delete_pod(POD, grace=0)
        assert "deleted" in (await failure(task)).jupyterhub_message


async def test_an_older_pod_of_the_same_name_goes_and_the_allocation_stays(cluster):
    """Found: KubeSpawner ends an older pod by `stop`, which also ended the allocation of the new one."""
    old = {
        "metadata": {"name": POD, "labels": {"component": "singleuser-server"}},
        "spec": {"containers": [{"name": "notebook", "image": "x"}]},
    }
    cluster.create("pods", old)
    before = cluster.pod(POD)["metadata"]["uid"]
    async with starting() as (master, _, task, _said):
        await soon(lambda: master.views)
        master.put("notebook-0", allocation_state=AllocationState.RUNNING, agent_id="node-7", slots=["any0"])
        await soon(lambda: (pod := cluster.pod(POD)) is not None and pod["metadata"]["uid"] != before, seconds=30)
        cluster.set_pod(POD, RUNS)
        await asyncio.wait_for(task, 20)
        assert master.deleted == []


async def test_a_right_that_the_hub_lacks_is_named(cluster, monkeypatch):
    original = cluster.may
    monkeypatch.setattr(
        cluster, "may", lambda user, verb, resource, *more: verb != "create" and original(user, verb, resource, *more)
    )
    async with starting() as (master, _, task, _):
        master.put("notebook-0", allocation_state=AllocationState.RUNNING, agent_id="node-7")
        error = await failure(task)
        assert 'cannot create resource "pods"' in error.jupyterhub_message
        assert error.reason == "forbidden"


async def test_names_and_words_of_the_cluster_are_escaped_on_the_failure_page(cluster):
    async with starting() as (master, _, task, said):
        await placed(cluster, master, said)
        cluster.set_pod(POD, waiting("InvalidImageName", "<script>alert(1)</script>"))
        error = await failure(task)
        assert "<script>" not in error.jupyterhub_html_message
        assert "&lt;script&gt;" in error.jupyterhub_html_message
