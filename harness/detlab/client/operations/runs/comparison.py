"""Operations of comparing: runs side by side, their curves, their code."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel

from detlab.client.ordering import several
from detlab.client.transport.calls import Call, Flow, model
from detlab.errors import Conflict
from detlab.schemas.wire.comparison import MOST_CURVE_TRIALS, CodeComparison, ComparedSeries, RunComparison, RunCurves

M = TypeVar("M", bound=BaseModel)


def compare(
    experiments: Collection[int] = (),
    trials: Collection[int] = (),
    runs: Collection[str] = (),
    *,
    metrics: Iterable[str] = (),
) -> Flow[RunComparison]:
    """Fetch runs side by side, all parts as one.

    Args:
        experiments: Experiments, for which their best trials stand.
        trials: Trials.
        runs: Runs that no cluster started: ids, or keys of one's own.
        metrics: Names of metrics; none: all.
    """
    params = {**_runs(experiments, trials), "runs": _texts(runs), "metric": _texts(metrics)}
    lists = ("runs", "hyperparameters", "config", "metrics")
    return (yield from _whole("comparison", RunComparison, lists, params))


def curves(
    trials: Collection[int],
    runs: Collection[str] = (),
    *,
    names: Iterable[str] = (),
    group: str | None = None,
    max_points: int = 500,
) -> Flow[list[ComparedSeries]]:
    """Fetch the curves of trials, and of runs that no cluster started; what may not be read is left out."""
    found: list[ComparedSeries] = []
    left, beside = list(trials), list(runs)
    while left or beside:
        # Runs come with the first trials, whose searches say which of their metrics is compared with which.
        there, beside = beside[:MOST_CURVE_TRIALS], beside[MOST_CURVE_TRIALS:]
        room = MOST_CURVE_TRIALS - len(there)
        here, left = left[:room], left[room:]
        asked = {"trials": _ids(here), "runs": _texts(there), "group": group, "name": _texts(names)}
        part = yield from _whole("comparison/curves", RunCurves, ("items",), {**asked, "max_points": max_points})
        found += part.items
    return found


def code(experiments: Collection[int] = (), trials: Collection[int] = ()) -> Flow[CodeComparison]:
    """Fetch how the code of runs differs."""
    return (yield from _whole("comparison/code", CodeComparison, ("items",), _runs(experiments, trials)))


def _runs(experiments: Collection[int], trials: Collection[int]) -> dict[str, Any]:
    return {"experiments": _ids(experiments), "trials": _ids(trials)}


def _ids(ids: Collection[int]) -> str | None:
    return ",".join(str(int(one)) for one in ids) or None


def _texts(names: Iterable[str]) -> str | None:
    """Return names as JSON, since they may have commas."""
    found = several(names) or []
    return json.dumps(found) if found else None


def _whole(path: str, cls: type[M], lists: Collection[str], params: dict[str, Any]) -> Flow[M]:
    """Fetch the parts of a reply and return them as one."""
    whole: Any = None
    skip: int | None = 0
    while skip is not None:
        part: Any = yield Call("GET", path, params={**params, "skip": skip or None}, parse=model(cls))
        more = {name: [*getattr(whole, name), *getattr(part, name)] for name in lists} if whole else {}
        whole = part.model_copy(update=more)
        if part.next is not None and part.next <= skip:
            raise Conflict(f"the master repeats itself at {path} after {part.next}")
        skip = part.next
    return whole
