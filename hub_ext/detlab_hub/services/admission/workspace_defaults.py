"""What a workspace gives to what is submitted into it: who may set which values, and how they come into a config.

They run as its members. So each passes the checks of a value that the submitter has written; what could run other code,
send credentials elsewhere or name a path of the nodes is set by administrators of the cluster alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.errors import ConfigError, Forbidden, Problem
from detlab.schemas import expconf
from detlab.schemas.expconf import container_defaults
from detlab.schemas.wire.workspaces import WorkspaceDefaults
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base.access import administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.parts import masked, unmasked
from detlab_hub.services.base.masking import masked_lineage, masked_storage
from detlab_hub.services.base.settings import Settings
from detlab_hub.store.tables import WorkspaceRow

_BUCKETS: Mapping[str, frozenset[str]] = {
    name: frozenset({"type", "bucket", "prefix", "save_experiment_best", "save_trial_best", "save_trial_latest", *more})
    for name, more in {"s3": {"region"}, "gcs": set[str]()}.items()
}
"""By type of storage the keys that admins of a workspace may set: no address, to which members would send credentials,
and no path of a node or a task."""
_KEEPING = frozenset({"save_experiment_best", "save_trial_best", "save_trial_latest"})


def check_defaults(caller: Caller, before: WorkspaceDefaults, wanted: WorkspaceDefaults, settings: Settings) -> None:
    """Check that the caller may give a workspace these defaults, and that a config could have them.

    Raises:
        ConfigError: A value could not stand in a config, or is a credential.
        Forbidden: Only administrators of the cluster may set one of them.
    """
    problems = [
        Problem(f"defaults.{one.path}", one.message, one.hint, one.level)
        for one in expconf.check(config_of(wanted), part=True)
    ]
    if wanted.resource_pool and settings.pools.of(wanted.resource_pool) is None:
        pools = ", ".join(settings.pools.by_name)
        problems.append(
            Problem("defaults.resource_pool", f"there is no pool {wanted.resource_pool!r}", f"one of {pools}")
        )
    if masked_storage(wanted.checkpoint_storage) != wanted.checkpoint_storage:
        hint = "all members could read it: the nodes' own credentials are used, or those of each config"
        problems.append(Problem("defaults.checkpoint_storage", "holds a credential", hint))
    if wanted.task_container_defaults:
        problems += [
            Problem(f"defaults.task_container_defaults.{one.path}", one.message, one.hint)
            for one in container_defaults.read(wanted.task_container_defaults)[1]
        ]
    given = {"environment": wanted.environment}
    if masked_lineage(given) != given:
        hint = "all members could read it: `data.secrets` of each config is masked"
        problems.append(Problem("defaults.environment", "holds a credential", hint))
    if expconf.errors_of(problems):
        raise ConfigError(expconf.in_order(problems), "a workspace cannot give this")
    if not administers(caller, ObjectKind.WORKSPACE):
        _check_admins_own(before, wanted)


def _check_admins_own(before: WorkspaceDefaults, wanted: WorkspaceDefaults) -> None:
    """Check that what changes is for admins of a workspace to change."""
    hint = "An administrator of the cluster may set it: det workspace set-defaults"
    if wanted.environment != before.environment:
        raise Forbidden("only administrators of the cluster may set the environment that a workspace gives", hint=hint)
    if wanted.task_container_defaults != before.task_container_defaults:
        raise Forbidden(
            "only administrators of the cluster may set the task_container_defaults of a workspace", hint=hint
        )
    check_storage(wanted.checkpoint_storage, before.checkpoint_storage)


def check_storage(block: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
    """Check that admins of a workspace may have its members store there.

    Raises:
        Forbidden: Only administrators of the cluster may.
    """
    hint = "An administrator of the cluster may set it"
    if not block or block == before:
        return
    allowed = _BUCKETS.get(str(block.get("type")))
    beyond = sorted(block.keys() - (allowed or set()))
    if allowed is None or beyond:
        named = "s3 and gcs" if allowed is None else "bucket, prefix and region"
        what = f"a storage of the type {block.get('type')!r}" if allowed is None else f"its {', '.join(beyond)}"
        raise Forbidden(f"admins of a workspace may name {named}; only administrators of the cluster {what}", hint=hint)


def config_of(defaults: WorkspaceDefaults) -> dict[str, Any]:
    """Return defaults as a part of a config."""
    found: dict[str, Any] = {}
    if defaults.resource_pool:
        found["resources"] = {"resource_pool": defaults.resource_pool}
    if defaults.checkpoint_storage:
        found["checkpoint_storage"] = dict(defaults.checkpoint_storage)
    if defaults.environment:
        found["environment"] = dict(defaults.environment)
    return found


def defaults_of(row: WorkspaceRow) -> WorkspaceDefaults:
    """Return the defaults of a workspace; of a newer version what this one knows."""
    known = {key: value for key, value in row.defaults.items() if key in WorkspaceDefaults.model_fields}
    return WorkspaceDefaults.model_validate(known)


def container_defaults_of(row: WorkspaceRow) -> dict[str, Any]:
    """Return the `task_container_defaults` of a workspace as a part of a config."""
    return container_defaults.read(defaults_of(row).task_container_defaults)[0]


def shown_defaults(row: WorkspaceRow) -> WorkspaceDefaults:
    """Return the defaults of a workspace as its members see them, without the credentials of a registry."""
    found = defaults_of(row)
    return found.model_copy(update={"task_container_defaults": _masked(found.task_container_defaults)})


def with_secrets_of(before: WorkspaceDefaults, wanted: WorkspaceDefaults) -> WorkspaceDefaults:
    """Return defaults that were written over the view of earlier ones, with the credentials of these.

    Raises:
        ConfigError: A mask is left.
    """
    made = unmasked({"environment": wanted.task_container_defaults}, {"environment": before.task_container_defaults})
    return wanted.model_copy(update={"task_container_defaults": made["environment"]})


def _masked(defaults: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = masked({"environment": defaults})["environment"]
    return shown


def storage_place(defaults: WorkspaceDefaults) -> dict[str, Any]:
    """Return where a workspace has checkpoints kept, without which of them are; empty: it gives no storage."""
    return {key: value for key, value in defaults.checkpoint_storage.items() if key not in _KEEPING}
