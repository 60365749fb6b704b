"""The kinds of objects that the fake API server has, and its refusals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """One kind of objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """What its objects say in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """How messages name it: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


BUILT_IN = (
    Resource("", "v1", "namespaces", "Namespace", False, ("status",)),
    Resource("", "v1", "nodes", "Node", False, ("status",)),
    Resource("", "v1", "pods", "Pod", True, ("status", "log", "exec", "binding", "eviction")),
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "services", "Service", True, ("status",)),
    Resource("", "v1", "events", "Event"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, ("status",)),
    Resource("", "v1", "persistentvolumes", "PersistentVolume", False, ("status",)),
    Resource("", "v1", "resourcequotas", "ResourceQuota", True, ("status",)),
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
)
REVIEW = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Refused(Exception):
    """An answer other than 2xx."""

    def __init__(self, code: int, message: str, reason: str = "", details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason or _REASONS.get(code, "")
        self.details = details or {}

    def status(self) -> Object:
        """Return the body of the answer."""
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(self)}
        return {**body, "reason": self.reason, "details": self.details, "code": self.code}


def not_found(resource: Resource, name: str) -> Refused:
    """Say that an object does not exist."""
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return Refused(404, f'{resource.qualified} "{name}" not found', details=details)


def invalid(resource: Resource, name: str, problems: Iterable[tuple[str, str]]) -> Refused:
    """Say which fields of an object are wrong."""
    found = list(problems)
    said = ", ".join(f"{field}: {text}" for field, text in found)
    causes = [{"reason": "FieldValueInvalid", "message": text, "field": field} for field, text in found]
    message = f'{resource.kind} "{name}" is invalid: {said if len(found) == 1 else f"[{said}]"}'
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}
    return Refused(422, message, details=details)


def forbidden(user: str, verb: str, resource: Resource, namespace: str, name: str = "", sub: str = "") -> Refused:
    """Say that a user has no such right."""
    named = f' "{name}"' if name else ""
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    plural = f"{resource.plural}/{sub}" if sub else resource.plural
    message = (
        f'{resource.qualified}{named} is forbidden: User "{user}" cannot {verb} resource "{plural}" '
        f'in API group "{resource.group}"{where}'
    )
    return Refused(403, message, details={"name": name, "group": resource.group, "kind": resource.plural})


def too_old(version: int, oldest: int) -> Refused:
    """Say that a watch cannot go on from where it left off."""
    return Refused(410, f"too old resource version: {version} ({oldest})")
