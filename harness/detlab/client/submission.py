"""From the arguments of `create_experiment` to a submission: config files, templates, code."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from detlab.client.bundling.bundle import Bundle, build_bundle
from detlab.client.operations.experiments import Submission, new_key
from detlab.client.operations.tasks import TaskSubmission
from detlab.client.ordering import several
from detlab.client.plain_values import plain
from detlab.client.transport.calls import Progress
from detlab.errors import ConfigError, Problem
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import ExperimentView

ConfigSource = Mapping[str, Any] | str | Path
_HOME = "Uncategorized"
"""The name of everybody's personal workspace, and of the project for what names none."""


def config_text(config: ConfigSource) -> Mapping[str, Any] | str:
    """Return a config as a mapping or as YAML text.

    Args:
        config: A mapping; a path (`Path`, or a text of one line that names a file); or YAML text of several lines.

    Raises:
        ConfigError: The file cannot be read.
    """
    if isinstance(config, Mapping):
        found: Mapping[str, Any] = plain(config)
        return found
    if isinstance(config, str) and "\n" in config:
        return config
    path = Path(config)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([Problem("", f"{path} cannot be read: {reason}")], f"no config at {path}") from error


def config_mapping(config: ConfigSource, name: str | None = None) -> dict[str, Any]:
    """Return a config as plain data; the master validates its content.

    Args:
        config: See `config_text`.
        name: What messages call it; default: its path, or `config`.

    Raises:
        ConfigError: The text is not YAML, has a duplicate key, or is not a mapping.
    """
    found = config_text(config)
    if isinstance(found, Mapping):
        return dict(found)
    from detlab.schemas.expconf import errors_of, load_yaml  # 0.1 s, which only submissions need

    if name is None:
        name = str(config) if isinstance(config, Path) or found is not config else "config"
    data, problems = load_yaml(found, name)
    if errors_of(problems):
        raise ConfigError(problems, f"{name} cannot be used")
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError([Problem("", "must be a mapping of keys to values")], f"{name} cannot be used")
    return data


def template_name(template: ConfigSource | None) -> str | None:
    """Return the name of a template of the master, if it is one: a text that is no config and no file."""
    if not isinstance(template, str) or "\n" in template or Path(template).suffix in (".yaml", ".yml", ".json"):
        return None
    return None if template and Path(template).is_file() else template


def merged(config: ConfigSource, template: ConfigSource) -> dict[str, Any]:
    """Return a config with a template under it, by Determined's merge rules."""
    from detlab.schemas.expconf import merge

    return merge(config_mapping(config), config_mapping(template))


def set_key(config: dict[str, Any], assignment: str) -> None:
    """Set one key of a config: `searcher.max_trials=4`; the value is read as YAML.

    Raises:
        ConfigError: The assignment has no `=`, its path leads through a value that is not a mapping, or its value
            is not YAML.
    """
    path, value = parsed(assignment)
    put(config, path, value)


def parsed(assignment: str) -> tuple[str, Any]:
    """Return the path and the value of `searcher.max_trials=4`.

    Raises:
        ConfigError: The assignment has no `=`, or its value is not YAML.
    """
    from detlab.schemas.expconf import errors_of, load_yaml

    path, equals, text = assignment.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise ConfigError([Problem(path, "an override looks like searcher.max_trials=4")])
    value, problems = load_yaml(text, path)
    if errors_of(problems):
        raise ConfigError([Problem(path, f"the value {text!r} cannot be read: {problems[0].message}")])
    return path.strip(), value


FREE_BLOCKS = ("hyperparameters", "data")
"""Blocks whose keys are the user's own, so that none of them is a mistake to the master."""


def added_keys(before: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Say which of the user's own keys a config has that the earlier one lacks, with the near name of each.

    Args:
        before: The earlier config.
        config: What became of it.
    """
    said = []
    for block in FREE_BLOCKS:
        known, now = (_paths(one.get(block), block) for one in (before, config))
        for path in sorted(now - known):
            near = difflib.get_close_matches(path, sorted(known), 1, 0.8)
            said.append(f"{path} is new" + (f": did you mean {near[0]}, which stays as it is?" if near else ""))
    return said


def _paths(block: Any, above: str) -> set[str]:
    """Return the paths of the leaves of a block; a hyperparameter with a `type` is one leaf."""
    if not isinstance(block, Mapping) or (above.count(".") and ("type" in block or "val" in block)):
        return {above} if above.count(".") else set()
    return {path for key, value in block.items() for path in _paths(value, f"{above}.{key}")}


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set one key of a config by its path: `searcher.max_trials`.

    Raises:
        ConfigError: The path leads through a value that is not a mapping.
    """
    keys, place = path.split("."), config
    for depth, key in enumerate(keys[:-1]):
        inner = place.get(key)
        if inner is None:
            inner = place[key] = {}
        if not isinstance(inner, dict):
            raise ConfigError([Problem(".".join(keys[: depth + 1]), "is not a mapping, so it has no keys to set")])
        place = inner
    place[keys[-1]] = value


def pack(
    model_dir: str | Path | None,
    includes: Iterable[str | Path] | None,
    files: Mapping[str, bytes | str] | None = None,
) -> Bundle | None:
    """Return the bundle of a submission, or None if there is no code at all."""
    if model_dir is None and not includes and not files:
        return None
    return build_bundle(model_dir, includes=several(includes) or (), files=files)


def submission_of(
    config: ConfigSource,
    *,
    bundle: Bundle | None,
    template: ConfigSource | None,
    activate: bool,
    dry_run: bool,
    idempotency_key: str | None,
    source: Mapping[str, Any] | None,
    progress: Progress | None,
    forked_from: int | None,
    code: str | None,
) -> Submission:
    """Return the submission that the arguments of `submit` describe."""
    name = template_name(template)
    return Submission(
        config=config_text(config) if template is None or name is not None else merged(config, template),
        template=name,
        bundle=bundle,
        activate=activate,
        dry_run=dry_run,
        key=idempotency_key or new_key(),
        source=dict(source or {}),
        progress=progress,
        forked_from=forked_from,
        code=code,
    )


def task_submission_of(
    kind: TaskKind | str,
    config: ConfigSource | None,
    *,
    bundle: Bundle | None,
    name: str | None,
    experiment_ids: Iterable[int],
    trial_ids: Iterable[int],
    dry_run: bool,
    idempotency_key: str | None,
    source: Mapping[str, Any] | None,
    progress: Progress | None,
    workspace: str | int | None = None,
    project: str | int | None = None,
    template: str | None = None,
) -> TaskSubmission:
    """Return the submission that the arguments of `submit_task` describe.

    Raises:
        ConfigError: The config cannot be read as a mapping, and a workspace or a project is to be laid over it.
    """
    place = {"workspace": workspace, "project": project}
    said = {key: str(value) for key, value in place.items() if value is not None}
    whole: Mapping[str, Any] | str = {} if config is None else config_text(config)
    if said:
        whole = {**({} if config is None else config_mapping(config)), **said}
    return TaskSubmission(
        kind=TaskKind(kind),
        config=whole,
        name=name,
        bundle=bundle,
        experiment_ids=tuple(experiment_ids),
        trial_ids=tuple(trial_ids),
        dry_run=dry_run,
        key=idempotency_key or new_key(),
        source=dict(source or {}),
        progress=progress,
        template=template,
    )


def fork_of(
    view: ExperimentView,
    changes: Mapping[str, Any],
    *,
    config: ConfigSource | None = None,
    bundle: Bundle | None = None,
    name: str | None = None,
    workspace: str | int | None = None,
    project: str | int | None = None,
    warm_start: bool = False,
    activate: bool = True,
    dry_run: bool = False,
    source: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Submission:
    """Return the submission of another experiment with the config and the code of one, but for what is changed.

    Secrets stay the masks that views have: the master puts those of the experiment's owner back, for its owner.

    Args:
        view: The experiment, with its config.
        changes: Values to change, by path: `{"searcher.max_trials": 50}`.
        config: A whole config instead of its own.
        bundle: Code instead of its own.
        name: Another name.
        workspace: Where it is to lie; by default beside the experiment, if one may put something there.
        project: The project of it.
        warm_start: Whether its search begins with the results of the experiment's trials.
        activate: Start it now; else it is made paused.
        dry_run: Only validate it.
        source: Provenance for people.
        progress: Called with (bytes sent, bytes in all) while code is uploaded.

    Raises:
        ConfigError: A path leads through a value that is not a mapping, or the config cannot be read.
    """
    made = config_mapping(config) if config is not None else {**copy.deepcopy(view.config or {}), **_place(view)}
    if config is None:
        made = {key: value for key, value in made.items() if value is not None}
    keys = {"name": name, "workspace": workspace, "project": project}
    if workspace is not None:
        made.pop("project", None)
    made.update({key: str(value) for key, value in keys.items() if value is not None})
    if warm_start:
        searcher = made.get("searcher") or {}
        searcher.pop("results", None)
        searcher["warm_start"] = [*(searcher.get("warm_start") or []), view.id]
        made["searcher"] = searcher
    for path, value in changes.items():
        put(made, path, plain(value, path))
    searcher = made.get("searcher")
    if isinstance(searcher, dict) and searcher.get("name") != ((view.config or {}).get("searcher") or {}).get("name"):
        # Values of keys that are not set are in the config, too; another method may not have them.
        made["searcher"] = {key: value for key, value in searcher.items() if value is not None}
    return Submission(
        config=made,
        bundle=bundle,
        code=view.bundle,
        activate=activate,
        dry_run=dry_run,
        source=dict(source or {}),
        progress=progress,
        forked_from=view.id,
    )


def _place(view: ExperimentView) -> dict[str, str | None]:
    """Return where a fork lies: beside the experiment, wherever that was moved; of what one may only read, at home."""
    personal = view.workspace in ("", _HOME)
    if view.may == "read" or (personal and view.may != "own"):
        return {"workspace": None, "project": None}
    workspace = view.workspace if "/" in view.workspace else f"{view.owner}/{view.workspace}"
    project = None if view.project in ("", _HOME) else view.project
    return {"workspace": None if personal else workspace, "project": project}
