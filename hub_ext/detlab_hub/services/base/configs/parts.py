"""Parts of configs that are laid under or over others: which keys they may have, and their secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from detlab.errors import ConfigError, Problem
from detlab.schemas import expconf, taskconf
from detlab.schemas.expconf.blocks import searchers, storage
from detlab.schemas.expconf.raw import structure
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.schemas.taskconf import TaskConfig, TaskResources
from detlab.schemas.taskwire import TaskKind
from detlab_hub.services.base.masking import masked_lineage

EXPERIMENT, TASKS = "experiment", "tasks"
_PLACES = ("workspace", "project")
_TASKS_ALONE = frozenset(TaskConfig.model_fields) - frozenset(expconf.ExperimentConfig.model_fields)
_ADMINS = frozenset(
    {
        *("name", "description", "labels", "hyperparameters", "searcher", "stopping", "resources", "max_restarts"),
        *("checkpoint_policy", "preemption_timeout", "profiling", "reproducibility", "debug", "retention_policy"),
        *("min_validation_period", "min_checkpoint_period", "scheduling_unit", "records_per_epoch"),
        *("perform_initial_validation", "idle_timeout", "checkpoint_storage"),
    }
)
"""Keys that admins of a workspace may lay under or over the configs of its members: none of them names code, a path of
the nodes, or an address. `checkpoint_storage` is looked into."""
_NOT_ADMINS = ("resources", "devices")


def checked(part: Any, *, workload: str | None = None) -> list[Problem]:
    """Return what is wrong with a part of a config.

    Args:
        part: As it was written.
        workload: What it is for; None: for experiments and user tasks alike, each of which takes what it knows.
    """
    found, safe = structure.inspect(part)
    if not safe:
        return found
    if not isinstance(part, Mapping):
        return [Problem("", "must be a mapping of keys to values")]
    hint = "say it where you submit: --workspace, --project"
    problems = [
        Problem(key, "says where something lies, which no other can say for it", hint) for key in _PLACES if key in part
    ]
    rest = {key: value for key, value in part.items() if key not in _PLACES}
    if workload == TASKS:
        return problems + taskconf.check(rest, TaskKind.NOTEBOOK)
    alone = {key: rest.pop(key) for key in _TASKS_ALONE & rest.keys()} if workload is None else {}
    slots = _slots(rest) if workload is None else None
    if slots is not None:
        rest["resources"] = {key: value for key, value in rest["resources"].items() if key != "slots"}
        alone["resources"] = {"slots": slots}
    return problems + expconf.check(rest, part=True) + (taskconf.check(alone, TaskKind.NOTEBOOK) if alone else [])


def _slots(part: Mapping[str, Any]) -> Any:
    resources = part.get("resources")
    return resources.get("slots") if isinstance(resources, Mapping) else None


def fitting(part: Mapping[str, Any], workload: str) -> dict[str, Any]:
    """Return what of a part experiments, or user tasks, know."""
    known = TaskConfig.model_fields if workload == TASKS else expconf.ExperimentConfig.model_fields
    kept = {key: value for key, value in part.items() if key in known}
    resources = kept.get("resources")
    if isinstance(resources, Mapping):
        fields = TaskResources.model_fields.keys() if workload == TASKS else resources.keys() - {"slots"}
        kept["resources"] = {key: value for key, value in resources.items() if key in fields}
    return kept


def beyond_admins(part: Mapping[str, Any]) -> list[str]:
    """Return the keys of a part that only administrators of the cluster may lay under or over others' configs."""
    found = [key for key in part if key not in _ADMINS]
    resources = part.get(_NOT_ADMINS[0])
    if isinstance(resources, Mapping) and resources.get(_NOT_ADMINS[1]):
        found.append(".".join(_NOT_ADMINS))
    return sorted(found)


# --- blocks of which there are several kinds

KINDS: Mapping[str, tuple[str, Mapping[str, type[Any]]]] = {
    "searcher": ("name", searchers.MEMBERS),
    "checkpoint_storage": ("type", storage.TYPES),
}
"""The key that says which kind a block is, and the kinds by name."""


def for_kinds(part: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a part what a config's search method and type of storage have, unless it says itself which."""
    made = dict(part)
    for block, (key, kinds) in KINDS.items():
        said, kind = made.get(block), at(config, (block, key))
        model = kinds.get(kind) if isinstance(kind, str) else None
        if not isinstance(said, Mapping) or said.get(key) is not None or model is None:
            continue
        if model.model_config.get("extra") != "allow":
            made[block] = {name: value for name, value in said.items() if name in model.model_fields}
        if not made[block]:
            del made[block]
    return made


def not_of_all_kinds(part: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield warnings of keys that only some search methods or types of storage have, where it is open which."""
    for block, (key, kinds) in KINDS.items():
        said = part.get(block)
        if not isinstance(said, Mapping) or said.get(key) is not None:
            continue
        for name in said:
            lacking = [kind for kind, model in kinds.items() if name not in model.model_fields]
            if lacking:
                why = f"holds for what has such a key, and not for {', '.join(lacking)}"
                yield Problem(f"{block}.{name}", why, f"if nobody is to use these, set {block}.{key} too", "warning")


# --- places in a config


def leaves(part: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values of a part that are set, and where they are; a list is one value."""
    for key, value in part.items():
        place = (*at, str(key))
        if isinstance(value, Mapping) and value:
            yield from leaves(value, place)
        elif value is not None:
            yield place, value


def at(config: Any, place: Path) -> Any:
    """Return the value at a place; None where there is none."""
    for key in place:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def put(config: dict[str, Any], place: Path, value: Any) -> dict[str, Any]:
    """Return a config with a value at a place."""
    key, *rest = place
    below = config.get(str(key))
    inner = put(dict(below) if isinstance(below, Mapping) else {}, tuple(rest), value) if rest else value
    return {**config, str(key): inner}


# --- secrets


def masked(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part as it is shown: credentials and variables with names as secrets have are masks."""
    return masked_lineage(part)


def holds_secrets(part: dict[str, Any]) -> bool:
    """Whether something of a part is masked where it is shown."""
    return masked(part) != part


def unmasked(written: Any, before: Mapping[str, Any] | None, owner: str = "") -> Any:
    """Return a part that was written over the view of an earlier one, with its secrets instead of masks.

    Args:
        written: The new one.
        before: The earlier one, if it is the writer's to take secrets from.
        owner: Whose the earlier one is, for the message.

    Raises:
        ConfigError: A mask is left.
    """
    shown = masked(dict(before)) if before else {}
    made, problems = _restored(written, shown, before or {}, ())
    if problems:
        hint = f"give its value: {owner}'s is not shown to others" if owner else "give its value"
        raise ConfigError([Problem(render(one), "is a mask, not the secret", hint) for one in problems])
    return made


def _restored(written: Any, shown: Any, before: Any, place: Path) -> tuple[Any, list[Path]]:
    if isinstance(written, Mapping):
        made, problems = {}, []
        for key, value in written.items():
            there, kept = (one.get(key) if isinstance(one, Mapping) else None for one in (shown, before))
            made[key], found = _restored(value, there, kept, (*place, str(key)))
            problems += found
        return made, problems
    if isinstance(written, list):
        known = list(zip(shown, before, strict=False)) if isinstance(shown, list) and isinstance(before, list) else []
        entries, problems = [], []
        for index, value in enumerate(written):
            pair = next((one for one in known if one[0] == value), (None, None))
            entry, found = _restored(value, pair[0], pair[1], (*place, index))
            entries.append(entry)
            problems += found
        return entries, problems
    if not isinstance(written, str) or MASK not in written:
        return written, []
    return (before, []) if written == shown else (written, [place])
