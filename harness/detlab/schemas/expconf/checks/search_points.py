"""Which points a space has: conditions, steps, priors, relations, starting points.

What is refused here is refused alike by clients and by the master. Whether a relation can be met is judged by drawing
points, always the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from detlab.errors import Problem
from detlab.schemas.expconf.blocks.hyperparameters import Hyperparameters
from detlab.schemas.expconf.checks.search_spaces import MAX_GRID_POINTS, grid_points
from detlab.schemas.expconf.checks.suggestions import closest
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.expconf.raw.structure import MAX_PROBLEMS
from detlab.schemas.space import FixedDraws, Grid, Leaf, Space, SpaceError, leaves_of, parse_relation
from detlab.schemas.space.relations import Relation, RelationError
from detlab.schemas.space.tree import Condition, cycle
from detlab.schemas.space.values import ends, objection, steps_of

MAX_RELATIONS = 50
MAX_POINTS = 1_000
"""Starting points, and results, of a search."""
_FEW = 0.01
"""Share of random points that meet the relations, below which a space earns a warning."""
_ENOUGH = 20
"""Points that meet the relations, after which no more are drawn."""
_MOST_LETTERS = 20_000_000
"""Characters of relations, times points of a grid, that are computed at most."""
_MOST_ENDS = 1_000
"""Points at the ends of the ranges that are tried where no random point meets the relations."""
_FEW_CHOICES = 10
"""Choices of which each is tried; of more, and of integers, the ends."""
_LISTED = 10
_SHOWN = 80
"""Characters of a relation that a message quotes."""
_BLOCK: TypeAdapter[Any] = TypeAdapter(Hyperparameters)


def space(raw: dict[str, Any]) -> Iterator[Problem]:
    """Yield the problems of conditions, steps, priors, relations and starting points, once the ranges are right."""
    searcher = raw.get("searcher")
    asked = isinstance(searcher, dict) and any(searcher.get(key) for key in ("require", "starting_points", "results"))
    hyperparameters = raw.get("hyperparameters") or {}
    block = _sound(hyperparameters) if asked or _more_than_ranges(hyperparameters) else None
    if block is None:
        return
    leaves = leaves_of(block)
    names = [leaf.name for leaf in leaves]
    found = [*_conditions(leaves), *_numbers(leaves)]
    yield from found
    settings = searcher if isinstance(searcher, dict) else {}
    texts = settings.get("require")
    relations = [texts] if isinstance(texts, str) else texts if isinstance(texts, list) else []
    wrong = list(_relations(relations, names, known=raw.get("hyperparameters") is not None))
    yield from wrong
    if found or raw.get("hyperparameters") is None:
        return
    meant = {} if len(relations) > MAX_RELATIONS else _meant(relations, names)
    made = Space(block, list(meant.values()))
    if meant:
        yield from _possible(made, settings, block, list(meant))
    if not wrong:
        yield from _starting(made, settings)
        yield from _results(made, settings)


_REPEATING = ("hyperband", "bohb", "dehb", "pbt", "pb2")
"""Methods that compare as many trials as they plan, at whatever points."""


def few_points(raw: dict[str, Any]) -> Iterator[Problem]:
    """Warn of a space without conditions that has fewer points than the search makes trials."""
    searcher = raw.get("searcher")
    if not isinstance(searcher, dict) or searcher.get("name") in ("grid", "custom"):
        return
    most = searcher.get("max_trials")
    if type(most) is not int:
        return
    block = _sound(raw.get("hyperparameters") or {})
    count = None if block is None else _number_of_points(leaves_of(block))
    if count is not None and 1 < count < most:
        again = searcher.get("repeat_points") is True or searcher.get("name") in _REPEATING
        what = "some are tried again" if again else f"the search ends after {count:,} trials"
        message = f"is {most:,}, but the hyperparameters have only {count:,} points: {what}"
        hint = "say fewer trials; to train each point several times, use `seeds`"
        hint += "" if again else ", to let points be drawn again `repeat_points: true`"
        yield Problem("searcher.max_trials", message, hint, "warning")


def _number_of_points(leaves: Sequence[Leaf]) -> int | None:
    """Count the points of a space; None if it has conditions, or infinitely many."""
    count = 1
    for leaf in leaves:
        if leaf.conditions:
            return None
        if leaf.kind not in ("int", "double", "log", "categorical", "ordinal"):
            continue
        steps = steps_of(leaf.spec)
        if steps is None and leaf.kind == "int":
            steps = int(leaf.spec["maxval"]) - int(leaf.spec["minval"]) + 1
        if steps is None:
            return None
        count *= steps
    return count


def _more_than_ranges(value: object) -> bool:
    """Return whether any hyperparameter has a condition, a step or a prior."""
    if not isinstance(value, dict):
        return False
    return not {"when", "step", "prior"}.isdisjoint(value) or any(_more_than_ranges(inner) for inner in value.values())


def _sound(hyperparameters: object) -> dict[str, Any] | None:
    """Return a block with all defaults if each hyperparameter alone is right; else None: other rules say why not."""
    try:
        block: dict[str, Any] = _BLOCK.dump_python(_BLOCK.validate_python(hyperparameters), mode="json")
    except ValidationError:
        return None
    for leaf in leaves_of(block):
        if leaf.kind in ("int", "double", "log"):
            try:
                if not leaf.spec["minval"] < leaf.spec["maxval"] or not abs(ends(leaf.spec)[1]) < float("inf"):
                    return None
            except OverflowError:
                return None
    return block


def _at(route: Sequence[str], *more: str) -> str:
    path: Path = ("hyperparameters", *route, *more)
    return render(path)


def _conditions(leaves: Sequence[Leaf]) -> Iterator[Problem]:
    known = {leaf.name: leaf for leaf in leaves}
    unknown = 0
    for condition in dict.fromkeys(one for leaf in leaves for one in _hashable(leaf.conditions)):
        path = _at(condition.home, "when")
        name = condition.name
        if name not in known:
            unknown += 1
            if unknown <= MAX_PROBLEMS:  # no more are shown, and each looks for a similar name
                yield _unknown(path, name, list(known))
            continue
        yield from (
            Problem(path, message)
            for value in json.loads(condition.values[0])
            if (message := _never(known[name], value))
        )
    if around := cycle(leaves):
        yield Problem(
            _at(known[around[0]].route, "when"),
            f"the conditions form a cycle: {' -> '.join(around)}",
            "no trial could have any of them; remove one of the conditions",
        )


def _hashable(conditions: Sequence[Condition]) -> Iterator[Condition]:
    """Yield the conditions with their values as JSON, so that those of a group are judged once."""
    for condition in conditions:
        yield Condition(condition.name, (json.dumps(list(condition.values)),), condition.home)


def _never(leaf: Leaf, value: Any) -> str | None:
    """Return why a hyperparameter never has a value; None if it may."""
    if leaf.kind in ("double", "log") and steps_of(leaf.spec) is None:
        return f"{leaf.name} is a {leaf.kind}, which has no single value twice: give it a `step`, or make it ordinal"
    wrong = objection(leaf.spec, value)
    return f"{leaf.name} {wrong}, so the condition never holds" if wrong else None


def _unknown(path: str, name: str, names: Sequence[str]) -> Problem:
    inside = [one for one in names if one.startswith(f"{name}.")]
    if inside:
        return Problem(path, f"{name} is a group of hyperparameters", f"name one of them, such as {inside[0]}")
    near = closest(name, names)
    hint = f"did you mean `{near}`?" if near else f"there are {', '.join(names[:10])}" if names else None
    return Problem(path, f"there is no hyperparameter {name!r}", hint)


def _numbers(leaves: Sequence[Leaf]) -> Iterator[Problem]:
    for leaf in leaves:
        if not isinstance(leaf.spec, Mapping):
            continue
        step, prior = leaf.spec.get("step"), leaf.spec.get("prior")
        if step is not None and steps_of(leaf.spec) is None:
            message = f"is {step:g}, so small that there are more than 2**53 values"
            yield Problem(_at(leaf.route, "step"), message, "leave it out: every value of the range may be drawn then")
        elif step is not None and step > leaf.spec["maxval"] - leaf.spec["minval"]:
            yield Problem(_at(leaf.route, "step"), f"is {step:g}, wider than the range, so minval is the only value")
        elif prior and (wrong := objection(leaf.spec, prior["center"])):
            yield Problem(_at(leaf.route, "prior", "center"), wrong)


def _relations(relations: Sequence[Any], names: Sequence[str], *, known: bool) -> Iterator[Problem]:
    if len(relations) > MAX_RELATIONS:
        yield Problem(
            "searcher.require", f"has {len(relations)} relations; there may be {MAX_RELATIONS}", "join some: a and b"
        )
        return
    for place, text in enumerate(relations):
        path = f"searcher.require[{place}]"
        if not isinstance(text, str):
            continue  # refused by its field
        try:
            relation = parse_relation(text)
        except RelationError as error:
            yield Problem(path, f"{_quoted(text)} {error}", 'such as "width % heads == 0"')
            continue
        if known:  # else a template has them
            for name in relation.names:
                if name not in names:
                    unknown = _unknown(path, name, names)
                    yield Problem(path, f"{_quoted(text)}: {unknown.message}", unknown.hint)


def _quoted(text: str) -> str:
    short = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return json.dumps(short, ensure_ascii=False)


def _meant(relations: Sequence[Any], names: Sequence[str]) -> dict[int, str]:
    """Return the relations that can be judged, by place: those that are right, of known hyperparameters."""
    found = {}
    for place, text in enumerate(relations):
        try:
            if isinstance(text, str) and set(parse_relation(text).names) <= set(names):
                found[place] = text
        except RelationError:
            continue
    return found


def _possible(
    made: Space, settings: Mapping[str, Any], block: Mapping[str, Any], places: Sequence[int]
) -> Iterator[Problem]:
    """Refuse a space without a point that meets the relations, and warn if there are few."""
    if settings.get("name") == "grid":
        points = grid_points(block)
        if points is None or points > MAX_GRID_POINTS:
            return
        letters = sum(len(one.text) for one in made.relations)
        if points * letters > _MOST_LETTERS:
            message = f"has {letters:,} characters, too many to be computed for each of the grid's {points:,} points"
            hint = f"there may be {_MOST_LETTERS // points:,}: shorten the relations, or use a smaller `count`"
            yield Problem("searcher.require", message, hint)
            return
        try:
            Grid(made)
        except SpaceError:
            yield Problem(
                "searcher.require", f"none of the grid's {points:,} points meets it", _advice(made, made.relations)
            )
        return
    draws, met, tried = FixedDraws(), 0, 0
    broken: dict[str, int] = {}
    faults: dict[str, str] = {}
    while met < _ENOUGH and tried < made.tries:
        values = made.draws(draws)
        tried += 1
        wrong = [(one.text, fault) for one in made.relations if (fault := one.fault(values))]
        met += not wrong
        for text, fault in dict(wrong).items():
            broken[text] = broken.get(text, 0) + 1
            faults.setdefault(text, fault)
    if not met:
        alone = [(place, one) for place, one in zip(places, made.relations, strict=True) if broken[one.text] == tried]
        for place, one in alone:
            yield _unmet(made, f"searcher.require[{place}]", [one], faults[one.text], tried)
        if not alone:
            yield _unmet(made, "searcher.require", made.relations, "is false", tried)
    elif met < _FEW * tried:
        share = f"{met / tried:.2%}"
        message = f"only about {share} of random points meet it: most draws are thrown away"
        yield Problem("searcher.require", message, "narrow the ranges, or use `step`, a choice or `when`", "warning")


class _Ends(FixedDraws):
    """Ends of the ranges, at random."""

    def below(self, n: int) -> int:
        return (0, n - 1)[super().below(2)] if n > _FEW_CHOICES else super().below(n)

    def uniform(self, low: float, high: float) -> float:
        return (low, high)[super().below(2)]


def _unmet(made: Space, path: str, relations: Sequence[Relation], fault: str, tried: int) -> Problem:
    """Say that no random point meets relations, and whether points at the ends of the ranges do."""
    which = _quoted(relations[0].text) if len(relations) == 1 else "it"
    if fault != "is false":
        return Problem(path, f"none of {tried:,} random points meets {which} ({fault})", _advice(made, relations))
    draws = _Ends()
    ends = (made.draws(draws) for _ in range(min(_MOST_ENDS, tried)))
    if any(all(one.holds(values) for one in relations) for values in ends):
        message = (
            f"is too rare: none of {tried:,} random points meets {which}, only points at the ends of the ranges do"
        )
        return Problem(path, message, "make the ranges end there, or move them: " + _ranges(made, relations))
    return Problem(path, f"none of {tried:,} random points meets {which}", _advice(made, relations))


def _advice(made: Space, relations: Sequence[Relation]) -> str:
    return "compare it with the ranges: " + _ranges(made, relations)


def _ranges(made: Space, relations: Sequence[Relation]) -> str:
    leaves = {leaf.name: leaf for leaf in made.leaves}
    names = dict.fromkeys(name for one in relations for name in one.names)
    return "; ".join(f"{name} {_range(leaves[name])}" for name in names)


def _range(leaf: Leaf) -> str:
    if leaf.kind in ("int", "double", "log"):
        low, high = ends(leaf.spec)
        return f"is {low:g} to {high:g}"
    if leaf.kind in ("categorical", "ordinal"):
        listed = [json.dumps(value) for value in leaf.spec["vals"][:_LISTED]]
        return f"is one of {', '.join(listed)}{', …' if len(leaf.spec['vals']) > _LISTED else ''}"
    return "is a constant"


def _starting(made: Space, settings: Mapping[str, Any]) -> Iterator[Problem]:
    points = settings.get("starting_points")
    if not isinstance(points, list) or not points:
        return
    path = "searcher.starting_points"
    if settings.get("name") == "grid":
        yield Problem(path, "a grid has its points already", "use random, or a method that learns")
        return
    if len(points) > MAX_POINTS:
        yield Problem(path, f"has {len(points):,} points; there may be {MAX_POINTS:,}")
        return
    most = settings.get("max_trials", 1 if settings.get("name") == "single" else None)
    if isinstance(most, int) and most < len(points):
        yield Problem(path, f"has {len(points)} points, but the search makes {most} trials", None, "warning")
    yield from _each(made, path, points, "")
    yield from _twice(path, points, "to train a point several times, use `seeds`")


def _results(made: Space, settings: Mapping[str, Any]) -> Iterator[Problem]:
    results = settings.get("results")
    if not isinstance(results, list):
        return
    if len(results) > MAX_POINTS:
        yield Problem("searcher.results", f"has {len(results):,} results; there may be {MAX_POINTS:,}")
        return
    points = [one.get("hparams") if isinstance(one, dict) else None for one in results]
    yield from _each(made, "searcher.results", points, ".hparams", partial=False)


def _each(made: Space, path: str, points: Sequence[Any], below: str, *, partial: bool = True) -> Iterator[Problem]:
    for place, point in enumerate(points):
        if not isinstance(point, Mapping):
            continue  # refused by its field
        for name, wrong in made.problems(point, partial=partial):
            yield Problem(f"{path}[{place}]{below}" + (f".{name}" if name else ""), wrong)


def _twice(path: str, points: Sequence[Any], hint: str) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for place, point in enumerate(points):
        key = json.dumps(point, sort_keys=True, default=str)
        if key in seen:
            yield Problem(f"{path}[{place}]", f"is the same point as number {seen[key]}", hint)
        seen.setdefault(key, place)
