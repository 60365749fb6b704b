"""The three kinds of patches that the API server takes."""

from __future__ import annotations

import copy
from typing import Any

from testbed.kubernetes.fake.resources import Object, Refused

MERGED_BY = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "conditions": "type",
    "ownerReferences": "uid",
    "ports": "port",
    "addresses": "type",
    "imagePullSecrets": "name",
}
"""The lists that a strategic patch merges, by the key of their members; it replaces all others."""


def patched(found: Object, patch: Any, content_type: str) -> Object:
    """Return an object with a patch applied.

    Raises:
        Refused: It cannot be applied.
    """
    match content_type:
        case "application/json-patch+json":
            return _json_patched(copy.deepcopy(found), patch)
        case "application/merge-patch+json":
            merged = _merged(found, patch)
        case "application/strategic-merge-patch+json":
            merged = _merged(found, patch, strategic=True)
        case _:
            raise Refused(415, f"the body of the request was in an unknown format: {content_type}")
    return dict(merged)


def _merged(found: Any, patch: Any, *, strategic: bool = False) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(found) if isinstance(found, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif (strategic and key == "$patch") or key.startswith("$setElementOrder/"):
            continue
        elif strategic and isinstance(value, list) and key in MERGED_BY:
            result[key] = _merged_list(result.get(key) or [], value, MERGED_BY[key])
        elif strategic and isinstance(value, list) and key == "finalizers":
            result[key] = list(dict.fromkeys([*(result.get(key) or []), *value]))
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        else:
            result[key] = _merged(result.get(key), value, strategic=strategic)
    return result


def _merged_list(found: list[Object], patch: list[Object], key: str) -> list[Object]:
    result = {item.get(key): item for item in found}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item.get(key), None)
        else:
            result[item.get(key)] = _merged(result.get(item.get(key)), item, strategic=True)
    return list(result.values())


def _json_patched(found: Any, operations: list[Object]) -> Object:
    for operation in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        try:
            _apply(found, path, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise Refused(422, f"the server rejected our request due to an error in our request: {error}") from error
    result: Object = found
    return result


def _apply(found: Any, path: list[str], operation: Object) -> None:
    for part in path[:-1]:
        found = found[int(part)] if isinstance(found, list) else found[part]
    last, value = path[-1], operation.get("value")
    kind = operation["op"]
    if isinstance(found, list):
        at = len(found) if last == "-" else int(last)
        if kind == "add":
            found.insert(at, value)
        elif kind == "remove":
            del found[at]
        elif kind == "test" and found[at] != value:
            raise ValueError(f"testing {operation['path']} failed")
        elif kind == "replace":
            found[at] = value
        return
    if kind != "add" and kind != "test" and last not in found:
        raise KeyError(operation["path"])
    if kind == "remove":
        del found[last]
    elif kind == "test":
        if found.get(last) != value:
            raise ValueError(f"testing {operation['path']} failed")
    else:
        found[last] = value
