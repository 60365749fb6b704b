"""What a search is about: its metrics, and the constraints that they must keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.checks.search_spaces import finite_number

NO_WINNER = ("single", "custom", "pbt", "pb2")
"""Searches without a winner that one more trial from new weights would confirm."""
ONE_OBJECTIVE = ("cmaes",)
"""Search methods that cannot rank by several metrics."""
MOST_OBJECTIVES = 8
_MORE = """acc accuracy auc auprc auroc bleu dice f1 fscore iou kappa map mcc miou mrr ndcg precision psnr r2 recall
    return reward rouge ssim top1 top5"""
MORE_IS_BETTER = frozenset(_MORE.split())
"""Words in names of metrics of which more is better."""
LESS_IS_BETTER = re.compile(r"error|err\b|loss|regret|wrong|\b1\W|minus|neg")
"""What turns such a name around: `1 - accuracy`, `neg_f1`, `recall_loss`."""
_WORD = re.compile(r"[a-z]+[0-9]*")


def _searcher(raw: dict[str, Any]) -> dict[str, Any]:
    found = raw.get("searcher")
    return found if isinstance(found, dict) else {}


def metrics(raw: dict[str, Any]) -> Iterator[Problem]:
    """Require metrics with different names, of which the first agrees with `metric` and `smaller_is_better`."""
    searcher = _searcher(raw)
    given = searcher.get("metrics")
    if not isinstance(given, list) or not given:
        return
    entries = [entry if isinstance(entry, dict) else {} for entry in given]
    names = [entry.get("name") for entry in entries]
    for index, name in enumerate(names):
        if isinstance(name, str) and name in names[:index]:
            yield Problem(f"searcher.metrics[{index}].name", f"{name!r} is there twice")
    if len(names) > MOST_OBJECTIVES:
        message = f"has {len(names)} metrics; at most {MOST_OBJECTIVES}"
        yield Problem("searcher.metrics", message, "nearly every trial is best in one of so many: use constraints")
    if len(names) > 1 and searcher.get("name") in ONE_OBJECTIVE:
        message = f"{searcher['name']} searches by one metric only"
        yield Problem("searcher.metrics", message, "use nsga2 or tpe, or make the others constraints")
    yield from _contradictions(searcher, entries[0])


def _contradictions(searcher: dict[str, Any], first: dict[str, Any]) -> Iterator[Problem]:
    metric, smaller = searcher.get("metric"), searcher.get("smaller_is_better")
    if metric is not None and first.get("name") is not None and metric != first["name"]:
        message = f"is {metric!r}, but the first of `metrics` is {first['name']!r}"
        yield Problem("searcher.metric", message, "leave it out: the first of `metrics` counts")
    expected = first.get("smaller_is_better")
    expected = True if expected is None else expected
    if isinstance(smaller, bool) and isinstance(expected, bool) and smaller != expected:
        message = f"is {str(smaller).lower()}, but {str(expected).lower()} for the first of `metrics`"
        yield Problem("searcher.smaller_is_better", message, "leave it out: the first of `metrics` counts")


def directions(raw: dict[str, Any]) -> Iterator[Problem]:
    """Warn of a metric that is minimized because nobody said otherwise, though more of it is better by its name."""
    searcher = _searcher(raw)
    given = searcher.get("metrics")
    entries = (
        [(f"searcher.metrics[{place}]", one, "name") for place, one in enumerate(given)]
        if isinstance(given, list)
        else []
    )
    for path, entry, key in entries or [("searcher", searcher, "metric")]:
        name = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(name, str) or entry.get("smaller_is_better") is not None:
            continue
        if MORE_IS_BETTER.intersection(_WORD.findall(name.lower())) and not LESS_IS_BETTER.search(name.lower()):
            message = f"is not set: the search minimizes {name!r}, of which more is better by its name"
            yield Problem(
                f"{path}.smaller_is_better",
                message,
                "write `smaller_is_better: false`, or true if it is right",
                "warning",
            )


def ends(raw: dict[str, Any]) -> Iterator[Problem]:
    """Require one metric for what ends the whole search, and something that `min_improvement` is about."""
    searcher = _searcher(raw)
    several = isinstance(searcher.get("metrics"), list) and len(searcher["metrics"]) > 1
    for key in ("goal", "patience"):
        if several and searcher.get(key) is not None:
            message = "is about one metric, and this search has several, of which none is the best alone"
            yield Problem(f"searcher.{key}", message, "keep one metric, and make the others constraints")
    if searcher.get("confirm") is True and (several or searcher.get("name") in NO_WINNER):
        why = (
            "this search has several metrics" if several else f"{searcher['name']} has no winner that one more would be"
        )
        yield Problem("searcher.confirm", f"cannot be: {why}", "leave it out")
    if searcher.get("min_improvement") is not None and searcher.get("patience") is None:
        yield Problem("searcher.min_improvement", "has no effect without `patience`", None, "warning")


def constraints(raw: dict[str, Any]) -> Iterator[Problem]:
    """Require a range with at least one value for each constraint."""
    given = _searcher(raw).get("constraints")
    if not isinstance(given, dict):
        return
    for name, bounds in given.items():
        path = f"searcher.constraints.{name}"
        if not str(name).strip():
            yield Problem("searcher.constraints", "has an empty name", "name the validation metric")
        if not isinstance(bounds, dict):
            continue
        if bounds.get("min") is None and bounds.get("max") is None:
            yield Problem(path, "has no bound", "set `min`, `max` or both")
        low, high = finite_number(bounds.get("min")), finite_number(bounds.get("max"))
        if low is not None and high is not None and low > high:
            yield Problem(path, f"min must be at most max, but {low:g} > {high:g}: no trial can keep it")
