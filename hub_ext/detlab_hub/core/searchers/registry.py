"""The search methods that are installed: entry points of the group `detlab.searchers`, by `searcher.name`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from detlab.plugins import PluginError
from detlab.schemas.expconf.blocks.searchers import SEARCHERS
from detlab.schemas.space import number_of_points
from detlab_hub.core.searchers.errors import SearcherNotInstalled
from detlab_hub.core.searchers.events import RULES
from detlab_hub.core.searchers.fields import DEFAULT_MAX_CONCURRENT_TRIALS, Fields
from detlab_hub.core.searchers.hyperparameters import check_space, make_space
from detlab_hub.core.searchers.method import SearchMethod
from detlab_hub.core.searchers.repeated import Repeated


def searcher_names() -> list[str]:
    """List the names of all methods, in order."""
    return SEARCHERS.names()


@cache
def method_class(name: str) -> type[SearchMethod]:
    """Return the class of a method.

    Raises:
        SearcherNotInstalled: No method of that name is installed, or it cannot be imported.
    """
    try:
        found = SEARCHERS.load(name)
    except PluginError as error:
        raise SearcherNotInstalled(f"searcher.name: {error.message}; {error.hint}") from error
    if not (isinstance(found, type) and issubclass(found, SearchMethod)):
        raise SearcherNotInstalled(f"searcher.name: {name!r} ({SEARCHERS.origin(name)}) is not a SearchMethod")
    return found


@cache
def needs_metric(name: str) -> bool:
    """Whether a method needs each trial to report the searcher's metric; False for one that is not installed."""
    try:
        return method_class(name).needs_metric
    except SearcherNotInstalled:  # its experiment pauses when its search is next needed
        return False


def make_method(searcher: Mapping[str, Any], space: Mapping[str, Any], rules: int = RULES) -> SearchMethod:
    """Make the method that a resolved `searcher` block names, to decide by the rules of its journal.

    Raises:
        SearcherConfigError: No such method is installed, a field is missing or out of range, or the space cannot be
            drawn from.
    """
    check_space(space)
    method = method_class(str(searcher.get("name")))
    searcher = _within(searcher, space)
    fields = Fields(searcher, rules)
    seeds = fields.count("seeds", 1)
    if seeds == 1:
        return method.from_config(fields, space)
    return Repeated(method.from_config(Fields(_each_place_for(searcher, seeds), rules), space), seeds)


def _within(searcher: Mapping[str, Any], space: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the block with no more trials than the space has points, if none is tried twice."""
    fields = Fields(searcher)
    if fields.repeats or searcher.get("max_trials") is None:
        return searcher
    size = number_of_points(make_space(space, fields.require))
    return searcher if size is None else {**searcher, "max_trials": min(fields.count("max_trials"), size)}


def _each_place_for(searcher: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Return the block for points instead of trials: as many points at a time as their trials have places."""
    most = searcher.get("max_concurrent_trials", DEFAULT_MAX_CONCURRENT_TRIALS) or 0
    return {**searcher, "max_concurrent_trials": max(1, most // seeds) if most > 0 else most}
