"""What no single field can judge: ranges, exclusive choices, names of unions, forbidden combinations.

Every rule reads the raw config and expects the worst of it, so that all of them speak in one check.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.blocks import searchers, storage
from detlab.schemas.expconf.blocks.hyperparameters import TYPES
from detlab.schemas.expconf.blocks.scalars import describe
from detlab.schemas.expconf.checks import (
    governance,
    objectives,
    placeholders,
    search_costs,
    search_plans,
    search_points,
    search_spaces,
    stopping,
    storage_places,
    suggestions,
)
from detlab.schemas.expconf.checks.walk import visit_hyperparameters
from detlab.schemas.expconf.podspec import mistakes
from detlab.schemas.expconf.raw.paths import Part, Path, render
from detlab.schemas.patterns import BadPattern, check_pattern
from detlab.schemas.script_names import MOST_CHARS
from detlab.schemas.text_limits import DESCRIPTION_CHARS, LABEL_CHARS, MOST_LABELS, TITLE_CHARS

Raw = dict[str, Any]

RANGED = ("int", "double", "log")

PATTERN_CHARS = 1000
"""Of a log policy."""
ENTRYPOINT_CHARS = 30_000
_PLACES = (("workspace", 2 * MOST_CHARS), ("project", LABEL_CHARS))
MOST_POLICIES = 20
"""Of an experiment: each looks at every line, and all together have so much time."""


def _block(raw: Raw, key: str) -> Raw:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _items(raw: Raw, key: str) -> list[Any]:
    value = raw.get(key)
    return value if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return None


def union_names(raw: Raw) -> Iterator[Problem]:
    """`searcher.name` and `checkpoint_storage.type` are known, and not of the past."""
    name = _block(raw, "searcher").get("name")
    yield from _union_name(
        "searcher.name", name, searchers.MEMBERS, searchers.REMOVED, searchers.REMOVED_HINTS, suggestions.METHODS
    )
    kind = _block(raw, "checkpoint_storage").get("type")
    yield from _union_name("checkpoint_storage.type", kind, storage.TYPES, storage.REMOVED, {}, {})


def _union_name(
    path: str,
    name: object,
    members: Mapping[str, Any],
    removed: dict[str, str],
    hints: Mapping[str, str],
    elsewhere: Mapping[str, str],
) -> Iterator[Problem]:
    if name is None or (isinstance(name, str) and name in members):
        return
    if isinstance(name, str) and name in removed:
        yield Problem(path, removed[name], hints.get(name))
        return
    near = None if suggestions.normal(name) in elsewhere else suggestions.closest(name, members)
    hint = f"did you mean `{near}`?" if near else elsewhere.get(suggestions.normal(name))
    yield Problem(path, f"must be one of {', '.join(members)}, not {describe(name)}", hint)


def ranges(raw: Raw) -> Iterator[Problem]:
    """`minval` is below `maxval`; a range inside a list is never searched."""
    for path, value in visit_hyperparameters(raw.get("hyperparameters")):
        if not isinstance(value, dict):
            continue
        low, high = _number(value.get("minval")), _number(value.get("maxval"))
        if value.get("type") in RANGED and low is not None and high is not None and low >= high:
            yield Problem(render(path), f"minval must be less than maxval, but {low} >= {high}")
        if value.get("type") == "int" and value.get("log") is True:
            yield from _on_log_scale(render(path), low, value.get("step"))
        if value.get("type") == "categorical" and isinstance(value.get("weights"), list):
            yield from _weights(render(path), value["weights"], value.get("vals"))
        in_list = any(isinstance(part, int) for part in path)
        if in_list and value.get("type") in TYPES and value.get("type") != "const":
            yield Problem(
                render(path),
                "is inside a list, and a list is one constant value: this range is not searched",
                "use a mapping, or a categorical with lists as its vals",
                "warning",
            )


def _on_log_scale(path: str, low: float | None, step: object) -> Iterator[Problem]:
    if low is not None and low < 1:
        message = f"is {low}, but an integer on a log scale begins at 1 or more"
        yield Problem(f"{path}.minval", message, "0 has no logarithm: begin at 1, or leave out `log`")
    if step is not None:
        yield Problem(
            f"{path}.step", "does not go with `log`", "use an ordinal with the values of your own, such as 16, 32, 64"
        )


def _weights(path: str, weights: list[Any], values: object) -> Iterator[Problem]:
    if isinstance(values, list) and len(weights) != len(values):
        message = f"has {len(weights)} numbers for {len(values)} choices"
        yield Problem(f"{path}.weights", message, "give one for each of `vals`, in their order")
    numbers = [_number(one) for one in weights]
    if None not in numbers and not math.isfinite(sum(one for one in numbers if one is not None)):
        yield Problem(f"{path}.weights", "has a sum that is too large for a float")


def forgotten_types(raw: Raw) -> Iterator[Problem]:
    """Warn of groups that look like ranges: with `minval` and `maxval`, or in the words of other tools."""
    groups: dict[Path, dict[Part, Any]] = {}
    for path, value in visit_hyperparameters(raw.get("hyperparameters")):
        groups.setdefault(path[:-1], {})[path[-1]] = value
    for path, group in groups.items():
        if len(path) < 2 or any(isinstance(part, int) for part in (*path, *group)):
            continue
        if {"minval", "maxval"} <= group.keys() or "vals" in group:
            hint: str | None = f"add `type: {'categorical' if 'vals' in group else 'int, double or log'}`"
        else:
            hint = suggestions.for_group({str(key): value for key, value in group.items()})
        if hint:
            yield Problem(render(path), "has no `type`, so it is a group of constants, not a range", hint, "warning")


def grid_counts(raw: Raw) -> Iterator[Problem]:
    """Require a `count` or a `step` on every int, double and log hyperparameter of a grid search."""
    if _block(raw, "searcher").get("name") != "grid":
        return
    for path, value in visit_hyperparameters(raw.get("hyperparameters")):
        unstepped = isinstance(value, dict) and value.get("type") in RANGED and value.get("step") is None
        if unstepped and isinstance(value, dict) and value.get("count") is None:
            yield Problem(render(path), "grid search is in use but count was not given", "add `count: N`")


def warm_start(raw: Raw) -> Iterator[Problem]:
    """At most one source of a warm start, of weights and of results."""
    block = _block(raw, "searcher")
    if block.get("source_trial_id") is not None and block.get("source_checkpoint_uuid") is not None:
        yield Problem("searcher", "at most one of source_trial_id and source_checkpoint_uuid may be set")
    if block.get("warm_start") and block.get("results"):
        yield Problem("searcher", "at most one of warm_start and results may be set")


def azure_credentials(raw: Raw) -> Iterator[Problem]:
    """Azure takes a connection string or an account URL."""
    block = _block(raw, "checkpoint_storage")
    if block.get("type") != "azure" or block.get("connection_string") is None:
        return
    if block.get("account_url") is not None:
        yield Problem("checkpoint_storage", "exactly one of connection_string and account_url must be set")
    if block.get("credential") is not None:
        yield Problem("checkpoint_storage.credential", "goes with account_url, not with connection_string")


def storage_path(raw: Raw) -> Iterator[Problem]:
    """`storage_path` stays below `host_path`."""
    block = _block(raw, "checkpoint_storage")
    host, inner = block.get("host_path"), block.get("storage_path")
    if not isinstance(inner, str):
        return
    if posixpath.isabs(inner):
        below = isinstance(host, str) and _is_below(posixpath.normpath(inner), posixpath.normpath(host))
    else:
        below = posixpath.normpath(inner).split("/")[0] != ".."
    if not below:
        yield Problem("checkpoint_storage.storage_path", "must be a relative directory or a subdirectory of host_path")


def _is_below(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def log_policies(raw: Raw) -> Iterator[Problem]:
    """Few, with names that are unique; a policy without a name is a whole legacy one; patterns compile."""
    count = len(_items(raw, "log_policies"))
    if count > MOST_POLICIES:
        yield Problem("log_policies", f"has {count} policies; there may be {MOST_POLICIES}", "join patterns: a|b")
    seen: set[str] = set()
    for index, policy in enumerate(_items(raw, "log_policies")):
        if not isinstance(policy, dict):
            continue
        path = f"log_policies[{index}]"
        name, pattern = policy.get("name"), policy.get("pattern")
        if name is None and (pattern is None or policy.get("action") is None):
            yield Problem(path, "needs a name, or else both pattern and action")
        if isinstance(name, str):
            if name in seen:
                yield Problem(f"{path}.name", f"{name!r} is the name of two policies")
            seen.add(name)
        if isinstance(pattern, str):
            yield from _pattern(f"{path}.pattern", pattern)
        if isinstance(policy.get("action"), dict) and "type" in policy["action"]:
            yield Problem(
                f"{path}.action",
                "the form with `type` is deprecated",
                f"write `action: {policy['action']['type']}`",
                "warning",
            )


def _pattern(path: str, pattern: str) -> Iterator[Problem]:
    if len(pattern) > PATTERN_CHARS:
        yield Problem(path, f"has {len(pattern)} characters; a pattern may have {PATTERN_CHARS}")
        return
    try:
        check_pattern(pattern)
    except BadPattern as error:
        yield Problem(path, str(error), error.hint)


def entrypoint_length(raw: Raw) -> Iterator[Problem]:
    """Limit the length of the entrypoint, so that the system can run it and it can be parsed quickly."""
    entrypoint = raw.get("entrypoint")
    words = entrypoint if isinstance(entrypoint, list) else [entrypoint]
    chars = sum(len(word) for word in words if isinstance(word, str))
    if chars > ENTRYPOINT_CHARS:
        message = f"has {chars:,} characters; an entrypoint may have {ENTRYPOINT_CHARS:,}"
        yield Problem("entrypoint", message, "put the program into a file of the code, and run that")


def text_lengths(raw: Raw) -> Iterator[Problem]:
    """Limit the texts that lists show, as an edit does: they are read with every page."""
    for key, most in (("name", TITLE_CHARS), ("description", DESCRIPTION_CHARS), *_PLACES):
        text = raw.get(key)
        if isinstance(text, str) and len(text) > most:
            hint = "put it into the notes: det experiment edit" if key == "description" else None
            yield Problem(key, f"has {len(text):,} characters; it may have {most:,}", hint)
    labels = _items(raw, "labels")
    if len(labels) > MOST_LABELS:
        yield Problem("labels", f"are {len(labels):,}; an experiment may have {MOST_LABELS}")
    for index, label in enumerate(labels):
        if isinstance(label, str) and len(label) > LABEL_CHARS:
            yield Problem(f"labels[{index}]", f"has {len(label):,} characters; a label may have {LABEL_CHARS}")


def pod_spec(raw: Raw) -> Iterator[Problem]:
    """Refuse what users may not set of a pod."""
    wanted = _block(raw, "environment").get("pod_spec")
    if isinstance(wanted, dict):
        yield from mistakes(wanted)


def mounts(raw: Raw) -> Iterator[Problem]:
    """Two mounts on one container path hide each other."""
    seen: set[str] = set()
    for index, mount in enumerate(_items(raw, "bind_mounts")):
        path = mount.get("container_path") if isinstance(mount, dict) else None
        if isinstance(path, str):
            if path in seen:
                yield Problem(f"bind_mounts[{index}].container_path", f"{path} is mounted twice", None, "warning")
            seen.add(path)


def slots(raw: Raw) -> Iterator[Problem]:
    """Warn if a trial needs more slots than its experiment may use: it would wait forever."""
    block = _block(raw, "resources")
    most, each = _number(block.get("max_slots")), _number(block.get("slots_per_trial", 1))
    if most is not None and each is not None and 0 <= most < each:
        yield Problem("resources.max_slots", f"is {most}, below the {each} slots of one trial", None, "warning")


def gpu_synonym(raw: Raw) -> Iterator[Problem]:
    """`gpu` is the old name of `cuda`; with both, `cuda` counts."""
    for key in ("image", "environment_variables"):
        block = _block(_block(raw, "environment"), key)
        if block.get("gpu") is not None and block.get("cuda") is not None:
            yield Problem(f"environment.{key}.gpu", "is ignored, because cuda is set too", None, "warning")


def profiled_batches(raw: Raw) -> Iterator[Problem]:
    """Refuse a range of batches that holds none, as Determined does, though it has no effect."""
    profiling = _block(raw, "profiling")
    begin, end = _number(profiling.get("begin_on_batch")), _number(profiling.get("end_after_batch"))
    if profiling.get("enabled") is True and begin is not None and end is not None and begin > end:
        message = f"must be at most end_after_batch, but {begin:g} > {end:g}"
        yield Problem("profiling.begin_on_batch", message, "leave both out: profiling covers the whole trial")


def unmanaged(raw: Raw) -> Iterator[Problem]:
    """Trials that users evaluate themselves hold no slots, and run no code on the cluster."""
    if raw.get("unmanaged") is not True:
        return
    if raw.get("entrypoint") is not None:
        message = "has no effect: the cluster runs no trial of an unmanaged experiment"
        yield Problem("entrypoint", message, "leave it out, or leave out `unmanaged`", "warning")
    if raw.get("tensorboard") is not None:
        message = "has no effect: the cluster runs no trial of an unmanaged experiment"
        hint = 'in a script of your own: det.init(tensorboard="import")'
        yield Problem("tensorboard", message, hint, "warning")
    if _block(_block(raw, "searcher"), "budget").get("slot_hours") is not None:
        message = "is never used up: trials of an unmanaged experiment hold no slots"
        yield Problem("searcher.budget.slot_hours", message, "set max_trials, or budget.wall_clock")
    for key in ("source_trial_id", "source_checkpoint_uuid"):
        if _block(raw, "searcher").get(key) is not None:
            message = "has no effect: you evaluate the trials of an unmanaged experiment yourself"
            yield Problem(f"searcher.{key}", message, None, "warning")


RULES: tuple[Callable[[Raw], Iterator[Problem]], ...] = (
    union_names,
    ranges,
    forgotten_types,
    grid_counts,
    search_spaces.grid_size,
    search_spaces.widths,
    search_spaces.names,
    search_spaces.exponents,
    search_spaces.searched_choices,
    search_points.space,
    search_points.few_points,
    search_costs.rungs,
    search_costs.at_once,
    search_plans.plans,
    objectives.metrics,
    objectives.constraints,
    objectives.directions,
    objectives.ends,
    stopping.policies,
    governance.policy,
    warm_start,
    azure_credentials,
    storage_path,
    storage_places.places,
    log_policies,
    entrypoint_length,
    placeholders.taken_by_a_shell,
    text_lengths,
    pod_spec,
    mounts,
    slots,
    gpu_synonym,
    profiled_batches,
    unmanaged,
)


def judge(raw: Raw) -> Iterator[Problem]:
    """Yield the problems of all rules."""
    for rule in RULES:
        yield from rule(raw)
