"""All objects of the fake API server, and the history from which watches go on."""

from __future__ import annotations

import copy
import secrets
import string
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from testbed.kubernetes.fake.resources import BUILT_IN, Object, Refused, Resource, not_found, too_old

_LETTERS = string.ascii_lowercase + string.digits


def now() -> str:
    """The time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Change:
    """One write. `before` is the object before it, None for a new one; `after` that after it, or as it was deleted."""

    version: int
    resource: Resource
    before: Object | None
    after: Object
    deleted: bool = False


class Store:
    """Objects by their kind, namespace and name. Nobody changes what it returns."""

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 0
        """The version up to which the history is forgotten."""
        self.history: deque[Change] = deque()
        self.listeners: set[Callable[[Change], None]] = set()
        self.resources: dict[tuple[str, str, str], Resource] = {}
        self._objects: dict[Resource, dict[tuple[str, str], Object]] = {}
        for resource in BUILT_IN:
            self.serve(resource)

    def serve(self, resource: Resource) -> None:
        """Take objects of a kind, as a definition of a custom resource has it."""
        self.resources[resource.group, resource.version, resource.plural] = resource
        self._objects[resource] = {}

    def kind(self, plural: str, group: str = "") -> Resource:
        """Return a kind by its name."""
        for (in_group, _, named), resource in self.resources.items():
            if (in_group, named) == (group, plural):
                return resource
        raise KeyError(plural)

    # --- read ---------------------------------------------------------------------------------------------

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        return self._objects[resource].get((namespace if resource.namespaced else "", name))

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return an object.

        Raises:
            Refused: There is none.
        """
        found = self.find(resource, namespace, name)
        if found is None:
            raise not_found(resource, name)
        return found

    def all(self, resource: Resource, namespace: str = "") -> Iterator[Object]:
        """Yield the objects of a namespace, or of all, in the order of their names."""
        found = self._objects[resource]
        yield from (found[key] for key in sorted(found) if namespace in {"", key[0]})

    def since(self, version: int) -> list[Change]:
        """Return what has changed after a version.

        Raises:
            Refused: That is forgotten.
        """
        if version < self.oldest:
            raise too_old(version, self.oldest)
        return [change for change in self.history if change.version > version]

    # --- write --------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str, given: Object) -> Object:
        """Add an object.

        Raises:
            Refused: There is one of the name, or the namespace does not exist.
        """
        made = copy.deepcopy(given)
        meta = made.setdefault("metadata", {})
        if resource.namespaced:
            home = self.find(self.kind("namespaces"), "", namespace)
            if home is None:
                raise not_found(self.kind("namespaces"), namespace)
            if home["metadata"].get("deletionTimestamp"):
                message = f"unable to create new content in namespace {namespace} because it is being terminated"
                raise Refused(403, f'{resource.qualified} "{meta.get("name")}" is forbidden: {message}')
            meta["namespace"] = namespace
        if not meta.get("name"):
            if not meta.get("generateName"):
                raise Refused(422, f"{resource.kind} is invalid: metadata.name: Required value: name or generateName")
            meta["name"] = meta["generateName"] + "".join(secrets.choice(_LETTERS) for _ in range(5))
        key = (namespace if resource.namespaced else "", meta["name"])
        if key in self._objects[resource]:
            details = {"name": meta["name"], "group": resource.group, "kind": resource.plural}
            message = f'{resource.qualified} "{meta["name"]}" already exists'
            raise Refused(409, message, "AlreadyExists", details)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            meta.pop(field, None)
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        made |= {"kind": resource.kind, "apiVersion": resource.api_version}
        return self._write(resource, key, None, made)

    def replace(self, resource: Resource, found: Object, changed: Object) -> Object:
        """Write an object anew; one that waited for its last finalizer is removed by it.

        Raises:
            Refused: It has been changed since `changed` was read.
        """
        meta, old = changed.setdefault("metadata", {}), found["metadata"]
        asked = meta.get("resourceVersion")
        if asked and asked != old["resourceVersion"]:
            raise conflict(resource, old["name"])
        if meta.get("uid", old["uid"]) != old["uid"]:
            raise conflict(resource, old["name"])
        for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"):
            if field in old:
                meta[field] = old[field]
            else:
                meta.pop(field, None)
        changed |= {"kind": resource.kind, "apiVersion": resource.api_version}
        key = (old.get("namespace", ""), old["name"])
        meta["resourceVersion"] = old["resourceVersion"]
        if changed == found:
            return found
        if old.get("deletionTimestamp") and old.get("finalizers") and not meta.get("finalizers"):
            return self._remove(resource, key, changed)
        return self._write(resource, key, found, copy.deepcopy(changed))

    def modify(self, resource: Resource, namespace: str, name: str, change: Callable[[Object], None]) -> Object | None:
        """Change an object from within the server; None if it is gone."""
        found = self.find(resource, namespace, name)
        if found is None:
            return None
        changed = copy.deepcopy(found)
        change(changed)
        return self.replace(resource, found, changed)

    def mark(self, resource: Resource, found: Object, grace: float) -> Object:
        """Note that an object is to be deleted; it may be asked for again with less time."""
        marked = copy.deepcopy(found)
        meta = marked["metadata"]
        if meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds", 0) <= grace:
            return found
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + grace))
        meta |= {"deletionTimestamp": until, "deletionGracePeriodSeconds": int(grace)}
        return self._write(resource, (meta.get("namespace", ""), meta["name"]), found, marked)

    def remove(self, resource: Resource, found: Object) -> Object:
        """Remove an object, or mark it if finalizers are still on it."""
        meta = found["metadata"]
        if meta.get("finalizers"):
            return found if meta.get("deletionTimestamp") else self.mark(resource, found, 0)
        return self._remove(resource, (meta.get("namespace", ""), meta["name"]), found)

    def expire(self) -> None:
        """Forget the history, as compaction does: who watches from before must list again."""
        self.history.clear()
        self.oldest = self.version = self.version + 1

    def _remove(self, resource: Resource, key: tuple[str, str], found: Object) -> Object:
        del self._objects[resource][key]
        self.version += 1
        gone = copy.deepcopy(found)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell(Change(self.version, resource, found, gone, deleted=True))
        self._collect(found)
        return gone

    def _collect(self, owner: Object) -> None:
        """Remove what belonged to a removed object, as the controller manager does."""
        uid = owner["metadata"]["uid"]
        for resource in list(self._objects):
            for found in list(self.all(resource)):
                owners = found["metadata"].get("ownerReferences") or []
                if owners and all(one.get("uid") == uid for one in owners):
                    self.end(resource, found)

    def end(self, resource: Resource, found: Object, grace: float | None = None) -> Object:
        """Delete an object as the API does: a pod on a node is gone when its node says so."""
        if resource.plural != "pods" or not found["spec"].get("nodeName"):
            return self.remove(resource, found)
        if found.get("status", {}).get("phase") in {"Succeeded", "Failed"} and grace is None:
            grace = min(1.0, found["spec"].get("terminationGracePeriodSeconds", 30))
        grace = found["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
        return self.remove(resource, found) if grace == 0 else self.mark(resource, found, grace)

    def _write(self, resource: Resource, key: tuple[str, str], before: Object | None, made: Object) -> Object:
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        self._objects[resource][key] = made
        self._tell(Change(self.version, resource, before, made))
        return made

    def _tell(self, change: Change) -> None:
        self.history.append(change)
        for listener in list(self.listeners):
            listener(change)


def conflict(resource: Resource, name: str) -> Refused:
    """Say that somebody else was faster."""
    message = (
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return Refused(409, message, details={"name": name, "group": resource.group, "kind": resource.plural})
