"""Nodes of a real control plane without a kubelet: their objects, their leases, and what one would say of pods."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import httpx

from testbed.kubernetes.api_client import Answer, ApiClient, Object
from testbed.kubernetes.control_plane import ControlPlane

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_BEAT = 5.0
_LOOK = 0.25


def now(part: str = "") -> str:
    """The time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + part + "Z"


class FakeNodes:
    """Fake nodes of one control plane, and a thread that speaks for them.

    Attributes:
        runs: Whether pods that are bound to one are said to run.
        ends: What pods have said when they end, which they do at once; None: they do not.
        silent: Names of nodes that say nothing any more.
    """

    def __init__(self, plane: ControlPlane, *, runs: bool = False, ends: str | None = None) -> None:
        self.runs, self.ends = runs, ends
        self.silent: set[str] = set()
        self._plane = plane
        self._names: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._speak, daemon=True)

    def add(
        self,
        name: str,
        *,
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        resources: Mapping[str, str] | None = None,
    ) -> None:
        """Add a node that is ready; the arguments are as of `FakeCluster.add_node`."""
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **(resources or {})}
        if gpus:
            amounts["nvidia.com/gpu"] = str(gpus)
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        node: Object = {"kind": "Node", "apiVersion": "v1", "metadata": meta, "spec": {"taints": list(taints)}}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses, "conditions": [_ready("True")]}
        with self._plane.admin as admin:
            admin.post("/api/v1/nodes", node)
            admin.patch(f"/api/v1/nodes/{name}/status", {"status": status})
            lease = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now(".000000")}
            with suppress(Answer):
                admin.post(LEASES, {"metadata": {"name": name}, "spec": lease})
            until = time.monotonic() + 20
            while any(one["key"].endswith("not-ready") for one in self._taints(admin, name)):
                if time.monotonic() > until:
                    raise TimeoutError(f"{name} does not become ready")
                time.sleep(0.05)
        self._names.append(name)

    @staticmethod
    def _taints(admin: ApiClient, name: str) -> list[Object]:
        found: list[Object] = admin.get(f"/api/v1/nodes/{name}")["spec"].get("taints") or []
        return found

    def remove(self, name: str) -> None:
        """Remove a node."""
        self._names.remove(name)
        with self._plane.admin as admin:
            admin.delete(f"/api/v1/nodes/{name}")

    def remove_all(self) -> None:
        """Remove them, and at once what is on them."""
        with self._plane.admin as admin:
            names = set(self._names)
            for pod in admin.get("/api/v1/pods")["items"]:
                if pod["spec"].get("nodeName") in names:
                    at = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                    with suppress(Answer):
                        admin.delete(at, {"gracePeriodSeconds": 0})
            for name in names:
                with suppress(Answer):
                    admin.delete(f"/api/v1/nodes/{name}")
        self._names.clear()

    def set_ready(self, name: str, value: str) -> None:
        """Say that a node is ready (`True`), or not."""
        with self._plane.admin as admin:
            admin.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [_ready(value)]}})

    # --- what a kubelet says ------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to speak."""
        self._thread.start()

    def stop(self) -> None:
        """Say nothing any more."""
        self._over.set()
        self._thread.join(30)

    def _speak(self) -> None:
        beat = 0.0
        while not self._over.wait(_LOOK):
            try:
                with self._plane.admin as admin:
                    if time.monotonic() - beat > _BEAT:
                        beat = time.monotonic()
                        self._renew(admin)
                    self._tell(admin)
            except (Answer, httpx.HTTPError):  # the server is away, as tests want it, or an object has gone meanwhile
                continue

    def _heard(self) -> set[str]:
        return set(self._names) - self.silent

    def _renew(self, admin: ApiClient) -> None:
        for name in self._heard():
            admin.patch(f"{LEASES}/{name}", {"spec": {"renewTime": now(".000000")}})

    def _tell(self, admin: ApiClient) -> None:
        heard = self._heard()
        for pod in admin.get("/api/v1/pods", resourceVersion="0")["items"]:
            meta, node = pod["metadata"], pod["spec"].get("nodeName")
            if node not in heard:
                continue
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            with suppress(Answer):
                if meta.get("deletionTimestamp"):
                    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                    admin.delete(path, options)
                elif self.ends is not None and pod["status"]["phase"] == "Pending":
                    admin.patch(f"{path}/status", {"status": ended(pod, 0, self.ends)})
                elif self.runs and pod["status"]["phase"] == "Pending":
                    admin.patch(f"{path}/status", {"status": running(pod)})


def running(pod: Object) -> Object:
    """Return the status of a pod that runs."""
    began = now()
    containers = [
        {
            "name": one["name"],
            "state": {"running": {"startedAt": began}},
            "ready": True,
            "started": True,
            "restartCount": 0,
            "image": one["image"],
            "imageID": "",
        }
        for one in pod["spec"]["containers"]
    ]
    return {"phase": "Running", "podIP": "127.0.0.1", "startTime": began, "containerStatuses": containers}


def ended(pod: Object, code: int, message: str = "", reason: str = "") -> Object:
    """Return the status of a pod whose containers have ended."""
    over = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "finishedAt": now(),
        "message": message,
    }
    status = running(pod)
    for one in status["containerStatuses"]:
        one |= {"state": {"terminated": over}, "ready": False}
    return {**status, "phase": "Failed" if code else "Succeeded"}


def _ready(value: str) -> Object:
    reason = "KubeletReady" if value == "True" else "NodeStatusUnknown"
    return {"type": "Ready", "status": value, "reason": reason, "message": "", "lastHeartbeatTime": now()}


@contextmanager
def fake_nodes(plane: ControlPlane, *, runs: bool = False, ends: str | None = None) -> Iterator[FakeNodes]:
    """Fake nodes, a speaker for them, and their end."""
    found = FakeNodes(plane, runs=runs, ends=ends)
    found.start()
    try:
        yield found
    finally:
        found.stop()
        found.remove_all()
