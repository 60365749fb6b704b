"""What a workspace gives to what is submitted into it: who may set which values, and how they come into a config.

They run as its members. So each passes the checks of a value that the submitter has written; what could run other code,
send credentials elsewhere or name a path of the nodes is set by administrators of the cluster alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Forbidden, NotFound, Problem
from detlab.schemas import expconf
from detlab.schemas.wire import GivenView
from detlab.schemas.wire.workspaces import WorkspaceDefaults
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.admission.destinations import destination_of
from detlab_hub.services.base.access import administers
from detlab_hub.services.base.callers import Caller
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
        Problem(f"defaults.{one.path}", one.message, one.hint, one.level) for one in expconf.check(config_of(wanted))
    ]
    if wanted.resource_pool and settings.pools.of(wanted.resource_pool) is None:
        pools = ", ".join(settings.pools.by_name)
        problems.append(
            Problem("defaults.resource_pool", f"there is no pool {wanted.resource_pool!r}", f"one of {pools}")
        )
    if masked_storage(wanted.checkpoint_storage) != wanted.checkpoint_storage:
        hint = "all members could read it: the nodes' own credentials are used, or those of each config"
        problems.append(Problem("defaults.checkpoint_storage", "holds a credential", hint))
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
    block = wanted.checkpoint_storage
    if not block or block == before.checkpoint_storage:
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


def given_by(s: Session, caller: Caller, raw: Any) -> tuple[dict[str, Any], str]:
    """Return the part of a config that the workspace gives which it names, and what the workspace is called.

    Of a config that names none for this caller, nothing: it is refused later, with all that is wrong with it.
    """
    if not isinstance(raw, dict) or not all(isinstance(raw.get(key) or "", str) for key in ("workspace", "project")):
        return {}, ""
    try:
        place = destination_of(s, caller, raw)
    except (ConfigError, Forbidden, NotFound):
        return {}, ""
    if place.workspace is None:
        return {}, ""
    return config_of(defaults_of(place.workspace)), place.reference or "Uncategorized"


def given_views(raw: Mapping[str, Any], given: Mapping[str, Any], workspace: str) -> list[GivenView]:
    """Return which values the workspace gives to a config that does not have them, credentials masked."""
    shown = {**given, "checkpoint_storage": masked_storage(given.get("checkpoint_storage") or {})}
    return [
        GivenView(path=path, value=value, source=f"workspace {workspace}") for path, value in _lacking(raw, shown, "")
    ]


def _lacking(raw: Any, given: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
        mine = raw.get(key) if isinstance(raw, Mapping) else None
        if isinstance(value, Mapping):
            yield from _lacking(mine, value, f"{at}{key}.")
        elif mine is None or isinstance(value, list):
            yield f"{at}{key}", value


def storage_place(defaults: WorkspaceDefaults) -> dict[str, Any]:
    """Return where a workspace has checkpoints kept, without which of them are; empty: it gives no storage."""
    return {key: value for key, value in defaults.checkpoint_storage.items() if key not in _KEEPING}
