"""Whether the policies of `stopping` are known, and can judge the trials of this search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.blocks import stopping
from detlab.schemas.expconf.blocks.scalars import describe
from detlab.schemas.expconf.checks.search_spaces import finite_number
from detlab.schemas.expconf.checks.suggestions import closest

MOST_POLICIES = 20
"""Of an experiment: each looks at every report of the searcher metric."""


def policies(raw: dict[str, Any]) -> Iterator[Problem]:
    """Require names that are installed, limits in their order, and a time metric where a policy needs one."""
    entries = raw.get("stopping")
    if not isinstance(entries, list):
        return
    if len(entries) > MOST_POLICIES:
        yield Problem("stopping", f"has {len(entries)} policies; there may be {MOST_POLICIES}")
    for index, entry in enumerate(entries):
        path = f"stopping[{index}]"
        if not isinstance(entry, dict):
            yield Problem(
                path, f"must be a mapping, not {describe(entry)}", "such as {name: no_improvement, patience: 5}"
            )
        elif stopping.member_of(entry) is None:
            yield _unknown(path, entry.get("name"))
        else:
            yield from _limits(path, entry)
            yield from _time(path, entry, raw.get("searcher"))
            yield from _metric(path, entry, raw)


def _unknown(path: str, name: object) -> Problem:
    known = ", ".join(stopping.MEMBERS)
    if name is None:
        return Problem(f"{path}.name", "is required", f"one of {known}")
    near = closest(name, stopping.MEMBERS)
    hint = f"did you mean `{near}`?" if near else None
    return Problem(f"{path}.name", f"must be one of {known}, not {describe(name)}", hint)


def _limits(path: str, entry: dict[str, Any]) -> Iterator[Problem]:
    if entry["name"] != "threshold":
        return
    lower, upper = finite_number(entry.get("lower")), finite_number(entry.get("upper"))
    if entry.get("lower") is None and entry.get("upper") is None:
        yield Problem(path, "has no limit, so it stops nothing", "set `lower`, `upper` or both")
    elif lower is not None and upper is not None and lower >= upper:
        yield Problem(path, f"lower must be less than upper, but {lower:g} >= {upper:g}")


def _time(path: str, entry: dict[str, Any], searcher: object) -> Iterator[Problem]:
    given = isinstance(searcher, dict) and searcher.get("time_metric") is not None
    if given or not isinstance(searcher, dict):
        return
    if entry["name"] == "curve":
        message = "needs `searcher.time_metric`: it fits the metric against how far a trial has trained"
        yield Problem(path, message, "such as `time_metric: epoch`, if training code reports 'epoch'")
    elif entry.get("warmup"):
        message = "counts reports, because there is no `searcher.time_metric`"
        yield Problem(f"{path}.warmup", message, None, "warning")


def _metric(path: str, entry: dict[str, Any], raw: dict[str, Any]) -> Iterator[Problem]:
    """Require that a report carries the metric: the search asks for those of its constraints and objectives alone."""
    searcher, metric = raw.get("searcher"), entry.get("metric")
    if entry["name"] != "threshold" or not isinstance(metric, str) or not isinstance(searcher, dict):
        return
    constraints, several = searcher.get("constraints"), searcher.get("metrics")
    known = [*constraints] if isinstance(constraints, dict) else []
    known += [one.get("name") for one in several if isinstance(one, dict)] if isinstance(several, list) else []
    if metric not in known and metric != searcher.get("metric"):
        hint = f"add it to searcher.constraints, such as {metric}: {{max: 1}}"
        yield Problem(f"{path}.metric", f"{metric!r} is no metric of the search", hint)
