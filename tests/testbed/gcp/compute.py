"""A fake Compute Engine: zones with instances and operations, over HTTP, for one service account.

with compute() as google:
    google.credentials(path)      # for GOOGLE_APPLICATION_CREDENTIALS
    google.fails("QUOTA_EXCEEDED", "no")
    ...                           # a GcpProvider with endpoint_url=google.address

What it is asked is checked by Google's own description of the API, and by rules that are in its documentation only.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from google.auth.exceptions import GoogleAuthError

from testbed.gcp.discovery import Call, Refused, read

_CONDITION = re.compile(r'\(?([\w.-]+) (=|!=) "([^"]*)"\)?')
_LABEL_KEY, _LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
_TAG = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")


@dataclass
class Failure:
    """What goes wrong with the next requests to make an instance.

    Attributes:
        code: Of the operation's error.
        message: Its text.
        status: Of the request's answer; 0: it is accepted, and its operation fails.
        lost: The answer does not come, whatever it is.
    """

    code: str = ""
    message: str = ""
    status: int = 0
    lost: bool = False


@dataclass
class Google:
    """The zones of a project, as they are now.

    Attributes:
        address: For `endpoint_url`.
        public_key: Of the account.
        instances: By name.
        operations: By name.
        asked: Methods of all requests that the description allows, in order, with what was asked.
        refused: Why others were refused: a test that means none looks at it.
        slow: Whether operations stay as they are until `settle`.
        invisible: Names of instances that lists do not have yet.
        page: Most items of one page of a list.
    """

    address: str
    public_key: bytes = b""
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[Call] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    slow: bool = False
    invisible: set[str] = field(default_factory=set)
    page: int = 500
    lock: threading.RLock = field(default_factory=threading.RLock)

    # --- for tests

    def credentials(self, path: Path) -> None:
        """Write the file of a service account; its signature is accepted from now on, and no other."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.public_key = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        said = {
            "type": "service_account",
            "project_id": "lab-project",
            "private_key_id": "1",
            "private_key": pem.decode(),
            "client_email": "master@lab-project.iam.gserviceaccount.com",
            "token_uri": f"{self.address}/nothing-here",
        }
        path.write_text(json.dumps(said), encoding="utf-8")

    def fails(self, code: str, message: str = "no.", *, status: int = 0, lost: bool = False) -> None:
        """Let the next request to make an instance fail."""
        self.failures.append(Failure(code, message, status, lost))

    def settle(self) -> None:
        """Let all operations end."""
        with self.lock:
            for operation in self.operations.values():
                self._finish(operation)

    def preempt(self, name: str) -> None:
        """Take an instance back."""
        with self.lock:
            said = self.instances[name]
            assert said["scheduling"]["preemptible"]
            said["status"] = "TERMINATED"
            assert said["scheduling"]["instanceTerminationAction"] == "STOP"
            where = said["selfLink"]
            self._operation("compute.instances.preempted", where, status="DONE", user="system")

    def requests(self, method: str) -> list[Call]:
        """Return what was asked by a method."""
        return [call for call in self.asked if call.method == method]

    # --- what it does

    def answer(self, verb: str, path: str, query: Mapping[str, list[str]], body: Any) -> tuple[int, dict[str, Any]]:
        """Answer a request."""
        with self.lock:
            query = {key: value for key, value in query.items() if key != "$alt"}
            try:
                call = read(verb, path, query, body)
            except Refused as error:
                self.refused.append(str(error))
                return _error(400, "invalid", str(error))
            self.asked.append(call)
            does = {
                "instances.insert": self._insert,
                "instances.list": self._list_instances,
                "instances.get": self._get_instance,
                "instances.delete": self._delete,
                "zoneOperations.get": self._get_operation,
                "zoneOperations.list": self._list_operations,
            }
            return does[call.method](call)

    def _insert(self, call: Call) -> tuple[int, dict[str, Any]]:
        body, request_id = call.body, call.query.get("requestId", "")
        if wrong := _rules(call):
            self.refused.append(wrong)
            return _error(400, "invalid", wrong)
        for operation in self.operations.values():
            if request_id and operation.get("clientOperationId") == request_id:
                return 200, self._shown(operation)
        if body["name"] in self.instances:
            return _error(409, "alreadyExists", f"The resource {body['name']} already exists")
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and failure.status:
            return _error(failure.status, failure.code, failure.message)
        zone = f"{self.address}/compute/v1/projects/{call.path['project']}/zones/{call.path['zone']}"
        where = f"{zone}/instances/{body['name']}"
        operation = self._operation("insert", where, client=request_id)
        if failure is not None and failure.code:
            operation["_error"] = {"errors": [{"code": failure.code, "message": failure.message}]}
        else:
            self.instances[body["name"]] = {
                **body,
                "id": str(uuid.uuid4().int >> 65),
                "status": "PROVISIONING",
                "creationTimestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "selfLink": where,
            }
        if failure is not None and failure.lost:
            return 0, {}
        return 200, self._shown(operation)

    def _operation(self, kind: str, where: str, status: str = "RUNNING", client: str = "", user: str = "master") -> Any:
        name = f"operation-{int(time.time() * 1000)}-{uuid.uuid4().hex[:8]}"
        made = {"name": name, "operationType": kind, "targetLink": where, "status": status, "user": user, "progress": 0}
        self.operations[name] = made | ({"clientOperationId": client} if client else {})
        return self.operations[name]

    def _finish(self, operation: dict[str, Any]) -> None:
        if operation["status"] == "DONE":
            return
        operation |= {"status": "DONE", "progress": 100}
        if "_error" in operation:
            operation["error"] = operation.pop("_error")
            operation["httpErrorStatusCode"] = 503
            return
        name = operation["targetLink"].rpartition("/")[2]
        if operation["operationType"] == "insert":
            self.instances[name]["status"] = "RUNNING"
        elif operation["operationType"] == "delete":
            self.instances.pop(name, None)

    def _shown(self, operation: dict[str, Any]) -> dict[str, Any]:
        shown = {key: value for key, value in operation.items() if not key.startswith("_")}
        if not self.slow:
            self._finish(operation)
        return shown

    def _delete(self, call: Call) -> tuple[int, dict[str, Any]]:
        said = self.instances.get(call.path["instance"])
        if said is None:
            return _error(404, "notFound", f"The resource {call.path['instance']} was not found")
        said["status"] = "STOPPING"
        return 200, self._shown(self._operation("delete", said["selfLink"]))

    def _get_instance(self, call: Call) -> tuple[int, dict[str, Any]]:
        said = self.instances.get(call.path["instance"])
        return (200, said) if said is not None else _error(404, "notFound", "The resource was not found")

    def _get_operation(self, call: Call) -> tuple[int, dict[str, Any]]:
        said = self.operations.get(call.path["operation"])
        if said is None:
            return _error(404, "notFound", "The resource was not found")
        return 200, {key: value for key, value in said.items() if not key.startswith("_")}

    def _list_instances(self, call: Call) -> tuple[int, dict[str, Any]]:
        seen = [said for name, said in self.instances.items() if name not in self.invisible]
        return self._page(call, seen)

    def _list_operations(self, call: Call) -> tuple[int, dict[str, Any]]:
        seen = [{key: value for key, value in one.items() if key != "_error"} for one in self.operations.values()]
        return self._page(call, seen)

    def _page(self, call: Call, seen: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        zone = f"/projects/{call.path['project']}/zones/{call.path['zone']}/"
        seen = [one for one in seen if zone in one.get("selfLink", one.get("targetLink", ""))]
        found = [one for one in seen if _fulfils(one, call.query.get("filter", ""))]
        first, size = int(call.query.get("pageToken", "0")), min(self.page, int(call.query.get("maxResults", "500")))
        shown: dict[str, Any] = {"items": found[first : first + size]} if found else {}
        if first + size < len(found):
            shown["nextPageToken"] = str(first + size)
        return 200, shown


def _fulfils(said: Mapping[str, Any], which: str) -> bool:
    """Whether something fulfils a filter of `key = "value"`, joined by AND."""
    for part in which.split(" AND ") if which else ():
        found = _CONDITION.fullmatch(part)
        assert found is not None, which
        value: Any = said
        for key in found[1].split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if (value == found[3]) is not (found[2] == "="):
            return False
    return True


def _rules(call: Call) -> str:
    """Return which rule of Compute Engine's documentation a new instance breaks; "" for none."""
    body, where = call.body, f"zones/{call.path['zone']}"
    try:
        known = uuid.UUID(call.query["requestId"]).int if "requestId" in call.query else 1
    except ValueError:
        known = 0
    scheduling = body.get("scheduling", {})
    labels = body.get("labels", {})
    spot, boots = scheduling.get("preemptible", False), [d for d in body["disks"] if d.get("boot")]
    disks = [disk.get("initializeParams", {}) for disk in body["disks"]]
    wrong = {
        "requestId is a UUID, and not zero": known == 0,
        "the machine's type is of this zone": not re.fullmatch(rf"{where}/machineTypes/[\w-]+", body["machineType"]),
        "there is one boot disk, with an image": len(boots) != 1 or not boots[0]["initializeParams"].get("sourceImage"),
        "a disk's type is of this zone": any(
            "diskType" in disk and not disk["diskType"].startswith(f"{where}/diskTypes/") for disk in disks
        ),
        "labels are small letters": not all(_LABEL_KEY.fullmatch(k) and _LABEL.fullmatch(v) for k, v in labels.items()),
        "there are 64 labels at most": len(labels) > 64,
        "tags are names": not all(map(_TAG.fullmatch, body.get("tags", {}).get("items", ()))),
        "machines with GPUs do not move": bool(body.get("guestAccelerators"))
        and scheduling.get("onHostMaintenance") != "TERMINATE",
        "SPOT is preemptible": (scheduling.get("provisioningModel") == "SPOT") is not spot,
        "preemptible ones do not restart": spot and scheduling.get("automaticRestart", True),
        "one account at most": len(body.get("serviceAccounts", ())) > 1,
        "an interface has a network": not all(
            {"network", "subnetwork"} & one.keys() for one in body["networkInterfaces"]
        ),
        "metadata is 512 KB at most": len(json.dumps(body.get("metadata", {}))) > 512 * 1024,
    }
    return "; ".join(rule for rule, broken in wrong.items() if broken)


def _error(status: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    errors = [{"message": message, "domain": "global", "reason": reason}]
    return status, {"error": {"code": status, "message": message, "errors": errors}}


class _Handler(BaseHTTPRequestHandler):
    google: Google

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        raw = self.rfile.read(length)
        at = urlsplit(self.path)
        try:
            signed = self.headers.get("Authorization", "").removeprefix("Bearer ")
            jwt.decode(signed, certs=self.google.public_key)
        except GoogleAuthError as error:
            self._send(*_error(401, "authError", f"Invalid Credentials: {error}"))
            return
        query = parse_qs(at.query, keep_blank_values=True)
        status, said = self.google.answer(self.command, at.path, query, json.loads(raw) if raw else None)
        if status == 0:
            self.close_connection = True
            return
        self._send(status, said)

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815  (names of the standard library)

    def _send(self, status: int, said: Any) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def compute() -> Iterator[Google]:
    """Serve a fake Compute Engine on loopback."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    google = handler.google = Google(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield google
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
