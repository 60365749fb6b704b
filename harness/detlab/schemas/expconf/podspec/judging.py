"""Every mistake of a pod_spec at once, and the pod_spec as it is rendered from its typed values."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from detlab.errors import Problem
from detlab.schemas.expconf.blocks.scalars import describe
from detlab.schemas.expconf.podspec.fields import Container, PodSpec, Volume
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.podspec import MAIN_CONTAINER, OUR_VOLUMES, USERS_LABELS, block, items, reserved

BASE: Path = ("environment", "pod_spec")
_OF_MAIN = frozenset({"name", "resources", "volumeMounts"})
"""What may be set of the task's own container."""
_SOURCES = frozenset(field.alias or name for name, field in Volume.model_fields.items()) - {"name"}
_ELSEWHERE = {
    "image": "set environment.image",
    "imagePullPolicy": "set environment.force_pull_image",
    "env": "set environment.environment_variables",
    "envFrom": "set environment.environment_variables",
    "command": "set entrypoint",
    "args": "set entrypoint",
}
"""Where the config says what the task's own container has."""
_USER = "tasks run under the uid of their user, and without privileges"
_PLACED = "the master chooses the node of each pod: use nodeSelector, affinity.nodeAffinity or resources.constraints"
_BY_NODE = "the node itself would make the request: use exec"
_WHY = {
    "securityContext": _USER,
    "hostNetwork": "pods have a network of their own",
    "hostPID": "pods see their own processes only",
    "hostIPC": "pods have their own shared memory",
    "hostPort": "pods have a network of their own",
    "ports": "a port needs no entry, and Services find pods by it",
    "nodeName": _PLACED,
    "podAffinity": _PLACED,
    "podAntiAffinity": f"{_PLACED}; it would keep pods of others away",
    "topologySpreadConstraints": _PLACED,
    "matchFields": _PLACED,
    "restartPolicy": "set max_restarts",
    "priority": "set resources.priority, or priorityClassName",
    "activeDeadlineSeconds": "set resources.max_time",
    "serviceAccount": "it is called serviceAccountName",
    "automountServiceAccountToken": "tasks get no token of the cluster",
    "httpGet": _BY_NODE,
    "tcpSocket": _BY_NODE,
    "grpc": _BY_NODE,
    "dataSource": "an ephemeral volume begins empty",
    "dataSourceRef": "an ephemeral volume begins empty",
    "volumeName": "an ephemeral volume is a new one; for one that is there use persistentVolumeClaim",
    "subPathExpr": "use subPath",
    "name": "detlab names its pods",
    "namespace": "the agent's settings say where pods are",
    "nfs": "ask the operator for a claim (persistentVolumeClaim)",
    "projected": "use configMap, secret or downwardAPI",
}
"""Why Kubernetes' field is not a user's, and what is instead."""


_SLOTS = re.compile(r"(nvidia\.com/(gpu|mig-).*|amd\.com/gpu.*|gpu\.intel\.com/.*)")
"""Resources whose units are slots, wherever an agent gives them out."""


def mistakes(raw: object) -> Iterator[Problem]:
    """Yield what is wrong with a pod_spec, by its fields alone."""
    if raw is None:
        return
    try:
        PodSpec.model_validate(raw)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["loc"][-1:] != ("[key]",):
                yield _problem(detail)
            elif isinstance(detail["loc"][-2], str):
                yield Problem(_at(*detail["loc"][:-1]), f"{_said(detail)[0]}")
    yield from _labels(raw)
    yield from _containers(block(raw, "spec"))
    yield from _volumes(block(raw, "spec"))


def rendered(raw: object) -> dict[str, Any]:
    """Return a pod_spec without mistakes, made of its typed values: what is not known is not in it.

    Raises:
        ValueError: It has mistakes.
    """
    found = PodSpec.model_validate({} if raw is None else raw)
    return found.model_dump(by_alias=True, exclude_none=True)


def _at(*path: str | int) -> str:
    return render((*BASE, *path))


def _problem(detail: ErrorDetails) -> Problem:
    path = tuple(detail["loc"])
    if detail["type"] != "extra_forbidden":
        return Problem(_at(*path), *_said(detail))
    key, model = str(path[-1]), _model_at(path[:-1])
    known = [field.alias or name for name, field in model.model_fields.items()]
    near = difflib.get_close_matches(key, known, 1, 0.75) or _in_camel(key, known)
    listed = f"allowed here: {', '.join(known)}"
    if near:
        return Problem(_at(*path), "is not allowed in a pod_spec", f"did you mean `{near[0]}`? {listed}")
    why = next((_WHY[one] for one in _in_camel(key, list(_WHY))), None)
    return Problem(_at(*path), "is not allowed in a pod_spec", f"{why}; {listed}" if why else listed)


def _in_camel(key: str, known: Sequence[str]) -> list[str]:
    """Return Kubernetes' spelling of a key that is written node_selector or node-selector."""
    plain = key.replace("_", "").replace("-", "").lower()
    return [one for one in known if one.lower() == plain]


def _said(detail: ErrorDetails) -> tuple[str, str | None]:
    given, context = describe(detail["input"]), detail.get("ctx", {})
    match detail["type"]:
        case "detlab":
            return str(context["message"]), context["hint"]
        case "missing":
            return "is required", None
        case "literal_error":
            return f"must be {context['expected']}, not {given}", None
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be a mapping, not {given}", None
        case "list_type":
            return f"must be a list, not {given}", None
        case "too_long":
            return f"has {context['actual_length']} entries; there may be {context['max_length']}", None
        case "too_short":
            return "must not be empty", None
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {detail['input']}", None
        case "less_than_equal":
            return f"must be at most {context['le']}, not {detail['input']}", None
        case _:
            return detail["msg"][:1].lower() + detail["msg"][1:], None


def _model_at(path: Sequence[str | int]) -> type[BaseModel]:
    """Return the model of the block at a path of its errors."""
    model: type[BaseModel] = PodSpec
    for part in path:
        for name, field in model.model_fields.items():
            if part in {name, field.alias} and (inner := _inner(field.annotation)) is not None:
                model = inner
                break
    return model


def _inner(annotation: Any) -> type[BaseModel] | None:
    """Return the model in a type such as `Annotated[list[Model], …] | None`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for one in typing.get_args(annotation) if (found := _inner(one)) is not None), None)


# --- what no single field can judge; each expects the worst of the raw value


def _labels(raw: object) -> Iterator[Problem]:
    for kind in ("labels", "annotations"):
        for key in block(block(raw, "metadata"), kind):
            if isinstance(key, str) and reserved(key):
                hint = f"write {USERS_LABELS}/{key.rpartition('/')[2]}"
                yield Problem(_at("metadata", kind, key), "is not a user's: Services and controllers go by it", hint)


def _containers(spec: Any) -> Iterator[Problem]:
    names: set[object] = set()
    volumes = [name for one in items(spec, "volumes") if isinstance(name := block({"": one}, "").get("name"), str)]
    for kind in ("containers", "initContainers"):
        for number, raw in enumerate(items(spec, kind)):
            container = block({"": raw}, "")
            name, where = container.get("name"), ("spec", kind, number)
            if isinstance(name, str) and name in names:
                yield Problem(_at(*where, "name"), f"{name[:63]} is there twice")
            names.add(name if isinstance(name, str) else None)
            if name == MAIN_CONTAINER:
                yield from _main(container, where)
            elif isinstance(name, str) and container.get("image") is None:
                near = difflib.get_close_matches(name, [MAIN_CONTAINER], 1, 0.6)
                hint = f"or name the container {MAIN_CONTAINER}, if it is the task's own" if near else None
                yield Problem(_at(*where, "image"), "is required", hint)
            for index, mount in enumerate(items(container, "volumeMounts")):
                volume = block({"": mount}, "").get("name")
                if isinstance(volume, str) and volume not in volumes:
                    near = difflib.get_close_matches(volume, volumes, 1)
                    hint = f"did you mean `{near[0]}`?" if near else "volumes of the operator are mounted by themselves"
                    path = _at(*where, "volumeMounts", index, "name")
                    yield Problem(path, f"the volume {volume[:63]} is not one of the config's own", hint)
            yield from _variables(container, where)
            yield from _devices(container, where)


def _main(container: Any, where: Path) -> Iterator[Problem]:
    if where[1] != "containers":
        yield Problem(_at(*where, "name"), f"{MAIN_CONTAINER} is the task's own container, and belongs to containers")
    known = {field.alias or name for name, field in Container.model_fields.items()}
    for key, value in container.items():
        if key in known - _OF_MAIN and value is not None:
            what = f"is not configurable for {MAIN_CONTAINER}"
            yield Problem(_at(*where, str(key)), what, _ELSEWHERE.get(key, "in a container of your own it is"))


def _variables(container: Any, where: Path) -> Iterator[Problem]:
    for index, one in enumerate(items(container, "env")):
        source = block(one, "valueFrom")
        if source and block({"": one}, "").get("value") is not None:
            yield Problem(_at(*where, "env", index), "has both value and valueFrom")
        if source and len([key for key, value in source.items() if value is not None]) != 1:
            yield Problem(_at(*where, "env", index, "valueFrom"), "must have one source")
    for index, one in enumerate(items(container, "envFrom")):
        if len({"configMapRef", "secretRef"} & {key for key, value in block({"": one}, "").items() if value}) != 1:
            yield Problem(_at(*where, "envFrom", index), "must have one of configMapRef and secretRef")


def _devices(container: Any, where: Path) -> Iterator[Problem]:
    for kind in ("limits", "requests"):
        for key in block(block(container, "resources"), kind):
            if isinstance(key, str) and _SLOTS.fullmatch(key):
                hint = "set resources.slots_per_trial, or resources.slots of a task"
                yield Problem(_at(*where, "resources", kind, key), "is what slots are, which the master gives", hint)


def _volumes(spec: Any) -> Iterator[Problem]:
    names: set[str] = set()
    for number, raw in enumerate(items(spec, "volumes")):
        volume = block({"": raw}, "")
        name, where = volume.get("name"), ("spec", "volumes", number)
        if isinstance(name, str):
            if name.startswith(OUR_VOLUMES):
                yield Problem(_at(*where, "name"), f"names that begin with {OUR_VOLUMES} are the agent's own")
            if name in names:
                yield Problem(_at(*where, "name"), f"{name[:63]} is there twice")
            names.add(name)
        sources = [key for key, value in volume.items() if key != "name" and value is not None]
        if len(sources) != 1 and _SOURCES.issuperset(sources):
            one_of = f"must have one of {', '.join(sorted(_SOURCES))}"
            yield Problem(_at(*where), one_of, f"it has {', '.join(sources)}" if sources else None)
