"""Agents for a cluster as processes, and the cluster as their tests see it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from agent_helpers import AgentProcess

from detlab.schemas.wire import ContainerSpec
from testbed.kubernetes import images
from testbed.kubernetes.api_client import Answer, ApiClient, Object
from testbed.kubernetes.control_plane import ControlPlane
from testbed.kubernetes.fake.cluster import AGENT, FakeCluster
from testbed.kubernetes.line import Line
from testbed.kubernetes.sites import FakeSite, RealSite
from testbed.waiting import until

SETTINGS: Object = {"image": images.PYTHON, "image_pull_policy": "Never", "pending_limit": 20, "image_limit": 3}
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]
"""What the agent may do in its namespace: no more than it needs."""
NODES = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}]
ON_FAKE = pytest.mark.parametrize("kube", ["fake"], indirect=True)
"""For what only the fake cluster does when it is told to."""
SLOW = 2.0
"""Seconds of each answer while the store of the fake cluster hangs."""
STEPS = """
import sys, time
for step in range(int(sys.argv[1])):
    print("step", step, flush=True)
    time.sleep(0.1)
"""
WAITS = "import time; print('up', flush=True); time.sleep(600)"
NOT_ITS_FAULT = "machine_restarted"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Kube:
    """A namespace, and a user for the agent in it.

    Attributes:
        here: This machine's address as pods see it.
        kubeconfig: The agent's.
    """

    here = "127.0.0.1"
    kubeconfig: Path

    def __init__(self, site: FakeSite | RealSite, directory: Path) -> None:
        self.site, self.directory = site, directory

    @property
    def namespace(self) -> str:
        """Its name."""
        return self.site.namespace

    @property
    def admin(self) -> ApiClient:
        """A client with all rights."""
        return self.site.admin

    def of(self, plural: str) -> list[str]:
        """Return the names of objects that agents have made."""
        found = self.admin.get(f"{self.site.at}/{plural}")["items"]
        return [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith("det-")]

    def pods(self) -> list[Object]:
        """Return the pods that agents have made."""
        found = self.admin.get(self.site.pods)["items"]
        return [one for one in found if one["metadata"]["name"].startswith("det-")]

    def the_pod(self) -> str:
        """Return the name of the only pod that agents have made; wait until it is there."""
        return until(lambda: self.of("pods"), "no pod", 30)[0]

    def spooled(self) -> str:
        """What the launcher in the only pod has heard of its program, in the files of its spool."""
        reads = "cat ${TMPDIR:-/tmp}/detlab-*/task/spool/logs.jsonl"
        return asyncio.run(self.site.execute(self.the_pod(), "sh", "-c", reads))[0]

    def pod_of(self, task) -> Object:
        """Return the pod of a task; wait until it is there."""
        note, name = "detlab.io/allocation", task.launch.allocation_id

        def found() -> list[Object]:
            return [pod for pod in self.pods() if pod["metadata"].get("annotations", {}).get(note) == name]

        return until(found, lambda: f"no pod of {name}: {self.told()}", 30)[0]

    def owned_secret(self, pod: Object) -> Object | None:
        """Return the secret of a pod; None until the pod owns it."""
        found: Object = self.admin.get(f"{self.site.at}/secrets/{pod['metadata']['name']}")
        return found if found["metadata"].get("ownerReferences") else None

    def told(self) -> str:
        """Return what there is, for a failed test."""
        with suppress(Answer):
            return json.dumps([[one["metadata"]["name"], one["status"]] for one in self.pods()], indent=1)
        return ""

    def restart_api(self) -> None:
        """Kill the API server, and start it again."""
        raise NotImplementedError

    def cut_watches(self) -> int:
        """Break off the connections of the agent; return how many there were, or 1 where that is not known."""
        raise NotImplementedError

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """While it lasts the store of the API server hangs."""
        raise NotImplementedError
        yield

    def give_lease(self, holder: str) -> None:
        """Say that another agent has the namespace, or none ("")."""
        at = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/detlab-agent"
        self.admin.patch(at, {"spec": {"holderIdentity": holder}})

    def kill_at(self, moment: str, agent: ClusterAgent) -> threading.Event:
        """Kill an agent at a moment of a launch; return what says that it was."""
        raise NotImplementedError

    def take_right(self, verb: str, plural: str) -> None:
        """Take one right from the agent's user."""
        raise NotImplementedError

    def end(self) -> None:
        """End what is left."""
        self.site.end()
        self.admin.http.close()


class FakeKube(Kube):
    """Of the fake cluster."""

    def __init__(self, cluster: FakeCluster, directory: Path) -> None:
        super().__init__(FakeSite(cluster), directory)
        self.cluster = cluster
        self.kubeconfig = cluster.kubeconfig(AGENT, self.namespace)

    def kill_at(self, moment: str, agent: ClusterAgent) -> threading.Event:
        killed, cluster = threading.Event(), self.cluster
        which, when = {
            "before the pod": ("/secrets", "before"),
            "pod asked for": ("/pods", "before"),
            "pod made": ("/pods", "after"),
        }[moment]

        def kill(method: str, path: str) -> None:
            if (method, path.endswith(which), killed.is_set()) == ("POST", True, False):
                agent.process.kill()
                killed.set()

        setattr(cluster, when, kill)
        return killed

    def cut_watches(self) -> int:
        self.cluster.cut_watches()
        return 1

    @contextmanager
    def stalled(self) -> Iterator[None]:
        self.cluster.slow = SLOW
        try:
            yield
        finally:
            self.cluster.slow = 0.0

    def take_right(self, verb: str, plural: str) -> None:
        self.cluster.forbid(verb, plural, None if plural == "nodes" else self.namespace)

    def restart_api(self) -> None:
        self.cluster.stop()
        self.cluster.expire_history()
        self.cluster.restart()
        self.cluster.cut_watches()


class RealKube(Kube):
    """Of the real one; the agent is a service account with a role.

    Args:
        plane: Its control plane.
        directory: For files.
        line: Whether the agent reaches the API server by a way that can be cut.
    """

    def __init__(self, plane: ControlPlane, directory: Path, *, line: bool = False) -> None:
        site = RealSite(plane)
        super().__init__(site, directory)
        self.plane, self.here, self._rules = plane, plane.address, [dict(rule) for rule in RULES]
        subject = {"kind": "ServiceAccount", "name": "agent", "namespace": self.namespace}
        self.admin.post(f"{site.at}/serviceaccounts", {"metadata": {"name": "agent"}})
        for kind, at, rules in (
            ("Role", f"{_RBAC}/namespaces/{self.namespace}", RULES),
            ("ClusterRole", _RBAC, NODES),
        ):
            name = {"metadata": {"name": f"agent-{self.namespace}"}}
            self.admin.post(f"{at}/{kind.lower()}s", {**name, "rules": rules})
            role = {"kind": kind, "name": f"agent-{self.namespace}", "apiGroup": "rbac.authorization.k8s.io"}
            self.admin.post(f"{at}/{kind.lower()}bindings", {**name, "subjects": [subject], "roleRef": role})
        self.line = Line(plane.address, plane.ports["api"]) if line else None
        port = self.line.port if self.line is not None else None
        self.kubeconfig = plane.kubeconfig(site.token_of("agent"), self.namespace, self.namespace, port)

    def cut_watches(self) -> int:
        assert self.line is not None, "this cluster was made without a line"
        return self.line.cut()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        self.plane.pause("etcd")
        try:
            yield
        finally:
            self.plane.pause("etcd", on=False)

    def kill_at(self, moment: str, agent: ClusterAgent) -> threading.Event:
        killed = threading.Event()

        def watch() -> None:
            tasks = agent.directory / "tasks"
            begun = {
                "before the pod": lambda: list(tasks.glob("*.json")),
                "pod asked for": lambda: self.of("secrets"),
            }
            until(begun.get(moment, lambda: self.of("pods")), "the launch does not come so far", 60, 0.005)
            agent.process.kill()
            killed.set()

        threading.Thread(target=watch, daemon=True).start()
        return killed

    def take_right(self, verb: str, plural: str) -> None:
        everywhere = plural == "nodes"
        at = f"{_RBAC}/clusterroles" if everywhere else f"{_RBAC}/namespaces/{self.namespace}/roles"
        rules = [dict(rule) for rule in NODES] if everywhere else self._rules
        for rule in rules:
            if plural in rule["resources"]:
                rule["verbs"] = [one for one in rule["verbs"] if one != verb]
        # A rule without a verb is none: the API server does not take it.
        self.admin.patch(f"{at}/agent-{self.namespace}", {"rules": [rule for rule in rules if rule["verbs"]]})
        until(lambda: not self._may(verb, plural), f"the right to {verb} {plural} stays", 30)

    def _may(self, verb: str, plural: str) -> bool:
        """Whether the API server lets the agent do something: it knows of a changed role a moment later."""
        resource, _, sub = plural.partition("/")
        asked = {"verb": verb, "resource": resource, "subresource": sub, "namespace": self.namespace}
        spec = {"user": f"system:serviceaccount:{self.namespace}:agent", "resourceAttributes": asked}
        said = self.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        return bool(said["status"]["allowed"])

    def end(self) -> None:
        for kind in ("clusterrolebindings", "clusterroles"):
            with suppress(Answer):
                self.admin.delete(f"{_RBAC}/{kind}/agent-{self.namespace}")
        super().end()
        if self.line is not None:
            self.line.close()

    def restart_api(self) -> None:
        self.plane.kill("kube-apiserver")
        self.plane.start_api()


class ClusterAgent(AgentProcess):
    """An agent of a cluster."""

    def __init__(self, master, directory, kube: Kube, *options, settings: Object | None = None) -> None:
        path = directory.parent / "settings.yaml"
        path.write_text(json.dumps({**SETTINGS, **(settings or {})}))
        cluster = (
            "--kubernetes",
            "--kubeconfig",
            str(kube.kubeconfig),
            "--kubernetes-settings",
            str(path),
            "--insecure-http",
        )
        super().__init__(master, directory, *cluster, *options, forked=False)
        self.kube = kube

    def start(self) -> None:
        """Start it; if it ran before, once the master knows that it does no more: no word goes to the one that died."""
        if self.process is not None:
            until(lambda: not self.master.connected(), "the master still has a connection with it", 20)
        super().start()

    def connected(self) -> None:
        """Wait until the master has its nodes; fail at once, with what it said, if the agent ends."""

        def there() -> bool:
            code = self.process.poll()
            assert code is None, f"the agent ended with status {code}:\n{self.log.read_text()}"
            return bool(self.master.connected() and self.master.hellos[-1].nodes)

        until(there, lambda: f"the agent is not there with its nodes:\n{self.log.read_text()}", 60)

    def left_behind(self, task) -> list[str]:
        """Return what still exists for a task."""
        name = task.launch.allocation_id
        label = "detlab.io/task"
        pods = [
            one["metadata"]["name"] for one in self.kube.pods() if name in str(one["metadata"]["labels"].get(label))
        ]
        files = [path.name for path in (self.directory / "tasks").glob("*") if path.name.startswith(name)]
        return [*pods, *files]

    def none_left(self, seconds: float = 60.0) -> None:
        """Wait until no pod and no secret of any task is left."""

        def left() -> list[str]:
            return [*self.kube.of("pods"), *self.kube.of("secrets")]

        until(lambda: not left(), lambda: f"still there: {left()}", seconds)


def allocate(master, entrypoint, **options):
    """Make a task for the node that runs pods, without sending it."""
    fields = {"node": "real-1", "slots": ["gpu0"], "container": ContainerSpec(image=images.PYTHON)}
    return master.allocate(entrypoint, runtime="kubernetes", **{**fields, **options})


def launch(master, entrypoint, **options):
    """Launch a task on the node that runs pods."""
    task = allocate(master, entrypoint, **options)
    master.send(task.launch)
    return task


def python(text: str, *words: object) -> list[str]:
    """Return the command that runs a program."""
    return ["python3", "-u", "-c", text, *map(str, words)]


def started(master, task):
    """Wait until a task has said something."""
    master.wait_for(lambda: master.texts(task, "stdout"), 60)
    return task


def ended(master, task, seconds=90.0):
    """Wait for the end of a task, and return it."""
    master.wait_for(lambda: task.exits, seconds, "the task ends")
    return task.exits[0]
