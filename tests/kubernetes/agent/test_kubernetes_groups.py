"""Groups and users whose tasks have a namespace, a service account and a queue of their own."""

import pytest
from kubernetes_agents import NOT_ITS_FAULT, ON_FAKE, WAITS, allocate, ended, python, started

from testbed.waiting import until

pytestmark = ON_FAKE
SETTINGS = {
    "groups": {"vision": {"namespace": "vision", "service_account": "eyes"}, "audio": {"namespace": "audio"}},
    "users": {"carol": {"namespace": "audio"}},
}


@pytest.fixture(autouse=True)
def namespaces(kube):
    """The namespaces, as a site makes them."""
    for name in ("vision", "audio"):
        kube.cluster.add_namespace(name)
    kube.cluster.create("serviceaccounts", {"metadata": {"name": "eyes"}}, "vision")


def of(kube, plural, namespace):
    """Return the objects of the agent in a namespace."""
    found = kube.cluster.objects(plural, namespace)
    return [one for one in found if one["metadata"]["name"].startswith("det-")]


def send(master, entrypoint, **more):
    task = allocate(master, entrypoint, **more)
    master.send(task.launch)
    return task


def test_tasks_of_a_group_run_in_its_namespace_under_its_account_and_leave_nothing_there(master, kube, agents):
    agents(settings=SETTINGS)
    task = started(master, send(master, python(WAITS), owner_groups=["chess", "vision"]))
    (pod,) = of(kube, "pods", "vision")
    assert pod["spec"]["serviceAccountName"] == "eyes"
    assert of(kube, "secrets", "vision"), "the parcel is beside its pod"
    assert not kube.pods()
    master.send_kill(task, grace=0)
    ended(master, task)
    until(lambda: not of(kube, "pods", "vision") + of(kube, "secrets", "vision"), "something stays", 30)
    usual = send(master, ["true"], owner_groups=["chess"])
    assert ended(master, usual).exit_code == 0
    assert not of(kube, "pods", "vision")


def test_a_user_comes_before_their_groups(master, kube, agents):
    agents(settings=SETTINGS)
    task = started(master, send(master, python(WAITS), owner="carol", owner_groups=["vision"]))
    assert of(kube, "pods", "audio")
    assert not of(kube, "pods", "vision")
    master.send_kill(task, grace=0)
    ended(master, task)


@pytest.mark.parametrize("lost", [False, True], ids=["killed", "without its records"])
def test_an_agent_finds_the_tasks_of_a_group_again(master, kube, agents, lost):
    agent = agents(settings=SETTINGS)
    task = started(master, send(master, python(WAITS), owner_groups=["vision"]))
    agent.process.kill()
    agent.process.wait()
    if lost:
        for record in (agent.directory / "tasks").glob("*.json"):
            record.unlink()
    agent.start()
    agent.connected()
    assert not task.exits
    kube.cluster.delete_pod(of(kube, "pods", "vision")[0]["metadata"]["name"], "vision", grace=0)
    assert ended(master, task).reason == NOT_ITS_FAULT


def test_rights_that_are_missing_in_the_namespace_of_a_group_are_named(master, kube, agents):
    kube.cluster.forbid("create", "pods", "vision")
    with pytest.raises(AssertionError, match="missing rights in namespace vision: create pods"):
        agents(settings=SETTINGS)


def test_services_that_a_pod_of_a_user_can_join_are_warned_of(master, kube, agents):
    for name, selector in (
        ("joined", {"team": "vision", "app.kubernetes.io/managed-by": "detlab"}),
        ("safe", {"team": "vision", "app.kubernetes.io/name": "detlab"}),
        ("none", {}),
    ):
        kube.cluster.create("services", {"metadata": {"name": name}, "spec": {"selector": selector}}, kube.namespace)
    said = agents(settings={"allow_labels": ["team"]}).log.read_text()
    assert f"Service joined of namespace {kube.namespace} goes by team, app.kubernetes.io/managed-by" in said
    assert "Service safe" not in said
    assert "Service none" not in said


def test_groups_have_queues_of_kueue(master, kube, agents):
    vision = {"namespace": "vision", "kueue_queue": "eyes"}
    agents(settings={"gang": "kueue", "kueue_queue": "all", "groups": {"vision": vision}})
    kube.cluster.scheduler.stop()
    send(master, "true", owner_groups=["vision"])
    (pod,) = until(lambda: of(kube, "pods", "vision"), "no pod", 30)
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "eyes"
    pod = kube.pod_of(send(master, "true", slots=["gpu1"]))
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "all"
