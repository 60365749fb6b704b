"""From the options of `start` and `run` to a task config, checked before submission."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from detlab.cli.commands.projects.options import project_of, project_option, workspace_option
from detlab.cli.output.printing import counted
from detlab.client.submission import config_mapping, pack, set_key
from detlab.errors import ConfigError, Problem
from detlab.schemas import taskconf
from detlab.schemas.expconf.checks.check import errors_of
from detlab.schemas.taskwire import TaskKind

if TYPE_CHECKING:
    from detlab.client.bundling.bundle import Bundle

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of a command that starts a task; None for those not given."""

    slots: int | None
    image: str | None
    runtime: str | None
    name: str | None
    pool: str | None
    priority: int | None
    config_file: str | None
    overrides: tuple[str, ...]
    volumes: tuple[str, ...] = ()
    idle_timeout: str | None = None
    context: Path | None = None
    includes: tuple[Path, ...] = ()
    workspace: str | None = None
    project: str | None = None
    project_id: int | None = None
    template: str | None = None
    """A template of the master that is laid under the config."""
    spread: bool | None = None
    """Whether its slots may be on several nodes, unless the config says."""

    def bundle(self) -> Bundle | None:
        """Return the files of `--context` and `--include`; None if neither is given."""
        return pack(self.context, self.includes)

    def config(self, kind: TaskKind, **more: Any) -> dict[str, Any]:
        """Return the config of the file, changed by `-c`, then by the options, then by `more`.

        Raises:
            ConfigError: The result has mistakes; all of them are listed.
        """
        raw, problems = self._file(kind)
        for override in self.overrides:
            try:
                set_key(raw, override)
            except ConfigError as error:
                problems += error.problems
        self._lay_over(raw)
        problems += self._mount(raw)
        raw.update({key: value for key, value in more.items() if value is not None})
        problems += taskconf.check(raw, kind)
        count = len(errors_of(problems))
        if count:
            raise ConfigError(problems, f"the task config has {counted(count, 'error')}")
        return raw

    def _file(self, kind: TaskKind) -> tuple[dict[str, Any], list[Problem]]:
        if self.config_file is None:
            return {}, []
        if self.config_file == "-":
            return config_mapping(f"{sys.stdin.read()}\n", "standard input"), []
        return config_mapping(Path(self.config_file)), []

    def _lay_over(self, raw: dict[str, Any]) -> None:
        resources = {"slots": self.slots, "resource_pool": self.pool, "priority": self.priority}
        _set(raw, "resources", resources)
        said = raw.get("resources")
        if self.spread and not (isinstance(said, dict) and "is_single_node" in said):
            _set(raw, "resources", {"is_single_node": False})
        _set(raw, "environment", {"image": self.image})
        place = {"workspace": self.workspace, "project": project_of(self.project, self.project_id)}
        raw.update({key: value for key, value in place.items() if value is not None})
        if self.idle_timeout is not None:
            raw["idle_timeout"] = self.idle_timeout
        if self.runtime is not None:
            raw["runtime"] = self.runtime
        elif self.image is not None:
            raw.setdefault("runtime", "docker")  # who names an image wants a container

    def _mount(self, raw: dict[str, Any]) -> list[Problem]:
        """Add the directories of `--volume`; return what is wrong with them."""
        if not self.volumes:
            return []
        found = [_mount_of(text) for text in self.volumes]
        there = raw.get("bind_mounts") or []
        if isinstance(there, list):  # else the check says what is wrong with it
            raw["bind_mounts"] = there + [mount for mount in found if isinstance(mount, dict)]
        problems = [problem for problem in found if isinstance(problem, Problem)]
        runtime = raw.get("runtime")
        if runtime == "process":
            why = "needs a container: a process sees the node's own paths"
            problems.append(Problem("--volume", why, "leave out runtime: process, or name an image: --image IMAGE"))
        elif runtime is None:
            raw["runtime"] = "docker"  # as for an image
        return problems


def _mount_of(text: str) -> dict[str, Any] | Problem:
    """Return the bind mount of `HOST:CONTAINER` or `HOST:CONTAINER:ro`."""
    host, colon, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not colon or not host.startswith("/") or not path.startswith("/") or mode not in {"", "ro", "rw"}:
        return Problem("--volume", f"{text!r} is not HOST:CONTAINER with absolute paths", "-v /data:/data:ro")
    return {"host_path": host, "container_path": path, **({"read_only": True} if mode == "ro" else {})}


def _set(raw: dict[str, Any], block: str, values: dict[str, Any]) -> None:
    said = {key: value for key, value in values.items() if value is not None}
    if not said:
        return
    there = raw.get(block)
    if there is None:
        there = raw[block] = {}
    if isinstance(there, dict):  # else the check says what is wrong with it
        there.update(said)


def task_options(*, idle: bool = False, code: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add the options that describe a task, given to the function as `options`."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @wraps(function)
        def wrapped(*args: Any, **given: Any) -> T:
            fields = [field for field in TaskOptions.__slots__ if code or field not in _OF_CODE]
            said = {field: given.pop(field, None) for field in fields}
            said.update({field: said.get(field) or () for field in ("overrides", "volumes", "includes")})
            image, runtime = said["image"], said["runtime"]
            if image is not None and runtime == "process":
                raise click.UsageError("--image needs a container: leave out --runtime process")
            return function(*args, options=TaskOptions(**said), **given)

        for option in reversed(_OPTIONS + (_IDLE if idle else []) + (_CODE if code else [])):
            wrapped = option(wrapped)
        return wrapped

    return decorate


_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--slots", type=int, metavar="N", help="Slots (GPUs or CPU shares) to hold."),
    click.option("--image", metavar="IMAGE", help="Run in a container of this image."),
    click.option("--runtime", metavar="NAME", help="process, docker, or another of the pool; default: the cluster's."),
    click.option("--name", metavar="TEXT", help="Display name; if it is left out, detlab makes one up."),
    click.option("--resource-pool", "pool", metavar="POOL", help="Resource pool."),
    click.option("--priority", type=int, metavar="N", help="1 to 99; lower goes first."),
    click.option("--config-file", metavar="FILE", help="YAML file with the task's config; `-` is standard input."),
    click.option("--template", metavar="NAME", help="A template of the master: det template list."),
    click.option(
        "-c", "--config", "overrides", multiple=True, metavar="K=V", help="Set a key: resources.slots=2 (repeatable)."
    ),
    click.option(
        "-v",
        "--volume",
        "volumes",
        multiple=True,
        metavar="HOST:CONTAINER[:ro]",
        help="Mount a directory of the node in its container (repeatable); agents allow directories.",
    ),
    workspace_option("Workspace to put it in: its members see its state, and only you open it."),
    project_option("The project of the workspace; default: the one for what names none."),
]
_IDLE: list[Callable[[Any], Any]] = [
    click.option(
        "--idle-timeout", metavar="TIME", help='Time without use after which it is stopped: "30m", "2h", "never".'
    ),
]
_OF_CODE = frozenset({"context", "includes"})
"""What other commands have options of their own for."""
_CODE: list[Callable[[Any], Any]] = [
    click.option(
        "--context",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The content of DIR becomes its working folder.",
    ),
    click.option(
        "-i",
        "--include",
        "includes",
        multiple=True,
        metavar="PATH",
        type=click.Path(path_type=Path),
        help="A further file or directory, placed at the top of the code (repeatable).",
    ),
]
