"""The search methods that are installed: entry points of the group `detlab.searchers`, by `searcher.name`."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from detlab_hub.core.searchers.errors import SearcherNotInstalled
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.hyperparameters import check_space
from detlab_hub.core.searchers.method import SearchMethod

GROUP = "detlab.searchers"


@cache
def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def searcher_names() -> list[str]:
    """Names of all methods, in order."""
    return sorted(_installed())


@cache
def method_class(name: str) -> type[SearchMethod]:
    """The class of a method.

    Raises:
        SearcherNotInstalled: None of that name is installed, or it cannot be imported.
    """
    entry = _installed().get(name)
    if entry is None:
        raise SearcherNotInstalled(f"searcher.name: {name!r} is not one of {', '.join(searcher_names())}")
    try:
        found = entry.load()
    except Exception as error:  # whatever a plug-in raises when it is imported: the message says it
        raise SearcherNotInstalled(
            f"searcher.name: {name!r} is installed ({entry.value}) but broken: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, SearchMethod)):
        raise SearcherNotInstalled(f"searcher.name: {name!r} ({entry.value}) is not a SearchMethod")
    return found


@cache
def needs_metric(name: str) -> bool:
    """Whether a method needs each trial to report the searcher's metric; False for one that is not installed."""
    try:
        return method_class(name).needs_metric
    except SearcherNotInstalled:  # its experiment pauses when its search is next needed
        return False


def make_method(searcher: Mapping[str, Any], space: Mapping[str, Any]) -> SearchMethod:
    """Make the method that a resolved `searcher` block names.

    Raises:
        SearcherConfigError: No such method is installed, a field is missing or out of range, or the space cannot be
            drawn from.
    """
    check_space(space)
    return method_class(str(searcher.get("name"))).from_config(Fields(searcher), space)
