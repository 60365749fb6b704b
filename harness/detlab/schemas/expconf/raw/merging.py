"""Merging a template under a user's config, by Determined's rules.

Scalars: the user's wins. Mappings: recursively. Lists: concatenated, the template's first, so that what the
user adds comes last (the last of two environment variables counts). The exceptions:

- null is "not set" and gives way, except as a hyperparameter, where it is a value;
- one hyperparameter is never mixed of two: only nested groups recurse;
- `bind_mounts` and `resources.devices` keep the user's first and drop template entries for the same
  container path; `environment.proxy_ports` likewise by port, `log_policies` and `stopping` by name;
- `searcher` and `checkpoint_storage` have one kind: of a template of another kind only the keys that all
  kinds share are inherited;
- a warm start, Azure credentials and training lengths are each one choice, taken whole;
- `entrypoint`, `searcher.bracket_rungs` and `searcher.metrics` are lists that are one value;
- an environment variable that both set to the same value stands once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from detlab.schemas.expconf.blocks import searchers, storage
from detlab.schemas.expconf.blocks.environment import DEVICE_KINDS
from detlab.schemas.expconf.blocks.scalars import Block
from detlab.schemas.space import is_condition

Merger = Callable[[Any, Any], Any]


def _values(user: Any, template: Any) -> Any:
    """Merge two values that nothing special is known about."""
    if user is None:
        return template
    if template is None:
        return user
    if isinstance(user, dict) and isinstance(template, dict):
        return _mappings(user, template, {})
    if isinstance(user, list) and isinstance(template, list):
        return [*template, *user]
    return user


def _mappings(user: dict[str, Any], template: dict[str, Any], special: Mapping[str, Merger]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in [*user, *(key for key in template if key not in user)]:
        if key in user and key in template:
            merged[key] = special.get(key, _values)(user[key], template[key])
        else:
            merged[key] = user[key] if key in user else template[key]
    return merged


def _block(special: Mapping[str, Merger]) -> Merger:
    def merge_block(user: Any, template: Any) -> Any:
        if isinstance(user, dict) and isinstance(template, dict):
            return _mappings(user, template, special)
        return _values(user, template)

    return merge_block


def _whole(user: Any, template: Any) -> Any:
    """One value: the user's, unless it is not set."""
    return template if user is None else user


def _by(identify: Callable[[Any], object]) -> Merger:
    """Merge lists by identity: the user's entries, then those of the template that are not among them."""

    def merge_entries(user: Any, template: Any) -> Any:
        if not isinstance(user, list) or not isinstance(template, list):
            return _values(user, template)
        taken = [identify(entry) for entry in user]
        kept = [entry for entry in template if identify(entry) is None or identify(entry) not in taken]
        return [*user, *kept]

    return merge_entries


def _field(name: str) -> Callable[[Any], object]:
    return lambda entry: entry.get(name) if isinstance(entry, dict) else None


def _device_path(entry: Any) -> object:
    if isinstance(entry, str):
        parts = entry.split(":")
        return parts[1] if len(parts) > 1 else None
    return _field("container_path")(entry)


def _policy_identity(entry: Any) -> object:
    if not isinstance(entry, dict):
        return None
    if entry.get("name") is not None:
        return ("named", entry["name"])
    action = entry.get("action")
    if isinstance(action, dict):
        action = action.get("type")
    return ("unnamed", entry.get("pattern"), action)


def _labels(user: Any, template: Any) -> Any:
    if not isinstance(user, list) or not isinstance(template, list):
        return _values(user, template)
    merged: list[Any] = []
    for label in [*template, *user]:
        if label not in merged:
            merged.append(label)
    return merged


def _per_device(value: Any) -> Any:
    """Spell out a shorthand, and `gpu` as `cuda`, so that two forms can be merged."""
    if isinstance(value, str | list):
        return {kind: copy.copy(value) for kind in DEVICE_KINDS}
    if isinstance(value, dict) and "gpu" in value:
        renamed = {key: item for key, item in value.items() if key != "gpu"}
        renamed["cuda"] = _whole(renamed.get("cuda"), value["gpu"])
        return renamed
    return value


def _images(user: Any, template: Any) -> Any:
    return _values(_per_device(user), _per_device(template))


def _variables(user: Any, template: Any) -> Any:
    """Concatenate lists of variables; what both have stands once, where the user has it."""
    mine, theirs = _per_device(user), _per_device(template)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        theirs = {kind: _without(theirs[kind], mine.get(kind)) for kind in theirs}
    return _values(mine, theirs)


def _without(entries: Any, others: Any) -> Any:
    if not isinstance(entries, list) or not isinstance(others, list):
        return entries
    return [entry for entry in entries if entry not in others]


def _hyperparameters(user: Any, template: Any) -> Any:
    if _is_group(user) and _is_group(template):
        special = dict.fromkeys([*user, *template], _hyperparameters)
        if is_condition("when", user.get("when"), 1):
            special["when"] = _whole  # one condition, not mixed of two
        return _mappings(user, template, special)
    return user


def _is_group(value: Any) -> bool:
    return isinstance(value, dict) and "type" not in value


def _top_hyperparameters(user: Any, template: Any) -> Any:
    if isinstance(user, dict) and isinstance(template, dict):
        return _mappings(user, template, dict.fromkeys([*user, *template], _hyperparameters))
    return _whole(user, template)


def _union(
    key: str,
    *,
    members: Mapping[str, type[Block]],
    common: tuple[str, ...],
    triggers: tuple[str, ...],
    choice: tuple[str, ...],
    special: Mapping[str, Merger],
) -> Merger:
    """Merge blocks of which exactly one kind, named by `key`, may remain.

    Args:
        key: `name` or `type`.
        members: The kinds by name.
        common: Keys that every kind has.
        triggers: Keys with which the user makes a choice.
        choice: The keys that belong to that choice: none is inherited once it is made.
        special: Mergers for single keys.
    """

    def merge_union(user: Any, template: Any) -> Any:
        if not isinstance(user, dict) or not isinstance(template, dict):
            return _values(user, template)
        inherited = dict(template)
        mine, theirs = user.get(key), template.get(key)
        member = members.get(mine) if isinstance(mine, str) else None
        if mine is not None and theirs is not None and mine != theirs:
            inherited = {name: value for name, value in template.items() if name in common}
        elif member is not None and theirs is None:
            inherited = {name: value for name, value in template.items() if name in member.model_fields}
        if any(user.get(name) is not None for name in triggers):
            inherited = {name: value for name, value in inherited.items() if name not in choice}
        return _mappings(user, inherited, special)

    return merge_union


_WARM_START = ("source_trial_id", "source_checkpoint_uuid")

_SPECIAL: dict[str, Merger] = {
    "entrypoint": _whole,
    "hyperparameters": _top_hyperparameters,
    "labels": _labels,
    "bind_mounts": _by(_field("container_path")),
    "log_policies": _by(_policy_identity),
    "stopping": _by(_field("name")),
    "min_validation_period": _whole,
    "min_checkpoint_period": _whole,
    "environment": _block(
        {"image": _images, "environment_variables": _variables, "proxy_ports": _by(_field("proxy_port"))}
    ),
    "resources": _block({"devices": _by(_device_path)}),
    "searcher": _union(
        "name",
        members=searchers.MEMBERS,
        common=searchers.COMMON,
        triggers=_WARM_START,
        choice=_WARM_START,
        special={"max_length": _whole, "bracket_rungs": _whole, "metrics": _whole},
    ),
    "checkpoint_storage": _union(
        "type",
        members=storage.TYPES,
        common=storage.COMMON,
        triggers=("connection_string", "account_url"),
        choice=("connection_string", "account_url", "credential"),
        special={},
    ),
}


def merge(user: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's raw config with a template (or cluster defaults) under it.

    Neither argument is changed, and the result shares nothing with them.
    """
    return _mappings(copy.deepcopy(dict(user)), copy.deepcopy(dict(template)), _SPECIAL)
