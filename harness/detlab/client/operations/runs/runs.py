"""Operations on runs that no cluster started."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, model, page_of
from detlab.schemas.wire import LogLine
from detlab.schemas.wire.runs import RunCurve, RunPoints, RunView


def runs(
    project: str = "",
    *,
    group: str = "",
    job_type: str = "",
    status: str = "",
    deleted: bool = False,
    limit: int | None = None,
) -> Flow[list[RunView]]:
    """List the runs of a project, the newest first; without a project the caller's own in all of them."""
    filters = {"project": project, "group": group, "job_type": job_type, "status": status}
    params = {**filters, "deleted": "true" if deleted else ""}
    return pages("runs", RunView, "skip", limit, {key: value or None for key, value in params.items()})


def run(run_id: str) -> Flow[RunView]:
    """Fetch a run by its id, or by the key of one of the caller's own."""
    return one(Call("GET", f"runs/{quote(run_id, safe='')}", parse=model(RunView)))


def delete_run(run_id: str, *, forever: bool = False) -> Flow[RunView]:
    """Mark a run as deleted; or remove it for good, marked or not."""
    path = f"runs/{quote(run_id, safe='')}"
    marked: RunView = yield Call("GET", path, parse=model(RunView))
    if not (marked.deleted and forever):
        marked = yield Call("DELETE", path, parse=model(RunView))
    if forever:
        marked = yield Call("DELETE", path, params={"forever": "true"}, parse=model(RunView))
    return marked


def restore_run(run_id: str) -> Flow[RunView]:
    """Take the mark of a deleted run off again."""
    return one(Call("POST", f"runs/{quote(run_id, safe='')}/restore", parse=model(RunView)))


def run_points(run_id: str, name: str) -> Flow[RunPoints]:
    """Fetch all values of a metric of a run, by step and time."""
    found = RunPoints(name=name)
    after: str | None = None
    while True:
        params = {"name": name, "after": after}
        page = yield Call("GET", f"runs/{quote(run_id, safe='')}/metrics", params=params, parse=model(RunPoints))
        found.steps += page.steps
        found.values += page.values
        found.times += page.times
        if page.next is None or page.next == after:
            return found
        after = page.next


def run_curves(run_id: str, names: Iterable[str], max_points: int) -> Flow[list[RunCurve]]:
    """Fetch curves of a run, thinned.

    Args:
        run_id: The run.
        names: Of the metrics.
        max_points: Points of each curve; extremes and the last point stay exact.
    """
    params: dict[str, str | int | None] = {"name": json.dumps(list(names)), "max_points": max_points}
    return pages(f"runs/{quote(run_id, safe='')}/curves", RunCurve, "skip", None, params)


def run_output(run_id: str, *, tail: int | None = None, search: str | None = None) -> Flow[list[LogLine]]:
    """Fetch the output of a run: all of it, or its last lines."""
    path = f"runs/{quote(run_id, safe='')}/logs"
    if tail is None:
        return pages(path, LogLine, "after", None, {"search": search})
    return _tail(path, tail, search)


def _tail(path: str, tail: int, search: str | None) -> Flow[list[LogLine]]:
    params = {"tail": tail, "search": search}
    items, _ = yield Call("GET", path, params=params, parse=page_of(LogLine))
    return list(items)
