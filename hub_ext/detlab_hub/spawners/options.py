"""A user's options for a server: from the form, or from the REST API's `user_options`, all errors reported together.

`user_options` is a flat mapping of the names in `FIELDS`; `config` may hold a whole task config
(`detlab.schemas.taskconf`), which the flat names override.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detlab.errors import Problem
from detlab.schemas import taskconf
from detlab.schemas.taskwire import TaskKind

KINDS = (TaskKind.NOTEBOOK, TaskKind.SHELL, TaskKind.TENSORBOARD)

FIELDS: dict[str, tuple[str, ...]] = {
    "slots": ("resources", "slots"),
    "pool": ("resources", "resource_pool"),
    "image": ("environment", "image"),
    "runtime": ("runtime",),
    "idle_timeout": ("idle_timeout",),
    "workspace": ("workspace",),
    "project": ("project",),
}
"""Names of the form, and the place of each in the task config."""
_WORDS = {
    "slots": "Slots",
    "pool": "Resource pool",
    "image": "Image",
    "runtime": "Runtime",
    "idle_timeout": "Idle timeout",
    "workspace": "Workspace",
    "project": "Project",
}
_OTHERS = ("kind", "name", "config", "bundle", "template", "experiment_ids", "trial_ids")
NAME_CHARS = 200
TEMPLATE_CHARS = 1000


@dataclass(frozen=True)
class SpawnOptions:
    """A server as its user requests it.

    Attributes:
        kind: Kind of the task.
        config: Raw task config.
        name: For people; empty: one is generated.
        experiment_ids: Of a TensorBoard.
        trial_ids: Of a TensorBoard.
        bundle: Digest of its code bundle, or None.
        template: A template of the master that is laid under the config, or None.
    """

    kind: TaskKind = TaskKind.NOTEBOOK
    config: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    experiment_ids: list[int] = field(default_factory=list)
    trial_ids: list[int] = field(default_factory=list)
    bundle: str | None = None
    template: str | None = None


def from_form(data: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the user options of a submitted form: single texts, without the empty ones.

    Invalid numbers stay texts, so that the check can quote them.
    """
    options: dict[str, Any] = {}
    for name, values in data.items():
        texts = [value.strip() for value in values if isinstance(value, str) and value.strip()]
        if texts and name in (*FIELDS, "kind", "name"):
            options[name] = texts[-1]
    slots = options.get("slots")
    if isinstance(slots, str) and slots.isascii() and slots.lstrip("+-").isdigit() and len(slots) < 10:
        options["slots"] = int(slots)
    return options


def read(options: object, *, runtimes: Sequence[str] = ("process", "docker")) -> tuple[SpawnOptions, list[Problem]]:
    """Return the options of the spawn, and every error in the user options.

    Args:
        options: From the form or the REST API.
        runtimes: Which runtimes this site offers.
    """
    if not isinstance(options, Mapping):
        return SpawnOptions(), [Problem("", "user_options must be an object")]
    problems = [
        Problem(str(name)[:80], "unknown option", f"known are {', '.join((*FIELDS, *_OTHERS))}")
        for name in options
        if name not in FIELDS and name not in _OTHERS
    ]
    kind, found = _kind(options.get("kind"))
    problems += found
    raw, found = _config(options)
    problems += found
    if len(runtimes) == 1:  # the form does not ask then
        raw.setdefault("runtime", runtimes[0])
    name = options.get("name") or ""
    if not isinstance(name, str) or len(name) > NAME_CHARS or not name.isprintable():
        problems.append(Problem("name", f"must be a text of at most {NAME_CHARS} printable characters"))
        name = ""
    experiments, trials = (_ids(options, which, problems) for which in ("experiment_ids", "trial_ids"))
    if kind is TaskKind.TENSORBOARD and not experiments and not trials:
        problems.append(Problem("experiment_ids", "a TensorBoard shows experiments or trials: name at least one"))
    problems += [in_words(problem) for problem in taskconf.check(raw, kind) if problem.level == "error"]
    if isinstance(raw.get("runtime"), str) and raw["runtime"] not in runtimes:
        problems.append(Problem("Runtime", f"{raw['runtime']} is not offered here", f"one of {', '.join(runtimes)}"))
    bundle = options.get("bundle") or None
    if bundle is not None and not isinstance(bundle, str):
        problems.append(Problem("bundle", "must be the digest of uploaded code"))
        bundle = None
    template = options.get("template") or None
    if template is not None and (not isinstance(template, str) or len(template) > TEMPLATE_CHARS):
        problems.append(Problem("template", "must be the name of a template", "det template list"))
        template = None
    return SpawnOptions(kind, raw, name, experiments, trials, bundle, template), problems


def _kind(value: object) -> tuple[TaskKind, list[Problem]]:
    if value is None or value == "":
        return TaskKind.NOTEBOOK, []
    if isinstance(value, str) and value in [kind.value for kind in KINDS]:
        return TaskKind(value), []
    known = ", ".join(kind.value for kind in KINDS)
    return TaskKind.NOTEBOOK, [Problem("kind", f"must be one of {known}, not {str(value)[:80]!r}")]


def _config(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the task config of the options, a copy."""
    given = options.get("config")
    if given is not None and not isinstance(given, Mapping):
        return {}, [Problem("config", "must be a mapping, as det notebook start --config takes it")]
    raw: dict[str, Any] = copy.deepcopy(dict(given or {}))
    for name, path in FIELDS.items():
        value = options.get(name)
        if value is None or value == "":
            continue
        block = raw
        for key in path[:-1]:
            inner = block.get(key)
            block[key] = dict(inner) if isinstance(inner, Mapping) else {}
            block = block[key]
        block[path[-1]] = value
    return raw, _image_and_runtime(options, raw)


def _image_and_runtime(options: Mapping[str, Any], raw: dict[str, Any]) -> list[Problem]:
    """Set the runtime that an image implies, a container; report a contradiction."""
    if not options.get("image"):
        return []
    if raw.get("runtime") == "process":
        return [Problem("Image", "is of a container, and the runtime is process", "leave one of them out")]
    raw.setdefault("runtime", "docker")
    return []


def _ids(options: Mapping[str, Any], which: str, problems: list[Problem]) -> list[int]:
    value = options.get(which) or []
    if isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) and i > 0 for i in value):
        return list(value)
    problems.append(Problem(which, "must be a list of numbers"))
    return []


def in_words(problem: Problem) -> Problem:
    """Name a problem's place as the form does."""
    for name, path in FIELDS.items():
        if problem.path == ".".join(path):
            return Problem(_WORDS[name], problem.message, problem.hint)
    return problem
