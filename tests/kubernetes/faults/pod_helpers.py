"""Agents for Kubernetes as processes, against the shipped double of the master."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "agent"))

from agent_helpers import AgentProcess

from detlab.schemas.podspec import MAIN_CONTAINER
from detlab.schemas.wire import ContainerSpec
from detlab.testing.runtimes import IGNORES_SIGTERM
from testbed.kubernetes import images
from testbed.waiting import until


def kubernetes_agent(master, directory, kubeconfig, *options, settings=None):
    """An agent that is not started yet."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "settings.json"
    file.write_text(json.dumps({"image": images.PYTHON, "image_pull_policy": "Never", **(settings or {})}))
    always = ("--kubernetes", "--kubeconfig", str(kubeconfig), "--kubernetes-settings", str(file))
    return AgentProcess(master, directory / "agent", *always, *options, forked=False)


def main_container(pod):
    return next(one for one in pod["spec"]["containers"] if one["name"] == MAIN_CONTAINER)


def start(master, program, **options):
    asked = {"node": "real-1", "slots": ["gpu0"], "container": ContainerSpec(image=""), "runtime": "kubernetes"}
    return master.launch(["python3", "-u", "-c", program], **{**asked, **options})


def running(master, cluster, program=IGNORES_SIGTERM, **options):
    """A task whose program has said something, and the name of its pod."""
    task = start(master, program, **options)
    master.wait_for(lambda: master.texts(task, "stdout"), timeout=40)
    return task, pod_of(cluster, task)["metadata"]["name"]


def pod_of(cluster, task):
    """The pod of a task."""
    name = task.launch.allocation_id
    return next(one for one in cluster.objects("pods") if allocation_of(one) == name)


def allocation_of(pod):
    """The allocation whose task a pod is; None if it is none."""
    return (pod["metadata"].get("annotations") or {}).get("detlab.io/allocation")


def ended(master, task):
    master.wait_for(lambda: task.exits, timeout=40)
    return task.exits[-1]


def gone(cluster):
    """Nothing of any task is left in the cluster."""
    left = lambda: [one["metadata"]["name"] for kind in ("pods", "secrets") for one in cluster.objects(kind)]  # noqa: E731
    until(lambda: not left(), lambda: str(left()), 20)
