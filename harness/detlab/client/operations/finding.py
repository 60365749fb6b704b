"""Operations of finding: trials and experiments by a filter, completion."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from detlab.client.operations.experiments import PAGE, one
from detlab.client.ordering import known_limit, several
from detlab.client.transport.calls import Call, Flow, model
from detlab.errors import Conflict
from detlab.schemas.wire import Archived
from detlab.schemas.wire.finding import Completions, ExperimentPage, FilteredTable, FoundTrials


def find_trials(
    filter: str = "",  # noqa: A002  (its name in requests)
    *,
    sort: Iterable[str] = (),
    columns: Iterable[str] = (),
    archived: Archived | None = None,
    limit: int | None = None,
) -> Flow[FoundTrials]:
    """Find trials of all experiments, fetching as many pages as needed.

    Args:
        filter: Which trials; empty: all.
        sort: Fields in order of importance, with `-` before them for descending.
        columns: Fields whose values come with each trial.
        archived: Whether those of archived experiments come, too.
        limit: Most trials; None: all of them.
    """
    params = _asked(filter, sort, columns, archived)
    whole: FoundTrials = yield from _collected("trials", FoundTrials, "after", params, limit)
    return whole


def find_experiments(
    filter: str = "",  # noqa: A002  (its name in requests)
    *,
    sort: Iterable[str] = (),
    columns: Iterable[str] = (),
    archived: Archived | None = None,
    limit: int | None = None,
    state: str | None = None,
    owner: str | None = None,
    name: str | None = None,
) -> Flow[ExperimentPage]:
    """Find experiments, as `find_trials` finds trials; metrics and hyperparameters are those of their best trial."""
    params = {**_asked(filter, sort, columns, archived), "state": state, "owner": owner, "name": name}
    whole: ExperimentPage = yield from _collected("experiments", ExperimentPage, "before", params, limit)
    return whole


def _asked(
    filter_: str, sort: Iterable[str], columns: Iterable[str], archived: Archived | None
) -> dict[str, str | int | None]:
    """Return what is asked for; lists as JSON, since names may have commas."""
    lists = {"sort": several(sort) or [], "column": several(columns) or []}
    said = {name: json.dumps(given) for name, given in lists.items() if given}
    return {"filter": filter_ or None, **said, "archived": archived}


def _collected(path: str, cls: Any, cursor: str, params: dict[str, str | int | None], limit: int | None) -> Flow[Any]:
    """Fetch pages and return them as one."""
    limit = known_limit(limit)
    whole: Any = None
    position: int | None = None
    while whole is None or (position is not None and (limit is None or len(whole.items) < limit)):
        had = 0 if whole is None else len(whole.items)
        size = PAGE if limit is None else min(PAGE, limit - had)
        part = yield Call("GET", path, params={**params, "limit": size, cursor: position}, parse=model(cls))
        whole = part if whole is None else whole.model_copy(update={"items": [*whole.items, *part.items]})
        if part.next is not None and part.next == position:
            raise Conflict(f"the master repeats itself in the list {path} after {position}")
        position = part.next if part.items else None
    return whole.model_copy(update={"next": position})


def complete(text: str, *, table: FilteredTable = "trials", cursor: int | None = None) -> Flow[Completions]:
    """Ask what may come next in a filter at a cursor, by default at its end."""
    params = {"filter": text, "table": table, "cursor": cursor}
    return one(Call("GET", "filters/complete", params=params, parse=model(Completions)))
