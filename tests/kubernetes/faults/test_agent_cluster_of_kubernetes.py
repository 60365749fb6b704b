"""An agent that cannot work here, and a cluster that fails while it does."""

import re
import shutil

import pytest
from pod_helpers import ended, gone, running, start

from detlab.testing.runtimes import ENDS_SOON


def test_a_pod_of_a_lost_directory_is_adopted_by_its_labels(master, cluster, agents, place):
    first = agents()
    task, _ = running(master, cluster, ENDS_SOON.replace("sleep(1)", "sleep(8)"))
    first.kill()
    master.wait_for(lambda: not master.connected())
    seen = len(master.hellos)
    shutil.rmtree(place / "agent")
    cluster.do(
        lambda: cluster.store.modify(
            cluster.store.kind("leases", "coordination.k8s.io"),
            "default",
            "detlab-agent",
            lambda lease: lease["spec"].update(holderIdentity=""),
        )
    )
    agents()
    assert [one.allocation_id for one in master.hellos[seen].tasks] == [task.launch.allocation_id]
    assert ended(master, task).exit_code == 4


def test_a_second_agent_for_a_namespace_is_refused(master, cluster, agents):
    agents()
    second = agents("--name", "other", name="two", wait=False)
    assert second.process.wait(40) != 0
    said = second.log.read_text()
    assert "serves the namespace default" in said
    assert "--namespace" in said


@pytest.mark.parametrize(("verb", "plural"), [("create", "pods"), ("list", "nodes"), ("create", "secrets")])
def test_a_missing_right_is_named(master, cluster, agents, verb, plural):
    cluster.forbid(verb, plural)
    agent = agents(wait=False)
    assert agent.process.wait(40) != 0
    assert f"missing rights in namespace default: {verb} {plural}" in agent.log.read_text()


def test_a_namespace_that_is_not_there_is_named(master, cluster, agents):
    agent = agents("--namespace", "nowhere", wait=False)
    assert agent.process.wait(40) != 0
    assert 'namespaces "nowhere" not found' in agent.log.read_text()


def test_credentials_that_are_not_accepted_are_told(master, cluster, agents):
    agent = agents("--kubeconfig", str(cluster.kubeconfig(token="wrong")), wait=False)
    assert agent.process.wait(40) != 0
    assert "does not accept the credentials" in agent.log.read_text()


def test_a_clock_that_is_wrong_is_named_where_credentials_are_refused(master, cluster, agents):
    """A token of a cluster is good for an hour: on a machine whose clock is behind it is not valid yet."""
    cluster.ahead = 7200.0
    agent = agents("--kubeconfig", str(cluster.kubeconfig(token="wrong")), wait=False)
    assert agent.process.wait(40) != 0
    said = agent.log.read_text()
    assert re.search(r"does not accept the credentials: Unauthorized; this machine's clock is 7\d\d\d s behind", said)
    assert "timedatectl" in said


def test_a_clock_that_is_wrong_is_warned_of_and_the_agent_works(master, cluster, agents):
    cluster.ahead = -7200.0
    agent = agents()
    assert re.search(r"WARNING .*this machine's clock is 7\d\d\d s ahead of the API server's", agent.log.read_text())


def test_a_namespace_that_goes_under_an_agent_is_named_in_the_refusal_of_a_task(master, cluster, agents):
    cluster.add_namespace("lab")
    agents("--namespace", "lab")
    cluster.do(
        lambda: cluster.store.remove(
            cluster.store.kind("namespaces"), cluster.store.get(cluster.store.kind("namespaces"), "", "lab")
        )
    )
    task = start(master, "")
    exit_ = ended(master, task)
    assert exit_.reason == "refused", "it is no fault of the task: it goes elsewhere, or waits"
    assert "namespace lab is gone or going" in exit_.message
    assert "kubectl create namespace lab" in exit_.message


def test_a_kubeconfig_that_is_none_is_told(master, cluster, agents, place):
    (place / "bad").write_text("{}")
    agent = agents("--kubeconfig", str(place / "bad"), wait=False)
    assert agent.process.wait(40) != 0
    said = agent.log.read_text()
    assert "no access to Kubernetes" in said
    assert "Traceback" not in said


def test_a_task_lives_through_an_api_server_that_dies_and_forgets(master, cluster, agent):
    """Down, back with watches cut, and again with its history gone: the end is still told, and once."""
    task, _ = running(master, cluster, ENDS_SOON.replace("sleep(1)", "sleep(6)"))
    cluster.stop()
    cluster.expire_history()
    cluster.restart()
    cluster.cut_watches()
    assert ended(master, task).exit_code == 4
    assert {(one.exit_code, one.reason) for one in task.exits} == {(4, "")}
    gone(cluster)


def test_a_pod_whose_maker_heard_no_answer_is_made_once(master, cluster, agent):
    cluster.drop_replies = 1
    task = start(master, "print('once')")
    assert ended(master, task).exit_code == 0
    assert master.texts(task, "stdout") == ["once"]


def test_an_agent_whose_lease_was_taken_starts_nothing(master, cluster, agent):
    """It was cut off for so long that another one has begun; two would start tasks twice."""
    leases = cluster.store.kind("leases", "coordination.k8s.io")
    take = lambda lease: lease["spec"].update(holderIdentity="another")  # noqa: E731
    cluster.do(lambda: cluster.store.modify(leases, "default", "detlab-agent", take))
    master.wait_for(lambda: master.hellos[-1].runtimes == [], timeout=30)
    exit_ = ended(master, start(master, ""))
    assert exit_.reason == "refused"
    assert "another agent serves the namespace" in exit_.message
