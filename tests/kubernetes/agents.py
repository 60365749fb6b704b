"""Agents for Kubernetes as processes, against the shipped double of the master."""

import json
import sys
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parents[1] / "integration" / "agent"))

from agent_helpers import AgentProcess

from detlab.schemas.podspec import MAIN_CONTAINER
from detlab.schemas.wire import ContainerSpec
from detlab.testing.runtimes import RuntimeContract

IMAGE = "localhost/testbed/python:1"
AGENT = "detlab.io/agent"


def kubernetes_agent(master, directory, kubeconfig, *options, settings=None):
    """An agent that is not started yet."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "settings.json"
    file.write_text(json.dumps({"image": IMAGE, "image_pull_policy": "Never", **(settings or {})}))
    always = ("--kubernetes", "--kubeconfig", str(kubeconfig), "--kubernetes-settings", str(file))
    return AgentProcess(master, directory / "agent", *always, *options, forked=False)


class PodContract(RuntimeContract):
    """The contract of runtimes for pods, on the node `node`."""

    runtime = "kubernetes"
    tasks_are = "elsewhere"
    node: ClassVar[str] = "real-1"

    def launch(self, master, entrypoint, **options):
        asked = {"node": self.node, "slots": ["gpu0"], "container": ContainerSpec(image=""), **options}
        return super().launch(master, entrypoint, **asked)

    def pods(self, agent):
        """The agent's pods."""
        raise NotImplementedError

    def left_behind(self, agent, task):
        name = task.launch.allocation_id
        files = [path for path in (agent.directory / "tasks").iterdir() if path.name.startswith(name)]
        pods = [one for one in self.pods(agent) if one["metadata"]["annotations"]["detlab.io/allocation"] == name]
        return [*files, *(one["metadata"]["name"] for one in pods)]


def main_container(pod):
    return next(one for one in pod["spec"]["containers"] if one["name"] == MAIN_CONTAINER)
