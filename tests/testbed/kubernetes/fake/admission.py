"""What the API server fills in and refuses when objects are made or changed."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from decimal import Decimal

from testbed.kubernetes.fake.resources import Object, Refused, Resource, invalid
from testbed.kubernetes.fake.selectors import quantity
from testbed.kubernetes.fake.store import Store

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "nodeName", "schedulingGates")
_STANDARD = ("cpu", "memory", "ephemeral-storage")
LIVE = ("Pending", "Running")
"""Phases in which a pod holds what it asked for."""


def admit(store: Store, resource: Resource, namespace: str, made: Object) -> None:
    """Fill in what an object leaves open.

    Raises:
        Refused: It may not be made.
    """
    name = made.get("metadata", {}).get("name") or made.get("metadata", {}).get("generateName") or ""
    if problems := list(_problems(resource, made)):
        raise invalid(resource, name, problems)
    if resource.plural == "pods":
        _admit_pod(store, resource, namespace, made)
    elif resource.plural == "services":
        spec = made.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("clusterIP", f"10.96.{store.version // 250 % 250}.{store.version % 250 + 2}")
    elif resource.plural == "secrets":
        _flatten_secret(made)
    elif resource.plural == "namespaces":
        made.setdefault("status", {})["phase"] = "Active"


def _flatten_secret(made: Object) -> None:
    made.setdefault("type", "Opaque")
    for key, value in (made.pop("stringData", None) or {}).items():
        made.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def check_change(resource: Resource, found: Object, changed: Object) -> None:
    """Refuse what may not be changed any more."""
    name = found["metadata"]["name"]
    if problems := list(_problems(resource, changed)):
        raise invalid(resource, name, problems)
    if resource.plural != "pods":
        return
    old, new = dict(found["spec"]), dict(changed.get("spec") or {})
    for spec in (old, new):
        for field in _MAY_CHANGE:
            spec.pop(field, None)
        for field in ("containers", "initContainers"):
            spec[field] = [{**one, "image": None} for one in spec.get(field) or []]
    if old != new:
        text = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, …"
        raise invalid(resource, name, [("spec", text)])


def _problems(resource: Resource, made: Object) -> Iterator[tuple[str, str]]:
    meta = made.get("metadata") or {}
    rule = _LABEL if resource.plural in {"services", "namespaces"} else _SUBDOMAIN
    name = meta.get("name")
    if name and not (rule.fullmatch(name) and len(name) <= 253):
        yield "metadata.name", f'Invalid value: "{name}": a DNS-1123 subdomain must consist of lower case alphanumerics'
    for field in ("labels", "annotations"):
        for key, value in (meta.get(field) or {}).items():
            if not _KEY.fullmatch(key):
                yield f"metadata.{field}", f'Invalid value: "{key}": name part must consist of alphanumeric characters'
            if not isinstance(value, str):
                raise Refused(400, f"{resource.kind} in version cannot be handled: {field}: expects a string")
            if field == "labels" and len(value) > 63:
                yield f"metadata.{field}", f'Invalid value: "{value}": must be no more than 63 characters'
            elif field == "labels" and not _VALUE.fullmatch(value):
                yield f"metadata.{field}", f'Invalid value: "{value}": a valid label must be an empty string or consist'
    if resource.plural == "pods":
        yield from _pod_problems(made.get("spec") or {})


def _pod_problems(spec: Object) -> Iterator[tuple[str, str]]:
    if not spec.get("containers"):
        yield "spec.containers", "Required value"
    volumes = [one.get("name") for one in spec.get("volumes") or []]
    for field in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(field) or []):
            at = f"spec.{field}[{number}]"
            if not _LABEL.fullmatch(container.get("name") or "") or len(container["name"]) > 63:
                yield f"{at}.name", f'Invalid value: "{container.get("name")}": a DNS-1123 label'
            if not container.get("image"):
                yield f"{at}.image", "Required value"
            for index, mount in enumerate(container.get("volumeMounts") or []):
                if mount.get("name") not in volumes:
                    yield f"{at}.volumeMounts[{index}].name", f'Not found: "{mount.get("name")}"'
            yield from _resource_problems(at, container.get("resources") or {})
    if (policy := spec.get("restartPolicy", "Always")) not in {"Always", "OnFailure", "Never"}:
        yield "spec.restartPolicy", f'Unsupported value: "{policy}": supported values: "Always", "OnFailure", "Never"'


def _resource_problems(at: str, resources: Object) -> Iterator[tuple[str, str]]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for kind, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            try:
                quantity(amount)
            except ValueError as error:
                raise Refused(400, f"Pod in version cannot be handled as a Pod: {error}") from error
            if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
                yield f"{at}.resources.{kind}[{name}]", "Invalid value: must be a standard resource for containers"
    for name, amount in requests.items():
        if "/" in name and name not in limits:
            yield f"{at}.resources.limits", "Required value: Limit must be set for non overcommitable resources"
        elif "/" in name and str(limits[name]) != str(amount):
            yield f"{at}.resources.requests", f"Invalid value: must be equal to {name} limit"
        elif name in limits and quantity(amount) > quantity(limits[name]):
            yield f"{at}.resources.requests", f'Invalid value: "{amount}": must be less than or equal to {name} limit'
    for name in limits:
        if "/" in name and name not in requests:
            requests[name] = limits[name]


def _admit_pod(store: Store, resource: Resource, namespace: str, made: Object) -> None:
    spec, name = made["spec"], made["metadata"].get("name") or made["metadata"].get("generateName", "")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    account = spec.setdefault("serviceAccountName", "default")
    if store.find(store.kind("serviceaccounts"), namespace, account) is None:
        said = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
        raise Refused(403, f'pods "{name}" is forbidden: {said}')
    spec["priority"] = _priority(store, name, spec)
    tolerations = spec.setdefault("tolerations", [])
    for state in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{state}"
        if all(one.get("key") not in {key, None} for one in tolerations):
            one = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append(one)
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "IfNotPresent")
        amounts = container.setdefault("resources", {})
        for key, amount in (amounts.get("limits") or {}).items():
            amounts.setdefault("requests", {}).setdefault(key, amount)
    _check_quota(store, resource, namespace, name, spec)
    made["status"] = {"phase": "Pending", "qosClass": _qos(spec)}


def _priority(store: Store, name: str, spec: Object) -> int:
    named = spec.get("priorityClassName")
    if not named or named.startswith("system-"):
        return 0
    found = store.find(store.kind("priorityclasses", "scheduling.k8s.io"), "", named)
    if found is None:
        raise Refused(403, f'pods "{name}" is forbidden: no PriorityClass with name {named} was found')
    return int(found["value"])


def _qos(spec: Object) -> str:
    amounts = [one.get("resources") or {} for one in spec["containers"]]
    if not any(one.get("requests") or one.get("limits") for one in amounts):
        return "BestEffort"
    full = all({"cpu", "memory"} <= set(one.get("limits") or {}) for one in amounts)
    same = all((one.get("limits") or {}) == (one.get("requests") or {}) for one in amounts)
    return "Guaranteed" if full and same else "Burstable"


def requested(spec: Object) -> dict[str, Decimal]:
    """Return what a pod asks of its node."""
    total: dict[str, Decimal] = {}
    for container in spec["containers"]:
        for key, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[key] = total.get(key, Decimal(0)) + quantity(amount)
    for container in spec.get("initContainers") or []:
        for key, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[key] = max(total.get(key, Decimal(0)), quantity(amount))
    return total


def _check_quota(store: Store, resource: Resource, namespace: str, name: str, spec: Object) -> None:
    wanted = requested(spec) | {"pods": Decimal(1)}
    for quota in store.all(store.kind("resourcequotas"), namespace):
        live = [one["spec"] for one in store.all(resource, namespace) if one["status"]["phase"] in LIVE]
        for key, most in (quota.get("spec", {}).get("hard") or {}).items():
            plain = key.removeprefix("requests.")
            used = sum((requested(one).get(plain, Decimal(plain == "pods")) for one in live), Decimal(0))
            if plain in wanted and used + wanted[plain] > quantity(most):
                said = f"requested: {key}={wanted[plain]}, used: {key}={used}, limited: {key}={most}"
                raise Refused(403, f'pods "{name}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, {said}')
