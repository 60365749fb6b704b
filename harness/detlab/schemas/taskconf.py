"""The config of a user task (notebook, shell, command, TensorBoard …): Determined's keys where it has them.

raw, problems = load_yaml(text)
problems += check(raw, TaskKind.COMMAND)     # all errors
config = parse(raw, TaskKind.COMMAND)        # a TaskConfig, or ConfigError
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationError

from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf.blocks.environment import (
    BindMount,
    ByteSize,
    ConstraintsConfig,
    Cpus,
    DeviceEntry,
    EnvironmentConfig,
    MaxTime,
    MemoryLimit,
    Requires,
)
from detlab.schemas.expconf.blocks.experiment import Entrypoint
from detlab.schemas.expconf.blocks.extras import SlurmConfig
from detlab.schemas.expconf.blocks.scalars import (
    SECONDS_SHORTHAND,
    Block,
    Flag,
    NonNegativeInt,
    RuntimeName,
    Text,
    as_int,
    as_seconds,
    describe,
    ignored,
)
from detlab.schemas.expconf.checks import suggestions
from detlab.schemas.expconf.checks.check import errors_of, in_order
from detlab.schemas.expconf.checks.translating import from_pydantic
from detlab.schemas.expconf.checks.unsupported import container_keys
from detlab.schemas.expconf.checks.walk import visit
from detlab.schemas.expconf.podspec import mistakes
from detlab.schemas.expconf.raw import structure
from detlab.schemas.expconf.raw.paths import render
from detlab.schemas.taskwire import DEFAULT_ENTRYPOINTS, TaskKind

DEFAULT_SLOTS = {
    TaskKind.NOTEBOOK: 0,
    TaskKind.SHELL: 0,
    TaskKind.TENSORBOARD: 0,
    TaskKind.COMMAND: 1,
    TaskKind.CELL: 1,
    TaskKind.NOTEBOOK_RUN: 1,
}
"""A notebook holds no slots: its cells borrow them."""

Seconds = Annotated[float, Field(ge=0, le=366 * 86400.0), BeforeValidator(as_seconds), SECONDS_SHORTHAND]
"""A duration; 0 or `never` is none."""


class TaskResources(Block):
    """How many slots the task takes, where, and with which priority."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {"agent_label", "constraints", "is_single_node", "max_time", "requires"}
    )

    slots: NonNegativeInt | None = Field(
        None, description="Slots (GPUs, or CPU slots). Default: 1 for commands and notebook runs, 0 for other tasks."
    )
    priority: Annotated[int, Field(ge=1, le=99), BeforeValidator(as_int)] | None = Field(
        None, description="1 to 99; a lower number starts first. Default: the pool's setting."
    )
    resource_pool: Text = Field("", description="Resource pool; empty: the default pool.")
    shm_size: ByteSize | None = Field(
        None, description='Shared memory of a container, in bytes or as "1.5G"; default: 4 GiB.'
    )
    memory: MemoryLimit | None = Field(
        None,
        description='Memory, in bytes or as "8G", that must be free on the node. It is also the limit, enforced for'
        " containers, and for processes if the agent runs as root."
        " If it is left out, memory is neither counted nor limited.",
    )
    cpus: Cpus | None = Field(
        None,
        description="Processors, such as 1.5, that must be free on the node. It is also the limit, enforced for"
        " containers. If it is left out, processors are neither counted nor limited.",
    )
    max_time: MaxTime | None = Field(
        None, description='Longest time it may run, in seconds or as "2h"; then it is ended. Default: no limit.'
    )
    constraints: ConstraintsConfig | None = Field(None, description="Which nodes it may run on; default: any.")
    requires: Requires | None = Field(
        None, description="What its pool must enforce of policies, such as gov.ledger@1: of a notebook with such data."
    )
    is_single_node: Flag | None = Field(
        None,
        description="Whether all slots must be on one node; default: true. `false` is for commands alone: they start"
        " once on each of their nodes, as `det task create` has it.",
    )
    devices: list[DeviceEntry] = Field([], description="Host devices for the container.")
    agent_label: Text | None = ignored(None, "Unused.", "agent labels were removed; use resource_pool")


class TaskConfig(Block):
    """One user task: what to run, where, and for how long it may idle."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"workspace", "project"})

    description: Text | None = Field(None, description="Display name; if it is left out, detlab makes one up.")
    workspace: Text | None = Field(
        None,
        description="Workspace that it lies in, whose members see its state: one of yours by its name, or OWNER/NAME."
        " Default: your personal one.",
    )
    project: Text | None = Field(
        None, description="Project of the workspace that it lies in. Default: the one for what names none."
    )
    entrypoint: Entrypoint | None = Field(
        None, description="Command line to run (commands only), or a list of its words."
    )
    runtime: RuntimeName | None = Field(
        None,
        description="How it runs: process (on the node), docker (a container), or another runtime of the pool's"
        " agents. Default: the cluster's setting.",
    )
    environment: EnvironmentConfig = Field(
        default_factory=EnvironmentConfig, description="Image and environment variables."
    )
    resources: TaskResources = Field(default_factory=TaskResources, description="Slots and priority.")
    bind_mounts: list[BindMount] = Field([], description="Host directories for the container.")
    slurm: SlurmConfig = Field(default_factory=SlurmConfig, description="Options of the Slurm job.")
    work_dir: Text | None = Field(
        None, description="Working directory; default: the folder of the code, or the home folder if there is no code."
    )
    idle_timeout: Seconds | None = Field(
        None,
        description='Time without use after which it is ended: seconds or "30m"; 0 or "never": not at all. Default: the'
        " cluster's setting.",
    )


def check(raw: object, kind: TaskKind) -> list[Problem]:
    """Return every mistake of a raw task config, errors first."""
    raw = {} if raw is None else raw
    found, safe = structure.inspect(raw)
    if not safe:
        return found
    if not isinstance(raw, dict):
        return [Problem("", f"is {describe(raw)}; a task config is a mapping of keys to values")]
    try:
        TaskConfig.model_validate(raw)
    except ValidationError as error:
        found += from_pydantic(error)
    found += _unknown(raw)
    environment = raw.get("environment")
    if isinstance(environment, dict) and isinstance(environment.get("pod_spec"), dict):
        found += mistakes(environment["pod_spec"])
    resources = raw.get("resources")
    if kind is not TaskKind.COMMAND and isinstance(resources, dict) and resources.get("is_single_node") is False:
        why = f"a {kind.value.replace('_', ' ')} is one process: its slots are on one node"
        found.append(Problem("resources.is_single_node", why, "leave it out; det task create runs on several nodes"))
    if kind is TaskKind.COMMAND and not raw.get("entrypoint"):
        found.append(Problem("entrypoint", "is required", "det cmd run -- python train.py"))
    return in_order(found)


def _unknown(raw: dict[str, Any]) -> list[Problem]:
    found = []
    for path, model, block in visit(TaskConfig, raw):
        for key in block:
            if key not in model.model_fields:
                hint = suggestions.for_key(key, model, render(path))
                found.append(Problem(render((*path, str(key))), "unknown key", hint))
    return found


def parse(raw: object, kind: TaskKind) -> TaskConfig:
    """Return the config of a raw mapping with all defaults, including those of its kind.

    Raises:
        ConfigError: The config has mistakes; all of them are in `problems`.
    """
    problems = check(raw, kind)
    if errors_of(problems):
        raise refused(problems)
    config = TaskConfig.model_validate({} if raw is None else raw)
    if config.resources.slots is None:
        resources = config.resources.model_copy(update={"slots": DEFAULT_SLOTS[kind]})
        config = config.model_copy(update={"resources": resources})
    if config.entrypoint is None and kind in DEFAULT_ENTRYPOINTS:
        config = config.model_copy(update={"entrypoint": DEFAULT_ENTRYPOINTS[kind]})
    return config


def refused(problems: Iterable[Problem]) -> ConfigError:
    """Return the error for a task config with these mistakes."""
    found = list(problems)
    count = len(errors_of(found))
    return ConfigError(found, f"the task config has {count} error{'' if count == 1 else 's'}")


def unsupported(config: TaskConfig, runtime: str, kind: TaskKind) -> list[Problem]:
    """Return what a task asks for that its runtime or its kind cannot honour: warnings all."""
    shared = container_keys(config.environment, config.bind_mounts, config.resources, runtime=runtime)
    return in_order([*shared, *([] if kind.served_by_hub else _for_servers(config))])


def _for_servers(config: TaskConfig) -> list[Problem]:
    """Return warnings of the fields that have no effect on a task that runs to its end."""
    found = []
    if config.idle_timeout is not None:
        why = "is for notebooks, shells and TensorBoards: this runs until it ends"
        found.append(Problem("idle_timeout", why, "leave it out", "warning"))
    if config.work_dir is not None:
        why = "is for notebooks and shells: this runs in its code folder"
        found.append(Problem("work_dir", why, "let the entrypoint change the folder", "warning"))
    return found
