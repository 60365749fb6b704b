"""A whole fake cluster in a thread of this process: API server, scheduler, nodes.

with FakeCluster(directory) as cluster:
    cluster.add_node("gpu-1", gpus=8)              # pods are bound to it; tests say how they go (`set_pod`)
    cluster.add_node("real-1", runs=True)          # pods run as processes
    agent(kubeconfig=cluster.kubeconfig())
    cluster.cut_watches(); cluster.expire_history(); cluster.forbid("create", "pods"); cluster.stop()
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from detlab.testing.ports import free_port
from testbed.kubernetes.fake.commands import Exec
from testbed.kubernetes.fake.kubelet import Kubelet
from testbed.kubernetes.fake.resources import Object, Resource
from testbed.kubernetes.fake.scheduler import Scheduler
from testbed.kubernetes.fake.server import Handler
from testbed.kubernetes.fake.store import Store, now

T = TypeVar("T")
ADMIN = "admin-of-the-fake-cluster"
AGENT = "agent-of-the-fake-cluster"


class FakeCluster:
    """A fake cluster; what is asked of it from any thread is done in its own.

    Args:
        directory: For the files of pods and kubeconfigs.
        hidden: Folders of this machine that are empty in pods.
        images: Names of images that nodes have, with their variables; None: all. Each has this machine's programs.
    """

    def __init__(
        self, directory: Path, hidden: Sequence[Path] = (), images: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.directory = directory
        self.store = Store()
        self.users = {ADMIN: "admin", AGENT: "system:serviceaccount:detlab:detlab-agent"}
        self.requests: list[tuple[str, str]] = []
        """Method and URL of each request."""
        self.slow = 0.0
        """Seconds before each answer."""
        self.ahead = 0.0
        """Seconds by which the clock of its answers is ahead."""
        self.failures: deque[int] = deque()
        """Statuses of the next answers; 0 breaks the connection off."""
        self.drop_replies = 0
        """How many objects are made whose maker does not hear of it."""
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.after: Callable[[str, str], None] = lambda method, path: None
        """Called in the server's thread with each request that comes, and with each that is done but not answered."""
        self.bookmark_every = 1.0
        self.port = free_port()
        self.scheduler = Scheduler(self.store)
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        self.kubelet = Kubelet(self.store, directory / "pods", hidden, images, {"PATH": path})
        self._forbidden: set[tuple[str, str, str | None]] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self.cut = asyncio.Event()
        self._seed()

    def _seed(self) -> None:
        for name in ("default", "kube-system", "kube-node-lease"):
            self._make_namespace(name)
        priorities = self.store.kind("priorityclasses", "scheduling.k8s.io")
        for name, value in (("system-cluster-critical", 2000000000), ("system-node-critical", 2000001000)):
            self.store.create(priorities, "", {"metadata": {"name": name}, "value": value})

    def _make_namespace(self, name: str) -> None:
        found = {"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        self.store.create(self.store.kind("namespaces"), "", found)
        self.store.create(self.store.kind("serviceaccounts"), name, {"metadata": {"name": "default"}})

    # --- life ---------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"http://127.0.0.1:{self.port}"

    def kubeconfig(self, token: str = AGENT, namespace: str = "default") -> Path:
        """Write a kubeconfig, and return its path."""
        user, cluster = {"token": token}, {"server": self.url}
        context = {"cluster": "fake", "user": "user", "namespace": namespace}
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "fake", "context": context}],
            "current-context": "fake",
        }
        path = self.directory / f"kubeconfig-{namespace}-{token}.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    def start(self) -> None:
        """Start to listen; the objects are those of before.

        Raises:
            RuntimeError: It does not listen within 10 seconds.
        """
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        if not ready.wait(10.0):
            raise RuntimeError("the fake API server does not listen")

    def _halt(self) -> None:
        if self._thread is None or self._loop is None or self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20.0)
        self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._halt()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self.cut = asyncio.Event(), asyncio.Event()
        self._server: HTTPServer | None = None
        await self._listen()
        self.scheduler.start()
        self.kubelet.start()
        ready.set()
        await self._stop.wait()
        await self._hang_up()
        self.scheduler.stop()
        await self.kubelet.stop()

    async def _listen(self) -> None:
        if self._server is None:
            routes = [(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/exec", Exec), ("/(.*)", Handler)]
            application = Application(routes, cluster=self, log_function=lambda handler: None)
            self._server = HTTPServer(application, max_body_size=4 << 20)
            self._server.add_sockets(bind_sockets(self.port, "127.0.0.1", reuse_port=False))

    async def _hang_up(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            server.stop()
            await self._cut()
            await server.close_all_connections()

    async def _cut(self) -> None:
        old, self.cut = self.cut, asyncio.Event()
        old.set()

    def do(self, what: Callable[[], T]) -> T:
        """Do something in the thread of the cluster, and return what it returns."""

        async def inside() -> T:
            return what()

        return self._run(inside())

    def _run(self, doing: Any) -> Any:
        if self._loop is None:
            raise RuntimeError("the fake cluster is not started")
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(20.0)

    # --- faults -------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Kill the API server; nodes and their pods go on, and what they say is known when it is back."""
        self._run(self._hang_up())

    def restart(self) -> None:
        """Start the API server again, at the same address."""
        self._run(self._listen())

    def cut_watches(self) -> None:
        """Break off every watch and every log that is followed."""
        self._run(self._cut())

    def expire_history(self) -> None:
        """Forget what has changed up to now: watches from before are answered with 410."""
        self.do(self.store.expire)

    def forbid(self, verb: str, plural: str, namespace: str | None = None) -> None:
        """Take a right from all but the admin; `plural` may be `pods/log`."""
        self._forbidden.add((verb, plural, namespace))

    def allow(self) -> None:
        """Give all rights back."""
        self._forbidden.clear()

    def may(self, user: str, verb: str, resource: Resource, namespace: str, sub: str = "") -> bool:
        """Whether a user has a right."""
        plural = f"{resource.plural}/{sub}" if sub else resource.plural
        asked = {(verb, plural, None), (verb, plural, namespace)}
        return user == "admin" or not asked & self._forbidden

    # --- what is in it ------------------------------------------------------------------------------------

    def add_namespace(self, name: str) -> None:
        """Add a namespace with its default service account."""
        self.do(lambda: self._make_namespace(name))

    def serve(self, group: str, version: str, plural: str, kind: str) -> None:
        """Serve a kind of custom resources."""
        self.do(lambda: self.store.serve(Resource(group, version, plural, kind, True, ("status",))))

    def create(self, plural: str, made: Object, namespace: str = "default", group: str = "") -> Object:
        """Make an object, as an admin."""
        return self.do(lambda: self.store.create(self.store.kind(plural, group), namespace, made))

    def objects(self, plural: str, namespace: str = "", group: str = "") -> list[Object]:
        """Return objects."""
        return self.do(lambda: list(self.store.all(self.store.kind(plural, group), namespace)))

    def pod(self, name: str, namespace: str = "default") -> Object | None:
        """Return a pod, or None."""
        return self.do(lambda: self.store.find(self.store.kind("pods"), namespace, name))

    def set_pod(self, name: str, status: Mapping[str, Any], namespace: str = "default") -> None:
        """Say how a pod is, on a node that runs none."""
        pods = self.store.kind("pods")
        self.do(lambda: self.store.modify(pods, namespace, name, lambda pod: pod["status"].update(status)))

    def delete_pod(self, name: str, namespace: str = "default", grace: float | None = None) -> None:
        """Delete a pod by hand."""

        def delete() -> None:
            kind = self.store.kind("pods")
            found = self.store.find(kind, namespace, name)
            if found is not None:
                self.store.end(kind, found, grace)

        self.do(delete)

    # --- nodes --------------------------------------------------------------------------------------------

    def add_node(
        self,
        name: str,
        *,
        gpus: int = 0,
        cpu: str = "64",
        memory: str = "512Gi",
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        resources: Mapping[str, str] | None = None,
        runs: bool = False,
    ) -> None:
        """Add a node that is ready.

        Args:
            name: Its name.
            gpus: Its `nvidia.com/gpu`.
            cpu: Its processors.
            memory: Its memory.
            labels: Further ones.
            taints: Its taints.
            resources: Further ones, such as `nvidia.com/mig-1g.5gb`.
            runs: Whether it runs its pods as processes.
        """
        amounts = {"cpu": cpu, "memory": memory, "pods": "110", **(resources or {})}
        if gpus:
            amounts["nvidia.com/gpu"] = str(gpus)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now()}
        address = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready], "addresses": address}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        node = {"metadata": meta, "spec": {"taints": list(taints)} if taints else {}, "status": status}
        if runs:
            self.kubelet.nodes.add(name)
        self.create("nodes", node, "")

    def change_node(self, name: str, change: Callable[[Object], None]) -> None:
        """Change a node: its labels, taints, resources."""
        self.do(lambda: self.store.modify(self.store.kind("nodes"), "", name, change))

    def cordon(self, name: str, *, on: bool = True) -> None:
        """Let no new pod onto a node."""
        self.change_node(name, lambda node: node["spec"].update(unschedulable=on))

    def drain(self, name: str) -> None:
        """Cordon a node and delete its pods, as `kubectl drain` does."""
        self.cordon(name)
        for pod in self.objects("pods"):
            if pod["spec"].get("nodeName") == name:
                self.delete_pod(pod["metadata"]["name"], pod["metadata"]["namespace"])

    def lose_node(self, name: str) -> None:
        """Cut a machine's power: its processes are gone, the node is not ready, and its pods are to be deleted."""
        self.do(lambda: self.kubelet.lose(name))
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}

        def change(node: Object) -> None:
            ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": now()}
            node["status"]["conditions"] = [ready]
            node["spec"].setdefault("taints", []).append(taint)

        self.change_node(name, change)
        for pod in self.objects("pods"):
            if pod["spec"].get("nodeName") == name:
                self.delete_pod(pod["metadata"]["name"], pod["metadata"]["namespace"], grace=30)

    def remove_node(self, name: str) -> None:
        """Remove a node, and the pods that were on it."""

        def remove() -> None:
            kind = self.store.kind("pods")
            self.kubelet.lose(name)
            self.store.remove(self.store.kind("nodes"), self.store.get(self.store.kind("nodes"), "", name))
            for pod in [one for one in self.store.all(kind) if one["spec"].get("nodeName") == name]:
                self.store.end(kind, pod, 0)

        self.do(remove)

    def kill_container(self, name: str, namespace: str = "default", *, reason: str = "") -> None:
        """SIGKILL a pod's containers; `OOMKilled` as the reason says it was for want of memory."""
        self.do(lambda: self.kubelet.kill(namespace, name, reason))

    def evict(
        self, name: str, namespace: str = "default", message: str = "The node was low on resource: memory."
    ) -> None:
        """Let the node end a pod, since it runs out of something."""
        self.do(lambda: self.kubelet.evict(namespace, name, message))
