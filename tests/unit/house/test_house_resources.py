"""A resource has one name through all layers, from the wire models to the command."""

from __future__ import annotations

from pathlib import Path

from detlab_hub.web.routes import API
from detlab_hub.web.scopes import PEOPLE, operation_of

ROOT = Path(__file__).resolve().parents[3]
LAYERS = {
    "wire": ("harness/detlab/schemas/wire/**/*.py", "harness/detlab/schemas/*wire.py"),
    "service": ("hub_ext/detlab_hub/services/**/*.py",),
    "operations": ("harness/detlab/client/operations/**/*.py",),
    "commands": ("harness/detlab/cli/commands/**/*.py",),
}
"""Where the other layers of a module in `web` are."""
OTHERWISE_NAMED = {
    "audit": {"wire", "operations", "commands"},  # taskwire, tasks, administration
    "bundles": {"wire", "operations", "commands"},  # of an experiment that is submitted
    "checkpoints": {"wire", "operations"},  # views, edits and collection
    "cluster": {"wire", "operations"},  # views, experiments
    "code": {"wire", "operations", "commands"},  # of an experiment
    "collection": {"wire", "service"},  # storage, collecting
    "experiments": {"wire"},  # views
    "figures": {"wire", "operations", "commands"},  # of an experiment
    "grants": {"operations", "commands"},  # of experiments and models
    "instances": {"wire", "service", "operations", "commands"},  # elasticwire, provisioning, pools
    "limits": {"wire", "service", "operations", "commands"},  # jobwire, user_limits, jobs, quota
    "metrics": {"wire", "operations", "commands"},  # for Prometheus
    "models": {"wire", "operations"},  # registry
    "nodes": {"wire", "operations", "commands"},  # agents
    "outputs": {"wire", "operations", "commands"},  # of a user task
    "overview": {"wire", "operations", "commands"},  # for front ends
    "quotas": {"wire"},  # jobwire
    "searches": {"commands"},  # search
    "service": {"wire", "service", "operations", "commands"},  # taskwire, health and credentials, tasks, administration
    "storage": {"commands"},  # usage, in its package
    "streams": {"wire", "operations", "commands"},  # views; stream, in its package
    "trials": {"wire", "operations"},  # views, experiments
    "uids": {"wire", "operations", "commands"},  # jobwire, jobs, user
    "usage": {"wire", "operations"},  # taskwire, tasks
    "usertasks": {"wire", "operations", "commands"},  # taskwire, tasks
    "versions": {"wire", "operations"},  # registry
}
"""Modules in `web` with routes for people -> the layers where the resource has another name, or is a part of another.

A new resource is not in here: it has the same name in every layer. Take out what has been renamed.
"""


def resources() -> set[str]:
    """The names of the modules with routes for people."""
    return {
        handler.__module__.rpartition(".")[2]
        for _, handler in API
        for verb in handler.SUPPORTED_METHODS
        if (operation := operation_of(handler, verb)) is not None and operation.scopes & PEOPLE
    }


def modules(*patterns: str) -> set[str]:
    """The names of modules; of `jobwire`, `job`."""
    return {path.stem.removesuffix("wire") for pattern in patterns for path in ROOT.glob(pattern)}


def test_a_resource_has_one_name_through_all_layers() -> None:
    present = {layer: modules(*patterns) for layer, patterns in LAYERS.items()}
    found = {}
    for name in resources():
        # one, or several: `pools` are `det pool`
        elsewhere = {layer for layer, names in present.items() if names.isdisjoint({name, name.removesuffix("s")})}
        if elsewhere:
            found[name] = elsewhere
    assert found == OTHERWISE_NAMED
