"""check and parse: every mistake of a raw config at once, or the config."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf.blocks.experiment import TRIAL_CLASS, ExperimentConfig
from detlab.schemas.expconf.blocks.hyperparameters import TYPES, Hyperparameter
from detlab.schemas.expconf.blocks.scalars import NOTE_IGNORED, NOTE_OLD, describe, note
from detlab.schemas.expconf.checks import completeness, misnamed, rules, suggestions
from detlab.schemas.expconf.checks.translating import from_pydantic
from detlab.schemas.expconf.checks.walk import visit_blocks, visit_hyperparameters
from detlab.schemas.expconf.raw import structure
from detlab.schemas.expconf.raw.loading import load_yaml
from detlab.schemas.expconf.raw.paths import render

HONOURED_PERIODS = frozenset({"min_checkpoint_period", "min_validation_period", "scheduling_unit"})
"""Deprecated keys by which a trial class named as the entrypoint is trained."""

_HYPERPARAMETER: TypeAdapter[Any] = TypeAdapter(Hyperparameter)

_ENTRY = re.compile(r"([^\[]*)\[(\d{1,9})\]")
"""An entry of a list, at the beginning of a path."""


def _fields(raw: dict[str, Any]) -> Iterator[Problem]:
    try:
        ExperimentConfig.model_validate(raw)
    except ValidationError as error:
        yield from from_pydantic(error)
    hyperparameters = raw.get("hyperparameters")
    if isinstance(hyperparameters, dict) and "type" in hyperparameters:
        yield from _top_level_type(hyperparameters)
    for path, value in visit_hyperparameters(hyperparameters):
        if isinstance(value, dict) and any(isinstance(part, int) for part in path):
            try:
                _HYPERPARAMETER.validate_python(value)
            except ValidationError as error:
                yield from from_pydantic(error, path)


def _top_level_type(hyperparameters: dict[str, Any]) -> Iterator[Problem]:
    kind = hyperparameters["type"]
    if kind in TYPES:
        yield Problem(
            "hyperparameters.type",
            f"is a hyperparameter named `type` with the value {kind!r}",
            "if `hyperparameters` was meant to be one range, give it a name first",
            "warning",
        )


def _keys(raw: dict[str, Any]) -> Iterator[Problem]:
    unknown = 0
    trained = is_trial_class(raw.get("entrypoint"))
    for path, model, block in visit_blocks(raw):
        for key, value in block.items():
            field = model.model_fields.get(key)
            where = render((*path, str(key)))
            if field is None:
                unknown += 1
                hint = suggestions.for_key(key, model, render(path)) if unknown <= structure.MAX_PROBLEMS else None
                yield Problem(where, "unknown key", hint)
            elif value is None or _is_default(field, value):
                continue  # a clone's config, which is written out in full, names every key
            elif reason := note(field, NOTE_OLD):
                if trained and where in HONOURED_PERIODS:
                    reason = "it counts as long as the entrypoint has the form module:Class; a script does not read it"
                yield Problem(where, "is deprecated", reason, "warning")
            elif reason := note(field, NOTE_IGNORED):
                yield Problem(where, "is accepted and has no effect", reason, "warning")


def _is_default(field: FieldInfo, value: object) -> bool:
    """Whether a key says what it would say if it were left out."""
    default = field.get_default(call_default_factory=True)
    return value == (default.model_dump(mode="json") if isinstance(default, BaseModel) else default)


def is_trial_class(entrypoint: object) -> bool:
    """Whether an entrypoint has the deprecated form `module:Class`."""
    return isinstance(entrypoint, str) and TRIAL_CLASS.fullmatch(entrypoint.strip()) is not None


def _entrypoint(raw: dict[str, Any]) -> Iterator[Problem]:
    if is_trial_class(raw.get("entrypoint")):
        yield Problem(
            "entrypoint",
            "the form module:Class is deprecated",
            "write a script that trains, such as `python3 train.py`",
            "warning",
        )


def check(raw: object, *, complete: bool = False, part: bool = False) -> list[Problem]:
    """Return every mistake and oddity of a raw experiment config, errors first.

    Args:
        raw: What YAML or JSON gave; `load_yaml` makes one from text.
        complete: Judge a submission (after templates and cluster defaults). Otherwise judge sanity: blocks
            and fields may be absent, but what is there must be right.
        part: It is laid under or over other configs, as templates and policies are: nothing is missing in it.
    """
    found, safe = structure.inspect(raw)
    if not safe:
        return found
    if not isinstance(raw, dict):
        what = "is empty" if raw is None else f"is {describe(raw)}"
        return [Problem("", f"{what}; an experiment config is a mapping of keys to values")]
    if "method" in raw and "parameters" in raw and "searcher" not in raw:
        hint = "det config import FILE writes it as an experiment config"
        return [Problem("method", "this looks like a sweep of W&B, not like an experiment config", hint)]
    taken = {problem.path for problem in found}
    found += _few(problem for problem in _fields(raw) if problem.path not in taken)
    found += _few(_keys(raw))
    found += _few(rules.judge(raw))
    found += _few(misnamed.beside_unknown_names(raw))
    found += [] if part else _few(completeness.missing(raw, complete=complete))
    found += _few(_entrypoint(raw))
    return _few(in_order(found))


def _few(problems: Iterable[Problem]) -> list[Problem]:
    """Return the first problems of each level; a config with thousands of mistakes is not listed in full."""
    kept: list[Problem] = []
    counts = {"error": 0, "warning": 0}
    for problem in problems:
        counts[problem.level] += 1
        if counts[problem.level] <= structure.MAX_PROBLEMS:
            kept.append(problem)
    return kept


def check_yaml(text: str, source_name: str = "config", *, complete: bool = False) -> tuple[Any, list[Problem]]:
    """Read and judge a config text; return the raw value (None if it is not YAML) and all problems."""
    raw, problems = load_yaml(text, source_name)
    if raw is None and errors_of(problems):
        return None, problems
    return raw, in_order([*problems, *check(raw, complete=complete)])


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems without repetition, errors first; those of one list in its order."""
    unique = list(dict.fromkeys(problems))
    levels: tuple[Literal["error", "warning"], ...] = ("error", "warning")
    return [problem for level in levels for problem in _by_entry([one for one in unique if one.level == level])]


def _by_entry(problems: list[Problem]) -> list[Problem]:
    """Bring the problems of each list together, where its first one is, in the order of the entries."""
    places = [_ENTRY.match(problem.path) for problem in problems]
    first: dict[str, int] = {}
    keys = []
    for at, place in enumerate(places):
        name = place.group(1) if place else ""
        keys.append((first.setdefault(name, at) if place else at, int(place.group(2)) if place else -1, at))
    return [problems[at] for *_, at in sorted(keys)]


def errors_of(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that refuse a config."""
    return [problem for problem in problems if problem.level == "error"]


def parse(raw: object, *, complete: bool = False) -> ExperimentConfig:
    """Return the config of a raw mapping, with all defaults.

    Raises:
        ConfigError: With every mistake (and warning) of `check`.
    """
    problems = check(raw, complete=complete)
    if errors_of(problems):
        raise ConfigError(problems)
    return ExperimentConfig.model_validate(raw)
