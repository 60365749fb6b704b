"""An API server with a namespace and a node for one test: the same to ask of the fake one and of the real one."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import secrets
from contextlib import suppress
from urllib.parse import urlencode

from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from testbed.kubernetes import images
from testbed.kubernetes.api_client import Answer, ApiClient, Object
from testbed.kubernetes.control_plane import ControlPlane
from testbed.kubernetes.fake.cluster import ADMIN, AGENT, FakeCluster
from testbed.waiting import until

_numbers = itertools.count(1)


class Site:
    """An API server with a namespace of one test's own, and a node that runs pods."""

    def __init__(self, admin: ApiClient, node: str) -> None:
        self.admin, self.node = admin, node
        self.namespace = f"test-{secrets.token_hex(3)}-{next(_numbers)}"
        self.at = f"/api/v1/namespaces/{self.namespace}"
        self.pods = f"{self.at}/pods"

    authority: str | None = None

    def run_out_of_memory(self, name: str) -> None:
        """Say that a pod's program has used up its memory, where nobody limits it."""

    def without(self, verb: str, plural: str) -> ApiClient:
        """Return a client that lacks one right on pods."""
        raise NotImplementedError

    def old_version(self) -> str:
        """Return a version from which nobody can watch any more."""
        raise NotImplementedError

    def pod(self, name: str, *command: str, **spec: object) -> Object:
        """Return a pod that runs a command on the node."""
        fields = dict(spec)
        container = {"name": "main", "image": images.PYTHON, "imagePullPolicy": "Never", "command": list(command)}
        container |= fields.pop("container", {})
        body = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container], **fields}
        meta = {"name": name, "labels": {"app": name}}
        return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": body}

    def start(self, name: str, *command: str, **spec: object) -> Object:
        """Make such a pod."""
        made: Object = self.admin.post(self.pods, self.pod(name, *command, **spec))
        return made

    def status(self, name: str) -> Object:
        """Return a pod's status."""
        found: Object = self.admin.get(f"{self.pods}/{name}")["status"]
        return found

    def phase(self, name: str, *phases: str, seconds: float = 60) -> Object:
        """Wait for a phase, and return the status."""
        wanted = phases or ("Succeeded", "Failed")

        def found() -> Object | None:
            status = self.status(name)
            return status if status["phase"] in wanted else None

        return until(found, lambda: str(self.status(name)), seconds) or {}

    def state(self, name: str, kind: str) -> Object:
        """Wait until the first container is `waiting`, `running` or `terminated`; return that state."""

        def found() -> Object | None:
            statuses = self.status(name).get("containerStatuses") or [{}]
            state: Object | None = statuses[0].get("state", {}).get(kind)
            return None if state and state.get("reason") == "ContainerCreating" else state

        return until(found, lambda: str(self.status(name)), 60) or {}

    async def execute(self, name: str, *command: str, accept: str = "*/*") -> tuple[str, Object]:
        """Run a command in a pod; return its output and how it ended."""
        query = urlencode([("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")])
        url = f"{self.admin.http.base_url.join(f'{self.pods}/{name}/exec')}?{query}"
        headers = {"Authorization": self.admin.http.headers["Authorization"], "Accept": accept}
        request = HTTPRequest(url.replace("http", "ws", 1), headers=headers, ca_certs=self.authority)
        connection = await websocket_connect(request, subprotocols=["v4.channel.k8s.io"])
        said, status = b"", {}
        while (message := await connection.read_message()) is not None:
            data = message if isinstance(message, bytes) else message.encode()
            said += data[1:] if data[:1] in {b"\x01", b"\x02"} else b""
            status = json.loads(data[1:]) if data[:1] == b"\x03" else status
        connection.close()
        await asyncio.sleep(0)  # it is closed by its own loop
        return said.decode(), status

    def end(self) -> None:
        """End what the test has left."""
        with suppress(Answer):
            self.admin.delete(self.pods, {"gracePeriodSeconds": 0})


class FakeSite(Site):
    """A namespace of the fake server."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(ApiClient(cluster.url, ADMIN), "real-1")
        self.cluster = cluster
        cluster.add_namespace(self.namespace)

    def without(self, verb: str, plural: str) -> ApiClient:
        self.cluster.forbid(verb, plural, self.namespace)
        return ApiClient(self.cluster.url, AGENT)

    def run_out_of_memory(self, name: str) -> None:
        self.cluster.kill_container(name, self.namespace, reason="OOMKilled")

    def old_version(self) -> str:
        found = self.admin.get(self.pods)["metadata"]["resourceVersion"]
        self.cluster.expire_history()
        return str(found)

    def end(self) -> None:
        self.cluster.allow()
        super().end()


class RealSite(Site):
    """A namespace of the real one."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane.client(), "real-1")
        self.plane = plane
        self.authority = str(plane.authority)
        self.admin.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        until(self._account, "the namespace has no service account", 30)

    def _account(self, name: str = "default") -> Object | None:
        with suppress(Answer):
            found: Object = self.admin.get(f"{self.at}/serviceaccounts/{name}")
            return found if found.get("secrets") else None
        return None

    def without(self, verb: str, plural: str) -> ApiClient:
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        verbs = {"create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"} - {verb}
        rules = [{"apiGroups": [""], "resources": [plural], "verbs": sorted(verbs)}]
        self.admin.post(f"{self.at}/serviceaccounts", {"metadata": {"name": "agent"}})
        self.admin.post(f"{rbac}/roles", {"metadata": {"name": "agent"}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": "agent", "namespace": self.namespace}
        role = {"kind": "Role", "name": "agent", "apiGroup": "rbac.authorization.k8s.io"}
        bind = {"metadata": {"name": "agent"}, "subjects": [subject], "roleRef": role}
        self.admin.post(f"{rbac}/rolebindings", bind)
        return self.plane.client(self.token_of("agent"))

    def token_of(self, name: str) -> str:
        """Return the token of a service account, as soon as it has one."""
        account = until(lambda: self._account(name), "no token", 30) or {}
        secret = self.admin.get(f"{self.at}/secrets/{account['secrets'][0]['name']}")
        return base64.b64decode(secret["data"]["token"]).decode()

    def old_version(self) -> str:
        found = self.admin.get(self.pods)["metadata"]["resourceVersion"]
        self.admin.post(f"{self.at}/configmaps", {"metadata": {"name": "later"}})
        self.plane.kill("kube-apiserver")
        self.plane.start_api()
        return str(found)

    def end(self) -> None:
        super().end()
        with suppress(Answer):
            self.admin.delete(f"/api/v1/namespaces/{self.namespace}")
