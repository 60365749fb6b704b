"""What a valid config asks for and the experiment's runtime does not do.

Nothing is dropped silently: a submit names every key found here, and refuses the config for those that would make it
run wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.blocks.environment import BindMount, EnvironmentConfig, ImageMap
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.extras import OptimizationsConfig
from detlab.schemas.expconf.blocks.scalars import Block
from detlab.schemas.expconf.blocks.storage import StorageBlock
from detlab.schemas.expconf.checks.check import in_order, is_trial_class
from detlab.schemas.runtimes import KUBERNETES, PROCESS, SLURM, takes_image
from detlab.schemas.storage_types import STORAGES

_PROCESSES = "it runs as plain processes on the node, without a container"
_HELD = {
    "memory": (
        "counts when an agent is chosen; processes are held to it only under an agent that runs as root and has control"
        " groups, a container always",
        "ask your administrator how the agents run, or use runtime: docker",
    ),
    "cpus": (
        "counts when an agent is chosen, but processes are not held to it: only a container is",
        "runtime: docker",
    ),
}
"""Of what counts for placement: whether processes are bound by it."""
_NOT_YET = "has no effect in this runtime yet"

_LAUNCHERS = re.compile(r"\b(determined|detlab)\.launch\.(horovod|tensorflow)\b")
_OLD_MODULES = re.compile(r"(?:^|\s)-m\s+determined\.")


def _ignored(path: str, why: str = _PROCESSES) -> Problem:
    return Problem(path, _NOT_YET, why, "warning")


def _environment(environment: EnvironmentConfig, *, containers: bool, pods: bool) -> Iterator[Problem]:
    if environment.image != ImageMap() and not containers:
        yield _ignored("environment.image")
    for key in ("force_pull_image", "registry_auth", "add_capabilities", "drop_capabilities"):
        if getattr(environment, key) and not containers:
            yield _ignored(f"environment.{key}")
    if environment.ports:
        yield _ignored("environment.ports", "it has had no effect in Determined for years")
    if environment.proxy_ports:
        yield _ignored("environment.proxy_ports", "ports of tasks are not proxied yet")
    if environment.pod_spec and not pods:
        yield _ignored("environment.pod_spec", "it is for pods: runtime: kubernetes")


def container_keys(
    environment: EnvironmentConfig, mounts: list[BindMount], resources: Block, *, runtime: str
) -> Iterator[Problem]:
    """Yield what the blocks that experiments and user tasks share ask for in vain.

    Args:
        environment: The environment block.
        mounts: The bind mounts.
        resources: The resources block of either.
        runtime: The runtime of its tasks.
    """
    containers = takes_image(runtime)
    yield from _environment(environment, containers=containers, pods=runtime == KUBERNETES)
    if mounts and not containers:
        yield _ignored("bind_mounts", f"{_PROCESSES}: paths are the node's own")
    keys = ("devices", "shm_size", "memory", "cpus")
    given: dict[str, Any] = {key: getattr(resources, key) for key in keys}
    if given["devices"] and not containers:
        yield _ignored("resources.devices")
    if given["shm_size"] is not None and not containers:
        yield _ignored("resources.shm_size", f"{_PROCESSES}: shared memory is the node's own")
    for key in ("memory", "cpus"):
        if given[key] and not containers:
            why, hint = _HELD[key]
            yield Problem(f"resources.{key}", why, hint, "warning")


def _resources(config: ExperimentConfig, runtime: str) -> Iterator[Problem]:
    if config.slurm.model_fields_set and runtime != SLURM:
        yield Problem("slurm", f"has no effect with runtime: {runtime}", "write runtime: slurm", "warning")
    if config.pbs.model_fields_set:
        yield _ignored("pbs", "there is no PBS backend yet")


def _storage(storage: StorageBlock | None) -> Iterator[Problem]:
    if getattr(storage, "propagation", None) not in {None, "rprivate"}:
        yield _ignored(
            "checkpoint_storage.propagation", "the directory is used as the node has it, or mounted rprivate"
        )
    kind = getattr(storage, "type", None)
    if kind is not None and kind not in STORAGES.names():
        yield Problem(
            "checkpoint_storage.type",
            f"no storage of type {kind} is installed where the master runs",
            f"use one of: {', '.join(STORAGES.names())}; or have a package with an entry point {kind!r} in "
            f"{STORAGES.group} installed there and on the nodes",
        )


def _services(config: ExperimentConfig) -> Iterator[Problem]:
    if config.integrations is not None and "pachyderm" in config.integrations.model_fields_set:
        yield _ignored("integrations.pachyderm", "there is no link to Pachyderm yet")


def _entrypoint(config: ExperimentConfig) -> Iterator[Problem]:
    entrypoint = config.entrypoint
    if entrypoint is None:
        return
    if is_trial_class(entrypoint):
        return
    line = entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint)
    launcher = _LAUNCHERS.search(line)
    if launcher:
        yield Problem(
            "entrypoint",
            f"needs the {launcher.group(2)} launcher, not available yet",
            "use detlab.launch.torch_distributed",
        )
    elif _OLD_MODULES.search(line):
        hint = "write `-m detlab.` instead of `-m determined.`"
        yield Problem("entrypoint", "runs a module of Determined", hint, "warning")


def _governance(config: ExperimentConfig) -> Iterator[Problem]:
    policy = config.governance
    if policy is None:
        return
    if policy.level == "dp" and getattr(config.searcher, "name", "single") != "single":
        yield Problem(
            "governance.dp.target_epsilon",
            "is what each trial may spend; what a search spends is not added up: with n trials it is n times that, and"
            " n times delta, at most",
            "divide both by the number of trials, or search on other data",
            "warning",
        )
    yield Problem(
        "governance",
        "is enforced by PyTorchTrial, and by code that uses detlab.pytorch.governance; the master does not see whether"
        " other code keeps to it yet",
        "look for gov/ metrics in the trial's validations",
        "warning",
    )


_HONOURED = frozenset({"aggregation_frequency", "average_aggregated_gradients", "gradient_compression"})
"""Keys of `optimizations` that a PyTorchTrial named as the entrypoint is trained by."""


def _trainer(config: ExperimentConfig) -> Iterator[Problem]:
    if is_trial_class(config.entrypoint):
        yield from _trial_class(config)
        return
    scripts = "a script passes it to the trainer; only an entrypoint of the form module:Class is trained by it"
    if config.perform_initial_validation:
        yield _ignored("perform_initial_validation", scripts)
    if config.checkpoint_policy != "best":
        yield _ignored("checkpoint_policy", scripts)
    if config.debug:
        yield _ignored("debug", "set the level in the training code: logging.basicConfig(level=logging.DEBUG)")
    if config.optimizations != OptimizationsConfig():
        yield _ignored("optimizations", scripts)
    if config.profiling.enabled:
        yield _ignored("profiling.enabled", "a script turns it on: fit(profiling_enabled=True) or core.profiler.on()")


def _trial_class(config: ExperimentConfig) -> Iterator[Problem]:
    default = OptimizationsConfig()
    for key in OptimizationsConfig.model_fields:
        if key not in _HONOURED and getattr(config.optimizations, key) != getattr(default, key):
            yield _ignored(f"optimizations.{key}", "it was for Horovod and apex, which the trainer does not use")


def unsupported_keys(config: ExperimentConfig, *, runtime: str = PROCESS) -> list[Problem]:
    """Return what this runtime cannot honour: errors where the trial would run wrong, warnings elsewhere.

    Only what the user set to something that matters is named; defaults are not.

    Args:
        config: A valid config.
        runtime: The runtime of its trials.
    """
    return in_order(
        [
            *_entrypoint(config),
            *_storage(config.checkpoint_storage),
            *container_keys(config.environment, config.bind_mounts, config.resources, runtime=runtime),
            *_resources(config, runtime),
            *_services(config),
            *_trainer(config),
            *_governance(config),
        ]
    )
