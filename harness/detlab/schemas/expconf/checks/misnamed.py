"""The other mistakes of a block whose name or type nobody knows: a second round would be needed to hear of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from pydantic import ValidationError

from detlab.errors import Problem
from detlab.schemas.expconf.blocks import searchers, stopping, storage
from detlab.schemas.expconf.blocks.scalars import NOTE_NEEDED, Block, note
from detlab.schemas.expconf.blocks.searcher_base import first_of_metrics
from detlab.schemas.expconf.checks import suggestions
from detlab.schemas.expconf.checks.translating import from_pydantic
from detlab.schemas.expconf.checks.walk import HYPERPARAMETER_MODELS, visit, visit_hyperparameters
from detlab.schemas.expconf.raw.paths import Path, render

MOST_KEYS = 100
"""Of one such block that are judged: no model has as many, and each is tried with all models."""


_OF_THE_PAST = {*searchers.REMOVED, *storage.REMOVED}
"""They had keys of their own."""


class Misnamed(NamedTuple):
    """A block that no model judges.

    Attributes:
        path: Where it is.
        raw: What it says.
        names: Its key that names its model.
        models: The models that there are.
    """

    path: Path
    raw: dict[Any, Any]
    names: str
    models: Mapping[str, type[Block]]


def beside_unknown_names(raw: dict[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong in blocks without a known name, whichever of the known ones is meant.

    A value is wrong if every model that has its key refuses it. A key that no model has is unknown, if the name is
    like a known one: else the block may be that of a method that is not installed here.
    """
    for block in misnamed(raw):
        given = block.raw.get(block.names)
        guess = isinstance(given, str) and given not in _OF_THE_PAST
        near = suggestions.closest(given, block.models) if guess else None
        for key, value in islice(block.raw.items(), MOST_KEYS):
            if key != block.names and isinstance(key, str):
                yield from _judge(block, near, key, value)


def misnamed(raw: dict[str, Any]) -> Iterator[Misnamed]:
    """Yield the blocks whose name or type no model has."""
    searcher, store, policies = raw.get("searcher"), raw.get("checkpoint_storage"), raw.get("stopping")
    if isinstance(searcher, dict) and searchers.member_of(searcher) is None:
        yield Misnamed(("searcher",), searcher, "name", searchers.BUILT_IN)
    if isinstance(store, dict) and storage.member_of(store) is None:
        yield Misnamed(("checkpoint_storage",), store, "type", storage.MEMBERS)
    for index, entry in enumerate(policies if isinstance(policies, list) else ()):
        if isinstance(entry, dict) and stopping.member_of(entry) is None:
            yield Misnamed(("stopping", index), entry, "name", stopping.BUILT_IN)
    for path, value in visit_hyperparameters(raw.get("hyperparameters")):
        if isinstance(value, dict) and value.get("type") not in tuple(HYPERPARAMETER_MODELS):
            yield Misnamed(path, value, "type", HYPERPARAMETER_MODELS)


def needed_by_all(block: Misnamed) -> Iterator[str]:
    """Yield the absent keys that a submission needs, whichever model is meant."""
    given = first_of_metrics(block.raw) if block.models is searchers.BUILT_IN else block.raw
    models = list(block.models.values())
    for key in models[0].model_fields:
        fields = [model.model_fields.get(key) for model in models]
        if given.get(key) is None and all(field is not None and note(field, NOTE_NEEDED) for field in fields):
            yield key


def _judge(block: Misnamed, near: str | None, key: str, value: object) -> Iterator[Problem]:
    meant = [block.models[near]] if near else []
    having = [model for model in (*meant, *block.models.values()) if key in model.model_fields]
    if not having:
        if near:
            yield Problem(
                render((*block.path, key)),
                "unknown key",
                suggestions.for_key(key, block.models[near], render(block.path)),
            )
        return
    found = [_wrong(model, block.path, key, value) for model in having]
    if all(found):
        yield from found[0]


def _wrong(model: type[Block], path: Path, key: str, value: object) -> list[Problem]:
    """Return what a model has against the value of one of its keys."""
    wrong = []
    try:
        model.model_validate({key: value})
    except ValidationError as error:
        where = render((*path, key))
        wrong = [one for one in from_pydantic(error, path) if one.path.startswith(where)]
    for at, inner, given in visit(model, {key: value}):
        unknown = [name for name in given if at and name not in inner.model_fields]
        for name in unknown:
            place = (*path, *at)
            hint = suggestions.for_key(name, inner, render(place))
            wrong.append(Problem(render((*place, str(name))), "unknown key", hint))
    return wrong
