"""Attacks by an ordinary user's pod_spec that a master let through: the agent refuses each, and makes no pod."""

import pytest
from kubernetes_agents import WAITS, allocate, ended, python, started

from testbed.kubernetes.pod_attacks import ALLOWED_BY_THE_OPERATOR, ALLOWING, LABELS, NEVER
from testbed.kubernetes.pod_schema import faults
from testbed.kubernetes.pod_security import violations

SELECTOR = {"app.kubernetes.io/name": "detlab", "app.kubernetes.io/component": "master", "detlab.io/part": "master"}


def attacked(master, kube, specs):
    """Launch a task with each pod_spec; return those that were not refused before anything was made."""
    harmed = []
    for name, one in specs:
        task = allocate(master, python(WAITS), config={"environment": {"pod_spec": one}})
        master.send(task.launch)
        exit_ = ended(master, task)
        if exit_.reason != "setup" or "environment.pod_spec" not in exit_.message:
            harmed.append((name, exit_.reason, exit_.message))
    assert not kube.pods()
    return harmed


@pytest.mark.timeout(400)
def test_no_attack_by_a_pod_spec_makes_a_pod(master, kube, agents):
    agents(settings=ALLOWING)
    specs = [(name, {"spec": one}) for name, one in NEVER.items() if name != "a volume called like the operator's"]
    assert not attacked(master, kube, [(name, one) for name, one in specs if name != "the operator's volume"])


@pytest.mark.timeout(400)
def test_what_only_the_operator_allows_makes_no_pod_where_they_do_not(master, kube, agent):
    assert not attacked(master, kube, [(name, {"spec": one}) for name, one in ALLOWED_BY_THE_OPERATOR.items()])


def test_a_pod_of_a_user_joins_no_service(master, kube, agent):
    """With the labels of the chart's master it received the cluster's traffic and tokens, and left its policy."""
    asked = [(name, {"metadata": {"labels": one}}) for name, one in LABELS.items()]
    assert not attacked(master, kube, [*asked, ("the master's", {"metadata": {"labels": SELECTOR}})])


def test_the_pod_of_a_task_is_admitted_by_pod_security(master, kube, agent):
    """As the cluster has it, with all that API server and admission have filled in."""
    task = started(master, allocate_and_send(master))
    made = kube.pod_of(task)
    assert not list(violations(made["spec"]))
    assert not [one for one in faults(made) if "V1Pod has no such field" not in one and ".status" not in one]
    assert set(SELECTOR) & set(made["metadata"]["labels"]) == set()
    master.send_kill(task, grace=0)
    ended(master, task)


def allocate_and_send(master):
    task = allocate(master, python(WAITS))
    master.send(task.launch)
    return task
