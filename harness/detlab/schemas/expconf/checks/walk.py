"""A walk over a raw config, block by block, each with the model that judges it.

Pydantic stops describing a mapping at its first structural mistake; this walk does not, so that one check
names every unknown and deprecated key even in a config that is wrong elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

from detlab.schemas.expconf.blocks import searcher_base, searchers, stopping, storage
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.hyperparameters import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    DoubleHyperparameter,
    IntHyperparameter,
    LogHyperparameter,
    OrdinalHyperparameter,
    PriorConfig,
)
from detlab.schemas.expconf.blocks.scalars import Block
from detlab.schemas.expconf.raw.paths import Path
from detlab.schemas.space import is_condition

HYPERPARAMETER_MODELS: dict[str, type[Block]] = {
    "const": ConstHyperparameter,
    "int": IntHyperparameter,
    "double": DoubleHyperparameter,
    "log": LogHyperparameter,
    "categorical": CategoricalHyperparameter,
    "ordinal": OrdinalHyperparameter,
}


class Visit(NamedTuple):
    """One mapping of the raw config."""

    path: Path
    model: type[Block]
    raw: dict[Any, Any]


def visit_blocks(raw: object) -> Iterator[Visit]:
    """Yield every mapping of a raw config that has a model, the whole config first."""
    yield from visit(ExperimentConfig, raw)


def visit(model: type[Block], raw: object) -> Iterator[Visit]:
    """Visit a config of another kind, such as that of a task, in the same way."""
    yield from _visit(model, raw, ())


def _visit(model: type[Block], raw: object, path: Path) -> Iterator[Visit]:
    if not isinstance(raw, dict):
        return
    yield Visit(path, model, raw)
    for key, value in raw.items():
        if key not in model.model_fields:
            continue
        if model is ExperimentConfig and key == "hyperparameters":
            for place, hyperparameter in visit_hyperparameters(value):
                yield from _visit_hyperparameter(hyperparameter, place)
            continue
        yield from _visit_value(model, key, value, (*path, key))


def _visit_value(model: type[Block], key: str, value: object, path: Path) -> Iterator[Visit]:
    members = _blocks_of(model, key, entries=isinstance(value, list))
    if not members:
        return
    if isinstance(value, dict) and _is_map(model, key):
        for name, item in value.items():
            yield from _visit(members[0], item, (*path, str(name)))
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            if (member := _choose(members, item)) is not None:
                yield from _visit(member, item, (*path, index))
        return
    chosen = _choose(members, value)
    if chosen is not None:
        yield from _visit(chosen, value, path)


def _choose(members: tuple[type[Block], ...], value: object) -> type[Block] | None:
    if issubclass(members[0], searcher_base.SearcherBlock):
        return searchers.member_of(value)
    if issubclass(members[0], stopping.StoppingBlock):
        return stopping.member_of(value)
    if issubclass(members[0], storage.StorageBlock):
        return storage.member_of(value)
    return members[0]


@cache
def _blocks_of(model: type[Block], key: str, *, entries: bool) -> tuple[type[Block], ...]:
    """Return the blocks that a field holds as mappings, or as entries of its list."""
    return tuple(_blocks_in(model.model_fields[key].annotation, entries, False))


@cache
def _is_map(model: type[Block], key: str) -> bool:
    """Whether a field maps names of the user's own to blocks."""
    annotation = model.model_fields[key].annotation
    return any(get_origin(one) is dict for one in (annotation, *get_args(annotation)))


def _blocks_in(annotation: Any, entries: bool, inside: bool) -> Iterator[type[Block]]:
    if isinstance(annotation, type) and issubclass(annotation, Block):
        if entries == inside:
            yield annotation
        return
    inside = inside or get_origin(annotation) is list
    for argument in get_args(annotation):
        yield from _blocks_in(argument, entries, inside)


def _visit_hyperparameter(raw: object, path: Path) -> Iterator[Visit]:
    if isinstance(raw, dict):
        named = raw.get("type")
        model = HYPERPARAMETER_MODELS.get(named) if isinstance(named, str) else None
        if model is not None:
            yield Visit(path, model, raw)
            if isinstance(raw.get("prior"), dict) and "prior" in model.model_fields:
                yield Visit((*path, "prior"), PriorConfig, raw["prior"])


def visit_hyperparameters(raw: object) -> Iterator[tuple[Path, object]]:
    """Yield every leaf of a raw hyperparameters block with its path: typed mappings, lists, bare values.

    Mappings without `type` are groups and are entered, but not their `when`; lists are yielded and then entered,
    because a range inside a list must be spelt right although it is never searched. At the top `type` and `when` are
    names like any other.
    """
    if isinstance(raw, dict):
        for key, value in raw.items():
            yield from _leaves(value, ("hyperparameters", str(key)))


def _leaves(raw: object, path: Path) -> Iterator[tuple[Path, object]]:
    if isinstance(raw, dict) and "type" not in raw:
        for key, value in raw.items():
            if not is_condition(str(key), value, len(path) - 1):
                yield from _leaves(value, (*path, str(key)))
        return
    yield path, raw
    if isinstance(raw, list):
        for index, item in enumerate(raw):
            yield from _leaves(item, (*path, index))
