"""`task_container_defaults`: what a cluster, a pool or a workspace gives to tasks, by Determined's names of its keys.

A config's own values come before them, so that they are a part of a config that is laid under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.blocks.environment import DEVICE_KINDS
from detlab.schemas.expconf.checks.check import check
from detlab.schemas.expconf.checks.suggestions import closest
from detlab.schemas.expconf.raw import structure
from detlab.schemas.runtimes import KUBERNETES, SLURM, takes_image

STARTUP_HOOK = "startup_hook"
HOOK_VARIABLE = "DET_STARTUP_HOOK"
"""The environment variable in which a task finds the script; the launcher runs it before the entrypoint."""
HOOK_CHARS = 16_000
_PLACES: Mapping[str, tuple[str, ...]] = {
    **{
        key: ("environment", key)
        for key in (
            "image",
            "environment_variables",
            "force_pull_image",
            "registry_auth",
            "add_capabilities",
            "drop_capabilities",
            "pod_spec",
        )
    },
    "shm_size_bytes": ("resources", "shm_size"),
    "shm_size": ("resources", "shm_size"),
    "devices": ("resources", "devices"),
    "bind_mounts": ("bind_mounts",),
    "log_policies": ("log_policies",),
    "preemption_timeout": ("preemption_timeout",),
    "slurm": ("slurm",),
}
KEYS = (*_PLACES, STARTUP_HOOK)
NOT_FOR_TASKS = frozenset({"log_policies", "preemption_timeout"})
"""Keys of a config that user tasks do not have."""
_OF_CONTAINERS = (
    ("environment", "image"),
    ("environment", "force_pull_image"),
    ("environment", "registry_auth"),
    ("environment", "add_capabilities"),
    ("environment", "drop_capabilities"),
    ("resources", "shm_size"),
    ("resources", "devices"),
    ("bind_mounts",),
)


def read(raw: Any) -> tuple[dict[str, Any], list[Problem]]:
    """Return the part of a config that defaults are, and every mistake in them.

    Args:
        raw: The mapping as an operator or an administrator writes it.
    """
    found, safe = structure.inspect(raw)
    if not safe:
        return {}, found
    if not isinstance(raw, Mapping):
        return {}, [Problem("", "must be a mapping", "such as {shm_size: 8G}")]
    part: dict[str, Any] = {}
    for key, value in raw.items():
        if key in _PLACES:
            _put(part, _PLACES[key], value)
        elif key != STARTUP_HOOK:
            near = closest(key, KEYS)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(KEYS)}"
            found.append(Problem(str(key)[:80], "is no key of task_container_defaults", hint))
    hook = raw.get(STARTUP_HOOK)
    if hook is not None and (not isinstance(hook, str) or not 0 < len(hook) <= HOOK_CHARS or "\0" in hook):
        found.append(Problem(STARTUP_HOOK, f"must be a script of 1 to {HOOK_CHARS:,} characters"))
        hook = None
    found += [one for one in check(part) if one.level == "error"]
    return (part if hook is None or found else _with_hook(part, hook)), found


def for_runtime(part: Mapping[str, Any], runtime: str) -> dict[str, Any]:
    """Return what of defaults a runtime takes: a process has no image, no mounts and no shared memory of its own."""
    places = [] if takes_image(runtime) else [*_OF_CONTAINERS]
    places += [] if runtime == KUBERNETES else [("environment", "pod_spec")]
    places += [] if runtime == SLURM else [("slurm",)]
    kept = {key: dict(value) if isinstance(value, Mapping) else value for key, value in part.items()}
    for block, *rest in places:
        if not rest:
            kept.pop(block, None)
        elif isinstance(kept.get(block), dict):
            kept[block].pop(rest[0], None)
    return {key: value for key, value in kept.items() if value != {}}


def _put(part: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for key in place[:-1]:
        part = part.setdefault(key, {})
    part[place[-1]] = value


def _with_hook(part: dict[str, Any], hook: str) -> dict[str, Any]:
    """Add the variable of a startup hook, for each kind of device if variables are named by it."""
    said = f"{HOOK_VARIABLE}={hook}"
    variables = part.get("environment", {}).get("environment_variables") or []
    if isinstance(variables, Mapping):
        named = {("cuda" if kind == "gpu" else kind): list(value or []) for kind, value in variables.items()}
        variables = {kind: [*named.get(kind, []), said] for kind in DEVICE_KINDS}
    else:
        variables = [*variables, said]
    return {**part, "environment": {**part.get("environment", {}), "environment_variables": variables}}
